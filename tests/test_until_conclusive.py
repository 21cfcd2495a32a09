"""--until-conclusive with real processes: a run goes on until it is settled, or to its limit."""

import re
from pathlib import Path

import pytest

from tests.processes import Locust, emulator, headless

pytestmark = pytest.mark.process

# Far inside its limits, so all that a verdict lacks is requests: 299 are the least.
ROOMY = ("--prefill", "4", "--decode", "2", "--max-running-requests", "256")
WORKLOAD = """
rate_rps: 40
input: {dist: fixed, value: 256}
output: {dist: fixed, value: 16}
slo: {ttft_p99_ms: 10000, tpot_p99_ms: 1000}
"""


def arguments(tmp_path: Path, url: str, *more: str) -> tuple[str, ...]:
    workload = tmp_path / "light.yaml"
    workload.write_text(WORKLOAD)
    return ("-H", url, "--workload", str(workload), "--until-conclusive", *more)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_run_is_extended_until_its_verdict_is_settled(tmp_path: Path, workers: int) -> None:
    many = ("--processes", str(workers)) if workers > 1 else ()
    with emulator(*ROOMY) as cluster:
        given = arguments(tmp_path, cluster.url, "-t", "4", "--warmup", "1", *many)
        finished = headless(*given, run_dir=tmp_path / "runs")
    run = finished.run
    assert (run["verdict"], finished.code) == ("hold", 0), finished.output
    assert any(re.match(r"at 4 s inconclusive; extended to [5-8] s", n) for n in run["notes"])
    assert 8 <= run["window_s"] < 16
    assert run["partial"] is False
    assert run["arrivals"]["due"] == len(finished.records) == run["arrivals"]["succeeded"]
    # What went out while the order to stop was on its way is due as well.
    assert max(r["due_s"] for r in finished.records) < run["window_s"] + 0.5
    assert run["arrivals"]["due"] > 299


def test_at_its_limit_a_run_ends_inconclusive(tmp_path: Path) -> None:
    with emulator(*ROOMY) as cluster:
        given = arguments(tmp_path, cluster.url, "-t", "3", "--max-run-time", "6", "--rate", "10")
        finished = headless(*given, run_dir=tmp_path / "runs")
    assert (finished.run["verdict"], finished.code) == ("inconclusive", 20), finished.output
    assert finished.run["window_s"] == 6
    assert finished.run["partial"] is False


def test_a_run_that_is_stopped_while_it_is_extended_is_partial(tmp_path: Path) -> None:
    with emulator(*ROOMY) as cluster:
        given = arguments(tmp_path, cluster.url, "-t", "3", "--max-run-time", "60")
        run = Locust("--headless", *given, run_dir=tmp_path / "runs")
        run.wait_for("Inconclusive after 3 s")
        run.process.send_signal(2)
        finished = run.finish(30)
    assert finished.run["partial"] is True
    assert finished.run["stopped_at_s"] < 6


def test_a_limit_without_its_flag_or_below_the_run_time_is_one_sentence(tmp_path: Path) -> None:
    with emulator() as cluster:
        given = arguments(tmp_path, cluster.url, "-t", "30", "--max-run-time", "10")
        short = headless(*given, run_dir=tmp_path / "runs")
        alone = headless("-H", cluster.url, "--max-run-time", "10", run_dir=tmp_path / "runs")
    assert short.code == alone.code == 1
    assert "--max-run-time: found 10 s, allowed is the run time (30 s) or more" in short.output
    assert "--max-run-time: it goes with --until-conclusive" in alone.output
