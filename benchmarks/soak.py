"""Does anything grow? ``python -m benchmarks.soak`` (``make bench-soak``): 20 minutes at 100 req/s.

A master and two workers against the emulator, lengths that vary at a steady rate; memory and file
descriptors of each, from the end of the second minute to the end of the window.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.backpressure import rss_mb
from tests.processes import emulator, free_port, unheard

CLUSTER = (
    *("--prefill", "6", "--decode", "4", "--max-running-requests", "256"),
    *("--prefill-ms", "2,0.01,0"),
)
# A course of the rate would end in a higher peak of requests in flight, and not tell a leak from it.
WORKLOAD = "N(2000,1000)/(40,20)"
WORKER_MB, MASTER_MB, ROW_B = 5.0, 5.0, 100.0  # allowed: a worker's, the master's, per request
LOCUST = (sys.executable, "-m", "locust", "-f", "locustfile.py", "--loglevel", "WARNING")
Sample = dict[str, tuple[float, int]]  # by process: resident MB, open file descriptors


def sample(processes: "dict[str, subprocess.Popen[bytes]]") -> Sample:
    """One look at each."""
    fds = {name: len(list(Path(f"/proc/{p.pid}/fd").iterdir())) for name, p in processes.items()}
    return {name: (rss_mb(p.pid), fds[name]) for name, p in processes.items()}


def soak(rate: int, window_s: int, settle_s: int) -> bool:
    """Run, print what grew, and say whether it is within the limits."""
    with tempfile.TemporaryDirectory() as folder, emulator(*CLUSTER) as target:
        port = str(free_port())
        load = ("-H", target.url, "--workload", WORKLOAD, "--rate", str(rate))
        lead = ("--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port)
        follow = ("--worker", "--master-host", "127.0.0.1", "--master-port", port)
        master = [*LOCUST, "--headless", *lead, "--expect-workers", "2", *load]
        commands = {
            "master": [*master, "-t", str(window_s), "--run-dir", folder],
            "worker 1": [*LOCUST, *follow],
            "worker 2": [*LOCUST, *follow],
        }
        processes = {name: unheard(command) for name, command in commands.items()}
        try:
            samples = _watch(processes, window_s, settle_s)
            processes["master"].wait(timeout=120)
        finally:
            for process in processes.values():
                process.kill()
        (run,) = [json.loads(p.read_text()) for p in Path(folder).glob("*/run.json")]
    arrivals = run["arrivals"]
    print(f"{arrivals}, verdict {run['verdict']}, TTFT P99 {run['ttft_ms']['p99']:.0f} ms")
    return _judge(samples, rate * (window_s - settle_s))


def _watch(
    processes: "dict[str, subprocess.Popen[bytes]]", window_s: int, settle_s: int
) -> list[Sample]:
    """A sample each second, from ``settle_s`` on until shortly before the end of the window."""
    time.sleep(settle_s + 10)  # ten seconds for the start
    end = time.monotonic() + window_s - settle_s - 15
    samples = []
    while time.monotonic() < end:
        samples.append(sample(processes))
        time.sleep(1)
    return samples


def _judge(samples: list[Sample], requests: int) -> bool:
    good = True
    for name in samples[0]:
        first, last = (
            [statistics.median(one[name][k] for one in part) for k in (0, 1)]
            for part in (samples[:10], samples[-10:])
        )
        allowed = MASTER_MB + ROW_B * requests / 1e6 if name == "master" else WORKER_MB
        grown = last[0] - first[0]
        # Connections come and go with the requests in flight; a leak would be hundreds.
        good &= grown < allowed and last[1] <= 1.2 * first[1] + 20
        print(
            f"{name:9} {first[0]:6.1f} -> {last[0]:6.1f} MB: {grown:+5.1f} of {allowed:.1f} allowed;"
            f" file descriptors {first[1]:.0f} -> {last[1]:.0f}"
        )
    print("within the limits" if good else "OVER the limits")
    return good


def main() -> None:
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=100, help="requests per second")
    parser.add_argument("-t", type=int, default=1200, help="seconds")
    parser.add_argument("--settle", type=int, default=120, help="seconds that do not count")
    options = parser.parse_args()
    sys.exit(0 if soak(options.rate, options.t, options.settle) else 1)


if __name__ == "__main__":
    main()
