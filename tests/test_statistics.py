"""Percentiles and how sure they are: closed forms, the table of sample sizes, coverage on queues."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner.queueing_play import lindley
from planner.statistics import (
    autocorrelation_time,
    batch_interval,
    effective_size,
    growth,
    mser5,
    nearest_rank,
    quantile_interval,
    rate_interval,
    samples_to_pass,
)

Floats = NDArray[np.float64]


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([80.0] + [20.0] * 29, 0.99, 80.0),  # F63: numpy's default gives 62.6
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 101)), 0.5, 50),
        ([100.0] * 1000 + [4000.0] * 20, 0.99, 4000.0),  # F60: with the ramp
        ([1049.0] * 50, 0.99, 1049.0),  # F61: never rounded
        ([7.0], 0.99, 7.0),
    ],
)
def test_nearest_rank(values: list[float], q: float, expected: float) -> None:
    assert nearest_rank(np.array(values, float), q) == expected


def test_no_value_no_percentile() -> None:
    assert math.isnan(nearest_rank(np.empty(0), 0.99))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.floats(0.01, 1))
def test_nearest_rank_is_one_of_the_values_and_covers_its_share(
    values: list[float], q: float
) -> None:
    x = np.array(values)
    found = nearest_rank(x, q)
    assert found in values
    assert (x <= found).mean() >= q - 1e-6
    assert (x < found).mean() < q + 1e-6


@pytest.mark.parametrize(
    ("violations", "needed"),
    [(0, 299), (1, 473), (2, 628), (3, 773), (4, 913), (5, 1049), (10, 1693)],
)
def test_how_many_samples_a_pass_needs(violations: int, needed: int) -> None:
    assert samples_to_pass(0.01, violations) == needed


@pytest.mark.parametrize(
    ("n", "sure"), [(100, 4), (200, 6), (500, 10), (1000, 16), (2000, 29), (5000, 63)]
)
def test_how_many_violations_a_fail_needs(n: int, sure: int) -> None:
    assert rate_interval(sure, n)[0] > 0.01
    assert rate_interval(sure - 1, n)[0] <= 0.01


@given(st.integers(1, 5000), st.floats(0, 1))
def test_the_interval_of_a_rate_holds_the_rate(n: int, share: float) -> None:
    low, high = rate_interval(share * n, n)
    assert 0 <= low <= share + 1e-9
    assert share - 1e-9 <= high <= 1


def test_independent_samples_are_worth_themselves_and_copies_nothing() -> None:
    rng = np.random.default_rng(1)
    x = rng.exponential(size=20_000)
    assert effective_size(x) == pytest.approx(20_000, rel=0.15)
    assert effective_size(np.repeat(x[:2000], 10)) == pytest.approx(2000, rel=0.15)


@pytest.mark.parametrize("phi", [0.5, 0.9, 0.98])
def test_the_autocorrelation_time_of_ar1(phi: float) -> None:
    rng = np.random.default_rng(2)
    x = np.empty(100_000)
    x[0] = 0.0
    noise = rng.normal(size=len(x))
    for k in range(1, len(x)):
        x[k] = phi * x[k - 1] + noise[k]
    assert autocorrelation_time(x) == pytest.approx((1 + phi) / (1 - phi), rel=0.15)
    long = np.tile(x, 2)  # beyond MAX_SERIES: over the means of neighbours
    assert autocorrelation_time(long) == pytest.approx((1 + phi) / (1 - phi), rel=0.4, abs=1)


def test_mser5_cuts_the_ramp_and_leaves_a_flat_series() -> None:
    rng = np.random.default_rng(3)
    ramp = np.concatenate([np.linspace(0, 50, 60), np.full(140, 50.0)]) + rng.normal(0, 1, 200)
    assert 50 <= mser5(ramp) <= 70
    assert mser5(50 + rng.normal(0, 1, 200)) <= 100
    assert mser5(np.arange(7.0)) == 0


def test_growth_tells_a_ramp_from_noise() -> None:
    rng = np.random.default_rng(4)
    assert growth(np.arange(1000.0)).at_least == pytest.approx(900)
    assert growth(rng.normal(size=1000)).at_least < 0


def test_ten_batches_without_a_violation_pass() -> None:
    assert batch_interval(np.zeros(300, bool)) == (0.0, 0.0)


# -- coverage on a queue -----------------------------------------------------------------------------


def ttfts(instances: int, n: int, seed: int) -> Floats:
    """TTFT of the template: 20 requests a second, lengths of cv 0.5, round-robin over FCFS servers."""
    rng = np.random.default_rng(seed)
    settle, spread = 2000, math.log(1 + 0.5**2)
    due = np.cumsum(rng.exponential(1 / 20, n + settle))
    tokens = rng.lognormal(math.log(1434) - spread / 2, math.sqrt(spread), n + settle)
    service, out = tokens / 12_000, np.empty(n + settle)
    for k in range(instances):
        out[k::instances] = (
            lindley(due[k::instances], service[k::instances]) + service[k::instances]
        )
    return out[settle:]


TRUE_P99_S = {4: 0.457, 3: 0.875}  # utilisation 0.6 and 0.8; from 4 million requests


def coverage(instances: int, runs: int) -> float:
    """The share of runs of 12,000 requests whose 95 % interval of P99 holds the true one."""
    truth, held = TRUE_P99_S[instances], 0
    for seed in range(runs):
        x = ttfts(instances, 12_000, seed)
        low, high = quantile_interval(x, 0.99, effective_size(x))
        held += low <= truth and not truth > high  # nan: no bound on that side
    return held / runs


@pytest.mark.full
@pytest.mark.parametrize("instances", TRUE_P99_S)
def test_the_true_p99_is_that_of_a_long_run(instances: int) -> None:
    long = nearest_rank(ttfts(instances, 2_000_000, 99), 0.99)
    assert long == pytest.approx(TRUE_P99_S[instances], rel=0.02)


@pytest.mark.full
@pytest.mark.parametrize(("instances", "low", "high"), [(4, 0.90, 0.98), (3, 0.85, 1.0)])
def test_the_interval_covers_the_truth_in_300_runs(instances: int, low: float, high: float) -> None:
    assert low <= coverage(instances, 300) <= high


@pytest.mark.parametrize("instances", TRUE_P99_S)
def test_the_interval_covers_the_truth_in_nine_of_ten_runs(instances: int) -> None:
    assert coverage(instances, 40) >= 0.9
