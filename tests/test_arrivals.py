"""Schedules: one for all workers, random as the process says, along the course of the rate."""

from pathlib import Path

import numpy as np
import pytest

from workloads.arrivals import Schedule
from workloads.processes import Constant, Day, GammaGaps, Minutes, OnOff, Stages
from workloads.workload import Workload, load_workload

CONV = load_workload("azure_conv_2023")


def due(schedule: Schedule) -> np.ndarray:
    return np.concatenate([b.due_s for b in schedule.blocks()])


def test_sixteen_workers_send_what_one_sends_row_by_row() -> None:
    one = list(CONV.schedule(1, 100, 20).stripe(0, 1))
    for n in (4, 16):
        parts = [list(CONV.schedule(1, 100, 20).stripe(i, n)) for i in range(n)]
        assert sorted((a for part in parts for a in part), key=lambda a: a.index) == one


@pytest.mark.parametrize("workers", [1, 4, 16])
def test_poisson_stays_poisson_for_any_number_of_workers(workers: int) -> None:
    """Index of dispersion of the counts in bins of 1 s, over 100,000 arrivals at 10 requests/s."""
    schedule = load_workload("D(100,100)").schedule(1, 10_000, 10)
    moments = np.concatenate([due(schedule)[i::workers] for i in range(workers)])
    counts = np.histogram(moments, bins=10_000, range=(0, 10_000))[0]
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.05)
    assert len(moments) != 100_000  # random, not made to fit
    assert len(moments) == pytest.approx(100_000, rel=0.01)


def test_a_schedule_can_be_entered_anywhere() -> None:
    whole = list(CONV.schedule(3, 8_000, 20).stripe(0, 1, from_s=7_990))
    assert whole == [a for a in CONV.schedule(3, 8_000, 20).stripe(0, 1) if a.due_s >= 7_990]
    assert whole


def test_another_rate_moves_no_length() -> None:
    slow, fast = (list(CONV.schedule(1, w, r).stripe(0, 1)) for w, r in ((100, 10), (50, 20)))
    assert [(a.input_tokens, a.output_tokens) for a in slow] == [
        (a.input_tokens, a.output_tokens) for a in fast
    ]
    assert [a.due_s for a in slow] == pytest.approx([2 * a.due_s for a in fast])


def test_five_million_rows_are_made_block_by_block() -> None:
    blocks = CONV.schedule(1, 1000, 5000).blocks()
    first = next(blocks)
    assert len(first) < 100_000  # nothing else is held
    assert first.due_s[-1] < 20


@pytest.mark.parametrize("cv", [0.5, 2.0, 3.2])
def test_gamma_gaps_have_their_cv(cv: float) -> None:
    gaps = GammaGaps(cv).gaps(np.random.default_rng(1), 200_000)
    assert gaps.mean() == pytest.approx(1, rel=0.03)
    assert gaps.std() == pytest.approx(cv, rel=0.03)


def with_course(text: str, tmp_path: Path) -> Workload:
    path = tmp_path / "w.yaml"
    path.write_text(f"scenario: D(9,9)\n{text}\n", encoding="utf-8")
    return load_workload(str(path))


def test_stages_and_ramps_follow_their_rates(tmp_path: Path) -> None:
    stages = "[{rate_rps: 5, duration_s: 400}, {rate_rps: 50, duration_s: 200}]"
    w = with_course(f"arrivals: {{rate: {{stages: {stages}}}}}", tmp_path)
    assert (w.rate_rps, w.window_s, w.peak_rate_rps) == (pytest.approx(20), 600, pytest.approx(50))
    moments = due(w.schedule(1, 600))
    assert (moments < 400).sum() == pytest.approx(2000, rel=0.1)
    assert (moments >= 400).sum() == pytest.approx(10_000, rel=0.05)
    twice = due(w.schedule(1, 600, 40))  # --rate is the mean: the shape stays
    assert (twice < 400).sum() == pytest.approx(4000, rel=0.1)
    ramp = with_course(
        "arrivals: {rate: {ramp: {from_rps: 0, to_rps: 40, duration_s: 500}}}", tmp_path
    )
    moments = due(ramp.schedule(1, 600))
    assert (moments < 250).sum() == pytest.approx(2500, rel=0.1)  # 0 to 20 per second
    assert ((moments > 500) & (moments < 600)).sum() == pytest.approx(4000, rel=0.1)


def test_a_constant_process_on_a_level_rate_is_even() -> None:
    assert np.diff(Constant().gaps(np.random.default_rng(1), 5)).tolist() == [0] * 4


def test_a_day_comes_again_and_keeps_its_mean() -> None:
    day = Day((1.0, 3.0, 2.0, 0.5), day_s=100)
    pieces = day.pieces(1)
    assert pieces.when(np.array([100.0]))[0] == pytest.approx(100)
    assert pieces.when(np.array([1000.0]))[0] == pytest.approx(1000)
    assert day.peak == pytest.approx(3 / 1.625)


def test_random_courses_have_their_figures() -> None:
    minutes = Minutes(cv=1.04, ar1=0.16, idle=0.21)
    pieces = minutes.pieces(5)
    moments = pieces.when(np.arange(1.0, 500_000.0))
    counts = np.histogram(moments, bins=np.arange(0, moments[-1], 60))[0] / 60
    assert counts.mean() == pytest.approx(1, rel=0.05)
    assert counts.std() / counts.mean() == pytest.approx(1.04, rel=0.1)
    assert (counts == 0).mean() == pytest.approx(0.21, abs=0.02)
    spells = OnOff(20, 40).pieces(5).when(np.arange(1.0, 200_000.0))
    busy = np.histogram(spells, bins=np.arange(0, spells[-1], 1.0))[0]
    assert (busy > 0).mean() == pytest.approx(1 / 3, abs=0.06)


def test_a_rate_that_ends_in_silence_sends_no_more() -> None:
    stop = Stages((10.0, 10.0), (6.0, 0.0), (6.0, 0.0))
    assert np.isinf(stop.pieces(1).when(np.array([30.0]))[0])
