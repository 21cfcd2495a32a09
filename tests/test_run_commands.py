"""``python -m planner decide | explain | whatif | trend`` on a run that was written to disk."""

import json
import sys
from functools import cache
from pathlib import Path

import pytest

from emulator.model import Deployment
from planner.__main__ import main
from planner.decision import decide
from planner.measurement import Measurement
from planner.records import Records
from planner.rounds import trend
from planner.run_files import write_run
from planner.verdict import Decision
from tests.simulated import measured, play

SHORT = Deployment(1, 2, 64)
PLAN = {"slo": {"ttft_p99_ms": 1200, "tpot_p99_ms": 60, "target_qps": 10}}


@cache
def seen(deployment: Deployment, rate_rps: float) -> tuple[Measurement, Decision, Records]:
    records = play(deployment, rate_rps, 60, 1)
    m = measured(records, deployment, 60, (1200, 60), rate_planned_rps=10)
    return m, decide(None, m, records), records


def written(folder: Path, deployment: Deployment, run_id: str, rate_rps: float = 10) -> Path:
    """A run of that name; what it saw, and its verdict, do not depend on the name."""
    m, decision, records = seen(deployment, rate_rps)
    named = m.model_copy(update={"run_id": run_id, "started_at": run_id})
    write_run(folder / run_id, named, decision, records)
    return folder / run_id


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("runs"), SHORT, "a")


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["planner", *arguments])
    return main()


def test_explain_tells_the_rule_the_split_and_the_models(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "explain", str(run)) == 0
    said = capsys.readouterr().out
    for part in ("add-prefill", "Where the TTFT is spent", "prefill of L tokens", "> 3", "Next:"):
        assert part in said


def test_whatif_marks_the_cheapest_that_holds_and_it_is_one(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ("--prefill", "1:5", "--decode", "1:3", "--max-running-requests", "48,64")
    assert call(monkeypatch, "whatif", str(run), *grid, "--rate", "1x") == 0
    said = capsys.readouterr().out
    assert "over capacity" in said  # with one P
    marked = next(line for line in said.splitlines() if "<- cheapest that holds" in line).split()
    p, d, cap = int(marked[1]), int(marked[2]), int(marked[3])
    records = play(Deployment(p, d, cap), 10, 200, 77)
    seen = measured(records, Deployment(p, d, cap), 200, (1200, 60))
    assert seen.ttft_ms.p99 is not None
    assert seen.ttft_ms.p99 < 1.15 * 1200
    assert f"{p}P{d}D" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--prefill", "x"), "--prefill: found 'x', allowed are 4:8 or 4,6,8"),
        (("--prefill", "0:3"), "--prefill: found '0:3'"),
        (("--decode", "5:2"), "--decode: found '5:2'"),
        (("--rate", "0x:2x"), "--rate: found '0x:2x', allowed are 1x:2x"),
        (("--rate", "fast"), "--rate: found 'fast'"),
        (("--prefill", "1:100", "--decode", "1:100"), "10000 cells, allowed are 2000"),
    ],
)
def test_a_wrong_grid_is_one_sentence(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    assert call(monkeypatch, "whatif", str(run), *arguments) == 1
    assert sentence in capsys.readouterr().err


def test_a_run_without_a_model_says_why_there_is_no_whatif(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, SHORT, "short", rate_rps=1)
    assert call(monkeypatch, "whatif", str(folder)) == 1
    assert "holds no model of the engine" in capsys.readouterr().err


def test_three_runs_over_an_slo_ask_for_a_new_plan_and_two_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(written(tmp_path, SHORT, name)) for name in "abc"]
    assert call(monkeypatch, "trend", *runs[:2]) == 0
    assert "3 are needed" in capsys.readouterr().out
    assert call(monkeypatch, "trend", *reversed(runs)) == 10
    said = capsys.readouterr().out
    assert "re-plan: TTFT P99 was over its SLO in each of the last 3 runs" in said
    assert said.index("\na ") < said.index("\nb ") < said.index("\nc ")  # in order of their start
    good = written(tmp_path, Deployment(4, 2, 64), "d")
    assert trend([*runs, good]).replan is False


def test_decide_writes_the_next_plan_with_its_history(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, following = tmp_path / "plan.json", tmp_path / "next.json"
    plan.write_text(json.dumps(PLAN))
    assert call(monkeypatch, "decide", str(plan), str(run), "-o", str(following)) == 10
    told = json.loads(following.read_text())
    assert told["deployment"]["prefill_instances"] > 1
    assert [h["verdict"] for h in told["history"]] == ["add-prefill"]
    then = Deployment(told["deployment"]["prefill_instances"], 2, 64)
    second = written(tmp_path, then, "b")
    third = tmp_path / "third.json"
    assert call(monkeypatch, "decide", str(following), str(second), "-o", str(third)) in (0, 20)
    assert len(json.loads(third.read_text())["history"]) == 2
