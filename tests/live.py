"""Two minutes of load on a real engine; shared by the live_*.py files, which are run by name only:

pytest tests/live_dynamo.py
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import ROOT, Finished, headless
from tests.test_run import assert_adds_up

TARGETS = ROOT.parent / "shared" / "targets"
WORKLOAD = """
class: short
input: {{dist: uniform, low: {low}, high: {high}}}
output: {{dist: fixed, value: {output}}}
"""


@contextmanager
def engine(script: str, *arguments: str, stop: tuple[str, ...] = ("stop",)) -> Iterator[None]:
    """The engine that a script of the targets folder starts, until the block ends."""
    if not (TARGETS / script).exists():
        pytest.skip(f"the start scripts for real engines ({script}) are not on this machine")
    try:
        started = subprocess.run(
            ["bash", str(TARGETS / script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=240,
            check=False,
            env={**os.environ},
        )
        assert "ready" in started.stdout, started.stdout
        yield
    finally:
        subprocess.run(["bash", str(TARGETS / script), *stop], timeout=60, check=False)


def load(
    url: str, tmp_path: Path, rate: float, lengths: tuple[int, int, int], *more: str
) -> Finished:
    """The run, checked as every run is."""
    low, high, output = lengths
    file = tmp_path / "short.yaml"
    file.write_text(WORKLOAD.format(low=low, high=high, output=output))
    finished = headless(
        *("-H", url, "--workload", str(file), "--rate", str(rate), "-t", "120s"),
        *("--ttft-p99-ms", "10000", "--tpot-p99-ms", "500", "--wait", "60s", *more),
        run_dir=tmp_path / "runs",
        timeout_s=300,
    )
    print(finished.output[-4000:])  # noqa: T201  (the table is what a live run is for)
    assert_adds_up(finished)
    assert finished.run["arrivals"]["succeeded"] >= 0.95 * finished.run["arrivals"]["due"]
    assert finished.run["verdict"]
    assert finished.code == finished.run["exit_code"]
    return finished


def metrics(prefill: list[int], decode: list[int]) -> list[str]:
    """The options that name each instance's /metrics by its port."""
    urls = [("--prefill-metrics-url", p) for p in prefill] + [
        ("--decode-metrics-url", p) for p in decode
    ]
    return [part for name, port in urls for part in (name, f"http://127.0.0.1:{port}/metrics")]


def assert_scraped(finished: Finished, *signals: str) -> None:
    """Every P and D told something of itself."""
    for role in ("prefill", "decode"):
        instances = finished.run["server"][role]
        assert instances
        for instance in instances:
            assert instance["polls"] > 60
            assert any(signal in instance for signal in signals), instance
