"""What a second worker brings: ``python -m benchmarks.workers`` (part of ``make bench-scaling``).

One and two Locust processes against the truth server, all on the same cores, each with more streams
than it can follow; side by side, several times.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.client import Bench, build, locust_command
from benchmarks.scenes import rate

ROOT = Path(__file__).resolve().parent.parent
SCENE = rate(250_000)  # chunks per second that are offered to each worker: more than one can take
GAIN = 1.5  # what is asked for


def chunks_per_s(bench: Bench, workers: int) -> tuple[float, float]:
    """What so many workers carry together, and the server's CPU time for one chunk, µs."""
    flags = ["--ttft-ms", SCENE.ttft_ms, "--itl-ms", SCENE.itl_ms, *SCENE.server]
    command = [*bench.ahead(20), str(bench.server), *map(str, flags)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().split()[-1]}"
            environ = {**os.environ, "BENCH_TOKENS": str(SCENE.tokens), "PYTHONPATH": str(ROOT)}
            running = [
                subprocess.Popen(
                    [*bench.ahead(10), *locust_command(url, SCENE)],
                    cwd=ROOT,
                    env=environ,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
                for _ in range(workers)
            ]
            told = [process.communicate(timeout=120)[0].strip().splitlines() for process in running]
            rows = [json.loads(lines[-1]) for lines in told]
            spent_us = cpu_s(server.pid) * 1e6 / sum(r["chunks"] for r in rows)
            return sum(r["chunks_per_s"] for r in rows), spent_us
        finally:
            server.kill()


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(f) for f in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure in turns, print, and say whether two carry enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    carried: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        bench = build(Path(folder))
        for _ in range(options.repeats):
            for workers, seen in carried.items():
                carries, server_us = chunks_per_s(bench, workers)
                seen.append(carries)
                told = f"{carries:10,.0f} chunks/s, the server {server_us:.1f} µs of CPU for each"
                print(f"{workers} worker(s): {told}", flush=True)
    gain = statistics.median(carried[2]) / statistics.median(carried[1])
    print(
        f"two carry {gain:.2f} times what one does, the server on the same {os.cpu_count()} cores"
    )
    sys.exit(0 if gain >= GAIN else 1)


if __name__ == "__main__":
    main()
