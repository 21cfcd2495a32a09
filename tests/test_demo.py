"""The main job, as `make demo` plays it, and ten minutes of a real trace at speed 5 beside it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import ROOT, Emulator, Locust, emulator
from tests.test_run import assert_adds_up

pytestmark = pytest.mark.process
TRACE = ROOT.parent / "shared" / "traces" / "azure_llm_2023_conv.csv.gz"
SPEED = 5
TEN_MINUTES_S = 600


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Locust, Emulator] | None]:
    """The replay takes two minutes of waiting and little work: it runs while the demo does."""
    if not TRACE.exists():
        yield None
        return
    cluster = ("--prefill", "4", "--decode", "3", "--prefill-ms", "5,0.05,0.0000005")
    with emulator(*cluster) as running:
        arguments = ("--trace", str(TRACE), "--trace-speed", str(SPEED))
        window = ("-t", f"{TEN_MINUTES_S // SPEED}s", "--ttft-p99-ms", "2000")
        locust = Locust(
            *("--headless", "-H", running.url, *arguments, *window),
            run_dir=tmp_path_factory.mktemp("trace"),
        )
        yield locust, running
        if locust.process.poll() is None:
            locust.process.kill()
            locust.finish(10)


def test_the_demo_ends_in_add_prefill_and_then_hold(
    replay: tuple[Locust, Emulator] | None, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.demo", "--run-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = (
        json.loads(next((tmp_path / name).glob("*/run.json")).read_text())
        for name in ("before", "after")
    )
    assert (before["verdict"], after["verdict"]) == ("add-prefill", "hold")
    assert before["ttft_ms"]["p99"] > 2 * before["slo"]["ttft_p99_ms"]
    assert after["ttft_ms"]["p99"] < after["slo"]["ttft_p99_ms"]
    for run in (before, after):
        assert run["measured"] >= 299
        assert run["emulated"] is True
        assert run["workers"] == 2
    assert "report.html" in done.stdout


def test_ten_minutes_of_a_real_trace_end_in_a_verdict(
    replay: tuple[Locust, Emulator] | None,
) -> None:
    if replay is None:
        pytest.skip(f"the trace {TRACE.name} is not on this machine")
    finished = replay[0].finish(240)
    assert_adds_up(finished)
    assert finished.run["verdict"]
    assert finished.code == finished.run["exit_code"]
    assert len(finished.records) > 2500
    assert finished.run["workload"]["name"] == "azure_llm_2023_conv"
