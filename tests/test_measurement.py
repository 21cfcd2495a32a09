"""What is counted, cut and judged: cases from public reports, and the laws of the accounting."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.decision import decide
from planner.errors import PlanError
from planner.measure import measure
from planner.records import Records, read_records, write_records
from planner.run_files import load_run, write_run
from planner.window import backlog
from tests.made import context, measured, records

OUTCOMES = ["ok", "timeout", "http-5xx", "unfinished", "unsent", "lost"]


@given(st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=80))
def test_every_due_arrival_is_counted_once(outcomes: list[str]) -> None:
    rows = records(len(outcomes), outcome=outcomes)
    arrivals = measured(rows).arrivals
    assert arrivals.adds_up
    assert arrivals.due == len(outcomes)
    assert arrivals.succeeded == outcomes.count("ok")


def test_duplicates_do_not_add_up() -> None:
    assert not measured(records(10), duplicates=1).arrivals.adds_up


def test_exact_counts_stand_where_the_records_are_a_sample() -> None:
    arrivals = measured(records(100), outcomes={"ok": 990, "reset": 10}).arrivals
    assert (arrivals.due, arrivals.succeeded, arrivals.failed) == (1000, 990, {"reset": 10})


def test_one_token_answers_have_no_tpot() -> None:  # F52
    tokens = np.array([1] * 40 + [10] * 60)
    m = measured(records(100, output_tokens=tokens, tpot_ms=30.0))
    assert (m.ttft_ms.n, m.tpot_ms.n) == (100, 60)
    assert m.tpot_ms.p50 == pytest.approx(30)
    assert m.tpot_ms.p99 == pytest.approx(30)


def test_a_run_of_one_token_answers_decides_nothing_about_d() -> None:  # F52
    rows = records(1000, output_tokens=1)
    m = measured(rows)
    assert m.tpot_ms.n == 0
    assert decide(None, m, rows).verdict == "hold"


def test_the_ramp_is_cut_and_the_cut_is_told() -> None:  # F60
    rows = records(1020, ttft_ms=np.array([4000.0] * 20 + [100.0] * 1000))
    assert measured(rows).ttft_ms.p99 == pytest.approx(4000)
    cut = measured(rows, warmup_s=1.0)
    assert cut.ttft_ms.p99 == pytest.approx(100)
    assert (cut.excluded, cut.measured) == (20, 1000)


def test_the_ramp_is_found_without_being_told() -> None:
    ttft = np.concatenate([np.linspace(3000, 100, 200), np.full(1800, 100.0)])
    m = measured(records(2000, ttft_ms=ttft), warmup_s=None)
    assert m.warmup_s is not None
    assert 5 <= m.warmup_s <= 20


@pytest.mark.parametrize(
    ("ttft_ms", "slo_ms"), [(1049.0, 1000.0), (500.4, 500.0), (12.5, 12.4)]
)  # F61
def test_a_limit_is_compared_with_the_unrounded_value(ttft_ms: float, slo_ms: float) -> None:
    m = measured(records(400, ttft_ms=ttft_ms), slo={"ttft_p99_ms": slo_ms, "tpot_p99_ms": 50.0})
    assert m.ttft_ms.p99 == pytest.approx(ttft_ms, rel=1e-6)
    assert m.ttft_ms.violation_rate == 1


def test_thirty_samples_are_called_unreliable() -> None:  # F63
    m = measured(records(30, ttft_ms=np.array([20.0] * 29 + [80.0])))
    assert m.ttft_ms.p99 == pytest.approx(80)
    assert m.ttft_ms.ci_high is None
    assert any("n = 30" in w and "not reliable" in w for w in m.warnings)


def test_failures_count_as_violations_and_give_no_sample() -> None:  # F44: fast refusals
    rows = records(1000, outcome=["auth"] * 20 + ["ok"] * 980)
    m = measured(rows)
    assert m.ttft_ms.n == 980
    assert m.ttft_ms.violation_rate == pytest.approx(0.02)
    assert m.tpot_ms.violation_rate == pytest.approx(0.02)


def test_the_slow_ones_that_were_cut_off_do_not_make_a_p99_good() -> None:  # F73
    slow = np.arange(300) % 50 == 25
    due = np.arange(300) * 0.2
    rows = records(
        300, due_s=due, output_tokens=np.where(slow, 500, 96), tpot_ms=np.where(slow, 90.0, 20.0)
    )
    cut = rows.done_s > 60
    never = np.where(cut, np.nan, rows.done_s)
    rows = replace(
        rows,
        outcome=np.where(cut, "unfinished", "ok").astype(object),
        done_s=never,
        last_token_s=np.where(cut, np.nan, rows.last_token_s),
    )
    m = measured(rows, window_s=60.0, stopped_at_s=60.0)
    assert m.arrivals.unfinished == int(cut.sum())
    assert m.tpot_ms.p99 is not None
    assert any("in flight at the end" in w for w in m.warnings)
    assert decide(None, m, rows).verdict != "hold"


def test_estimated_tokens_are_labelled() -> None:  # F41
    rows = records(400, token_source=np.full(400, "estimated", object))
    assert any("estimated" in w for w in measured(rows).warnings)


def test_prompt_lengths_are_those_of_the_server() -> None:  # F95
    rows = records(400, planned_input_tokens=np.full(400, 4000), input_tokens=np.full(400, 4240))
    m = measured(rows)
    assert m.input_tokens["told_mean"] == 4240
    assert any("+6.0 %" in w for w in m.warnings)


def test_short_answers_are_called_a_weak_test_of_d() -> None:
    rows = records(400, planned_output_tokens=np.full(400, 20))
    assert any("less than planned" in w for w in measured(rows).warnings)


def test_the_first_gap_and_the_steady_step_are_told_apart() -> None:  # F112
    rows = records(400, output_tokens=6, tpot_ms=48.0)
    rows = replace(rows, second_token_s=rows.first_token_s + 0.180)
    m = measured(rows)
    assert m.tpot_ms.p99 == pytest.approx(48)
    assert m.first_gap_ms.p99 == pytest.approx(180)
    assert m.steady_tpot_ms.p99 == pytest.approx(15)


def test_classes_are_measured_apart() -> None:
    names = np.where(np.arange(400) % 2 == 0, "chat", "code").astype(object)
    ttft = np.where(np.arange(400) % 2 == 0, 100.0, 900.0)
    m = measured(records(400, class_name=names, ttft_ms=ttft))
    assert m.classes["chat"].ttft_violation_rate == 0
    assert m.classes["code"].ttft_violation_rate == 1
    assert m.classes["code"].ttft_p99_ms == pytest.approx(900)


def test_a_backlog_that_grows_is_saturation_and_a_steady_one_is_not() -> None:
    n = 2000
    due = np.arange(n) * 0.05
    falling_behind = records(n, due_s=due, ttft_ms=100 + 400 * due)
    assert backlog(falling_behind, 0.0, 100.0).saturated
    assert not backlog(records(n, due_s=due, ttft_ms=2000.0), 5.0, 100.0).saturated


# -- files ---------------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from(OUTCOMES), min_size=0, max_size=30),
    st.sampled_from(["chat", 'a "quoted", name', "日本"]),
)
def test_records_come_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, outcomes: list[str], name: str
) -> None:
    rows = records(len(outcomes), outcome=outcomes, class_name=[name] * len(outcomes))
    path = tmp_path_factory.mktemp("run") / "records.csv.gz"
    write_records(path, rows)
    back = read_records(path)
    for column in Records.__dataclass_fields__:
        want, got = getattr(rows, column), getattr(back, column)
        assert np.array_equal(want, got) or np.allclose(want, got, atol=1e-8, equal_nan=True)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text.replace("index", "number", 1), "line 1"),
        (
            lambda text: text.replace(",1000,", ",many,", 1),
            "line 2: planned_input_tokens: found 'many'",
        ),
        (lambda text: text + "1,2,3\n", "line 7: found 3 cells, expected 18"),
    ],
)
def test_a_spoilt_records_file_is_told_with_its_line(
    tmp_path: Path, spoil: object, said: str
) -> None:

    path = tmp_path / "records.csv.gz"
    write_records(path, records(5))
    text = gzip.decompress(path.read_bytes()).decode()
    path.write_bytes(gzip.compress(spoil(text).encode()))  # type: ignore[operator]
    with pytest.raises(PlanError, match=said):
        read_records(path)


def test_a_file_that_is_no_gzip_is_told(tmp_path: Path) -> None:
    path = tmp_path / "records.csv.gz"
    path.write_bytes(b"index,worker\n")
    with pytest.raises(PlanError, match="cannot be read"):
        read_records(path)


def test_the_same_verdict_comes_from_the_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = records(2000, ttft_ms=100 * rng.lognormal(0, 0.7, 2000))
    m = measure(rows, context(rows, warmup_s=None))
    decision = decide(None, m, rows)
    write_run(tmp_path / "run", m, decision, rows)
    again, back = load_run(tmp_path / "run")
    assert decide(None, again, back) == decision
    assert again.model_dump() == m.model_dump()
