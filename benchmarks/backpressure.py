"""What one master bears: ``python -m benchmarks.backpressure`` (part of ``make bench-scaling``).

A real master, and 200 simulated workers that report 100 finished requests a second each. Prints the
master's loop lag, CPU and memory, and the bytes that a worker sends.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.processes import ROOT, emulator, free_port

PROCESSES = 2
ROW_B, REPORT_B = 64, 2048  # allowed: bytes a request, and bytes a report
LAG_MS = 100.0


def measure(workers: int, rate: int, window_s: int) -> dict[str, Any]:
    """One run of a master with so many workers of so many requests per second each."""
    port = str(free_port())
    with tempfile.TemporaryDirectory() as folder, emulator() as target:
        watch = Path(folder) / "watch.json"
        master = subprocess.Popen(
            [
                *ahead(),
                *(sys.executable, "-m", "locust", "-f", "benchmarks/watched.py", "--headless"),
                *("--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port),
                *("-H", target.url, "--expect-workers", str(workers), "-t", str(window_s)),
                *("--rate", str(workers * rate), "-u", str(10 * workers), "--run-dir", folder),
                *("--loglevel", "WARNING", "--keep-going", "--drain-timeout", "5"),
            ],
            cwd=ROOT,
            env={**os.environ, "PD_WATCH": str(watch), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        share = workers // PROCESSES
        simulate = [sys.executable, "-m", "benchmarks.simulated_workers", port]
        players = [
            subprocess.Popen(
                [*simulate, str(k * share), str(share), str(rate)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for k in range(PROCESSES)
        ]
        try:
            memory = _watch_memory(master, watch, window_s)
            output = master.communicate(timeout=600)[0]
            told = [json.loads(p.communicate(timeout=60)[0].splitlines()[-1]) for p in players]
        finally:
            for process in (master, *players):
                process.kill()
        if not watch.exists():
            raise SystemExit(f"error: the master saw no run:\n{output}")
        return {**json.loads(watch.read_text()), **memory, **_traffic(told)}


def ahead() -> list[str]:
    """Before all other work, where that is allowed: else the figures are those of the scheduler."""
    first = ["chrt", "-f", "10"]
    probe = subprocess.run([*first, "true"], capture_output=True, check=False)
    return first if probe.returncode == 0 else []


def _watch_memory(master: "subprocess.Popen[str]", watch: Path, window_s: int) -> dict[str, Any]:
    """Memory of the master at the end of the window."""
    deadline = time.monotonic() + window_s + 120
    sizes: list[float] = []
    while not watch.exists() and master.poll() is None and time.monotonic() < deadline:
        sizes.append(rss_mb(master.pid))
        time.sleep(1)
    return {"rss_mb": sizes[-1] if sizes else 0.0}


def rss_mb(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _traffic(told: list[dict[str, Any]]) -> dict[str, Any]:
    sent: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for one in told:
        sent.update(one["sent"])
        count.update(one["count"])
    requests = sent.pop("requests")
    lasting = {kind: sent[kind] for kind in ("pd_records", "stats", "heartbeat")}
    reports = count["pd_records"]
    return {
        "requests": requests,
        "bytes_per_request": sum(lasting.values()) / requests,
        "allowed_bytes_per_request": ROW_B + REPORT_B * reports / requests,
        **{f"{kind}_bytes": size / count[kind] for kind, size in lasting.items()},
    }


def main() -> None:
    """Measure, print, and say whether it is within what issue and docs promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--rate", type=int, default=100, help="requests per second of one worker")
    parser.add_argument("-t", type=int, default=30, help="seconds")
    options = parser.parse_args()
    seen = measure(options.workers, options.rate, options.t)
    for name, value in seen.items():
        print(f"{name:28} {value:12,.2f}")
    good = seen["loop_lag_p99_ms"] < LAG_MS
    good &= seen["bytes_per_request"] < seen["allowed_bytes_per_request"]
    print("within the limits" if good else "OVER the limits")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
