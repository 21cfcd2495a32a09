"""How fast the emulator is: ``python -m benchmarks.emulator_speed``.

Live: a child process streams to this one; events per second and per core, and how late its ticks are
(the moment at which steps are played, after the moment at which they end). Virtual: ``simulate``.
"""

import argparse
import asyncio
import os
import random
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from emulator.cluster import simulate
from emulator.model import Arrival, Deployment

ROOT = Path(__file__).resolve().parent.parent
STEP_S = 0.020
# instances and streams per instance: 7,500 to 60,000 token events per second at 20 ms steps
LADDER = ((4, 38), (4, 75), (10, 30), (4, 150), (10, 62), (10, 90), (10, 120))
TARGET = (10, 62)  # 30,000 and more; its ticks are to be late by less than TARGET_LATE_S
TARGET_LATE_S = 0.002
STARVED = 0.1  # share of the time without a core from which lateness is the machine's


class Stream(asyncio.Protocol):
    """Asks for one answer after another on one connection, and throws it away."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Ask for the next when one is over."""
        if self._transport is not None and data.endswith(b"\r\n0\r\n\r\n"):
            self._transport.write(self._request)


@contextmanager
def emulator(decodes: int, cap: int) -> Iterator[tuple[str, int]]:
    """A child with steps of 20 ms and fast prefill: its URL and process id."""
    command = [sys.executable, "-m", "emulator", "--port", "0", "--exit-with-parent"]
    command += ["--decode", str(decodes), "--max-running-requests", str(cap), "--prefill", "8"]
    command += ["--decode-ms", f"{STEP_S * 1000},0,0", "--prefill-ms", "1,0,0"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1], process.pid
    finally:
        process.terminate()
        process.wait(timeout=5)


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def waited_s(pid: int) -> float:
    """Seconds for which a process was ready and had no core: what others did to it."""
    schedstat = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii")
    return int(schedstat.split()[1]) / 1e9


def scrape(url: str, pid: int) -> tuple[float, float, int, dict[float, int]]:
    """Now, CPU seconds, tokens made, ticks by how late they were at most."""
    page = urllib.request.urlopen(f"{url}/metrics", timeout=60).read().decode()
    tokens = re.findall(r"^sglang:generation_tokens_total\{.*\} (\S+)$", page, re.M)
    late = re.findall(r'^emulator:tick_late_seconds_bucket\{.*le="(\S+)"\} (\d+)$', page, re.M)
    buckets = {float(bound): int(count) for bound, count in late}
    return time.monotonic(), cpu_s(pid), sum(int(float(t)) for t in tokens), buckets


def quantile_s(before: dict[float, int], after: dict[float, int], q: float) -> float:
    """The bound under which a share ``q`` of the ticks was late."""
    counts = {bound: after[bound] - before[bound] for bound in after}
    wanted = q * max(counts.values())
    return next(bound for bound, count in sorted(counts.items()) if count >= wanted)


async def live(decodes: int, streams: int, seconds: float) -> tuple[float, float]:
    """One line of the table; how late 99 % of the ticks were at most, and the share without a core."""
    with emulator(decodes, streams) as (url, pid):
        address = urlsplit(url)
        host, port = str(address.hostname), int(address.port or 0)
        ask = {"model": "emulated", "prompt": [1], "stream": True, "ignore_eos": True}
        loop, rng = asyncio.get_running_loop(), random.Random(1)
        for number in range(decodes * streams):
            if number < 4 * decodes:  # or all instances would step at the same moments for ever
                await asyncio.sleep(rng.uniform(0, 2 * STEP_S))
            body = orjson.dumps({**ask, "max_tokens": rng.randint(100, 400)})
            head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            request = head.encode() + b"\r\n" + body
            await loop.create_connection(lambda request=request: Stream(request), host, port)
        await asyncio.sleep(2)
        t0, cpu0, tokens0, late0 = await asyncio.to_thread(scrape, url, pid)
        waited0 = waited_s(pid)
        await asyncio.sleep(seconds)
        waited = (waited_s(pid) - waited0) / seconds
        t1, cpu1, tokens1, late1 = await asyncio.to_thread(scrape, url, pid)
    rate, share = (tokens1 - tokens0) / (t1 - t0), (cpu1 - cpu0) / (t1 - t0)
    late_ms = [1000 * quantile_s(late0, late1, q) for q in (0.5, 0.9, 0.99)]
    print(
        f"{decodes:>6} x {streams:<4}{rate:>12,.0f}{share:>10.0%}{rate / share:>14,.0f}"
        f"{late_ms[0]:>12.1f}{late_ms[1]:>8.1f}{late_ms[2]:>8.1f}{waited:>10.1%}",
        flush=True,
    )
    return late_ms[2] / 1000, waited


def virtual(admission: str) -> None:
    """20,000 requests of 200 tokens through 4P4D."""
    rng, at_s, arrivals = random.Random(1), 0.0, []
    for _ in range(20_000):
        at_s += rng.expovariate(25)
        arrivals.append(Arrival(at_s, 1155, 200))
    deployment = Deployment(4, 4, 64, admission=admission)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        simulate(arrivals, deployment)
        times.append(time.perf_counter() - began)
    print(f"simulate, {admission}: 20,000 requests x 200 tokens: best of 5 {min(times):.3f} s")


def main() -> int:
    """All of it, or with --target only the line that has a target: 30,000 events/s, 2 ms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time of each line")
    parser.add_argument("--target", action="store_true", help="only 30,000 events/s")
    options = parser.parse_args()
    for admission in ("early", "sequential"):
        virtual(admission)
    print(
        "D x streams    events/s      core  events/s/core   late P50     P90     P99 ms   without a core"
    )
    lines = {
        line: asyncio.run(live(*line, options.seconds))
        for line in ([TARGET] if options.target else LADDER)
    }
    late_s, waited = lines[TARGET]
    if late_s > TARGET_LATE_S and waited > STARVED:
        print("The machine was busy with other things: no verdict on the target of 2 ms.")
        return 0
    return 0 if late_s <= TARGET_LATE_S else 1


if __name__ == "__main__":
    sys.exit(main())
