"""How late arrivals go out: ``python -m benchmarks.schedule_lag`` (``make bench-lag``).

A headless run of the product sends to the truth server while streams run; lag = sent - due of every
request, from records.csv.gz. A drift would show as a lag that grows: the last tenth against the first.
"""

import argparse
import csv
import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.client import Bench, build

ROOT = Path(__file__).resolve().parent.parent
RATES = (50, 200, 500)
WARMUP = 0.1  # of a run: connections are made in it


def main() -> int:
    """Run, print a table; 1 when a figure is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="of each rate (default 60)")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES)
    given = parser.parse_args()
    good = True
    print("| req/s | n | lag P50 ms | P99 ms | max ms | drift of P50, ms |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        bench = build(Path(folder))
        for rate in given.rates:
            lag_ms = measured(bench, Path(folder), rate, given.seconds)
            p50, p99 = np.quantile(lag_ms, (0.5, 0.99))
            tenth = len(lag_ms) // 10
            drift = float(np.median(lag_ms[-tenth:]) - np.median(lag_ms[:tenth]))
            good &= bool(p50 < 0.6 and p99 < 2 and abs(drift) < 0.2)
            print(
                f"| {rate} | {len(lag_ms)} | {p50:.3f} | {p99:.3f} | {lag_ms.max():.2f} | {drift:+.3f} |",
                flush=True,
            )
    return 0 if good else 1


def measured(bench: Bench, folder: Path, rate: int, seconds: int) -> np.ndarray:
    """Lags of one run, in order of the due moment, ms."""
    runs = folder / f"runs-{rate}"
    with serving(bench) as url:
        command = [
            *bench.pinned(1, 40),
            *(sys.executable, "-m", "locust", "-f", "locustfile.py", "--headless", "--host", url),
            *("--workload", "D(30,30)", "--rate", str(rate), "-t", f"{seconds}s"),
            *("--no-preflight", "--model", "truth", "--run-dir", str(runs)),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = list(runs.glob("*/records.csv.gz"))
    if not found:
        raise SystemExit(done.stderr[-2000:])
    with gzip.open(found[0], "rt", encoding="utf-8") as file:
        rows = [
            (float(r["due_s"]), float(r["sent_s"])) for r in csv.DictReader(file) if r["sent_s"]
        ]
    due, sent = np.array(sorted(rows)).T
    return 1000 * (sent - due)[int(WARMUP * len(rows)) :]


@contextmanager
def serving(bench: Bench) -> Iterator[str]:
    """The truth server: 30 tokens in half a second."""
    command = [*bench.pinned(0, 50), str(bench.server), "--ttft-ms", "100", "--itl-ms", "15"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().split()[-1]}"
        finally:
            process.kill()


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
