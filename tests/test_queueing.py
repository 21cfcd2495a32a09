"""Queues: formulas against published tables, against each other, and against the queue played."""

import math

import numpy as np
import pytest
from scipy.special import ndtri

from planner.queueing import (
    erlang_c,
    mg1_sojourn_quantile,
    mgk_sojourn_quantile,
    mm1_mean_sojourn,
    mm1_sojourn_quantile,
    shared_slots,
)
from planner.queueing_play import Floats, assign, lindley, simulate_sojourns

MEAN = 1434 / 12_000  # s: the template's prompt


def law(cv: float, n: int = 20_000) -> Floats:
    """Service times, lognormal: quantiles in a random order, so that there is no noise in the law."""
    sigma2 = math.log1p(cv * cv)
    times = MEAN * np.exp(math.sqrt(sigma2) * ndtri((np.arange(n) + 0.5) / n) - sigma2 / 2)
    return np.random.default_rng(3).permutation(times)


def poisson(rate: float, n: int, seed: int = 0) -> Floats:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, n))


# utilisation: P99 in ms of M/M/1, M/D/1, and M/G/1 with lognormal services of cv 0.5 and 1
SINGLE = {
    0.1: (611, 233, 364, 669),
    0.3: (786, 345, 480, 887),
    0.5: (1100, 518, 681, 1241),
    0.6: (1375, 660, 854, 1532),
    0.7: (1834, 894, 1142, 2003),
    0.8: (2751, 1356, 1717, 2923),
    0.9: (5502, 2735, 3437, 5658),
    0.95: (11_003, 5488, 6876, 11_145),
}


@pytest.mark.parametrize("rho", SINGLE)
def test_one_server(rho: float) -> None:
    rate = rho / MEAN
    assert 1000 * mm1_sojourn_quantile(rate, 1 / MEAN, 0.99) == pytest.approx(
        SINGLE[rho][0], rel=0.01
    )
    for cv, ms in zip((0.0, 0.5, 1.0), SINGLE[rho][1:], strict=True):
        assert 1000 * mg1_sojourn_quantile(rate, law(cv), 0.99) == pytest.approx(ms, rel=0.01)


def test_pollaczek_khinchine_is_exact_for_exponential_services_and_takes_a_histogram() -> None:
    n = 20_000
    exponential = -np.log1p(-(np.arange(n) + 0.5) / n)
    assert mg1_sojourn_quantile(0.7, exponential, 0.99) == pytest.approx(
        mm1_sojourn_quantile(0.7, 1, 0.99), rel=0.01
    )
    values, counts = np.array([1.0, 3.0]), np.array([3.0, 1.0])
    spelt_out = mg1_sojourn_quantile(0.4, np.array([1.0, 1.0, 1.0, 3.0]), 0.9)
    assert mg1_sojourn_quantile(0.4, values, 0.9, counts) == pytest.approx(spelt_out)


def test_pollaczek_khinchine_agrees_with_the_queue_played() -> None:
    at, services = poisson(0.6 / MEAN, 200_000), law(0.5, 200_000)
    played = lindley(at, services) + services
    assert np.quantile(played, 0.99) == pytest.approx(
        mg1_sojourn_quantile(0.6 / MEAN, services, 0.99), rel=0.03
    )


# cv, servers: P99 in ms at 20/s by random, round-robin, shortest-queue, least-work
ROUTED = {
    (0.0, 3): (1321, 510, 521, 506),
    (0.0, 4): (652, 237, 237, 238),
    (0.5, 4): (836, 462, 401, 355),
    (1.0, 4): (1517, 1153, 754, 638),
}


@pytest.mark.parametrize(("cv", "servers"), ROUTED)
def test_routing_over_several_servers(cv: float, servers: int) -> None:
    n = 60_000
    at, services = poisson(20, n, seed=5), law(cv, n)
    names = ("random", "round-robin", "shortest-queue", "least-work")
    for routing, ms in zip(names, ROUTED[cv, servers], strict=True):
        number = assign(at, services, servers, routing, seed=1)
        p99_s = np.quantile(simulate_sojourns(at, services, number, servers), 0.99)
        # The table and this play have noise of their own, which grows with utilisation and cv.
        noise = 0.08 if servers == 3 or cv == 1 else 0.04 if routing == "random" else 0.03
        assert 1000 * p99_s == pytest.approx(ms, rel=noise), routing


def test_random_routing_is_as_many_single_servers() -> None:
    n = 200_000
    at, services = poisson(20, n), law(0.5, n)
    played = simulate_sojourns(at, services, assign(at, services, 4, "random"), 4)
    assert np.quantile(played, 0.99) == pytest.approx(
        mg1_sojourn_quantile(5, services, 0.99), rel=0.04
    )


LEAST_WORK = {(0.0, 4): 238, (0.3, 4): 277, (0.5, 3): 651, (0.5, 5): 327, (1.0, 4): 638}


@pytest.mark.parametrize(("cv", "servers"), LEAST_WORK)
def test_allen_cunneen_is_close_to_least_work(cv: float, servers: int) -> None:
    ms = 1000 * mgk_sojourn_quantile(20, law(cv), servers, 0.99)
    least_work = LEAST_WORK[cv, servers]
    assert ms == pytest.approx(least_work, rel=0.05)


def test_erlang_c_as_tabulated() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(5, 4) == pytest.approx(0.5541, abs=1e-4)
    assert erlang_c(2, 2) == 1


def test_a_seed_gives_the_same_random_routing() -> None:
    at, services = poisson(1, 50), law(0.5, 50)
    first, again, other = (assign(at, services, 3, "random", seed) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


def test_overload_has_no_quantile() -> None:
    assert mm1_mean_sojourn(2, 1) == math.inf
    assert mg1_sojourn_quantile(2, np.array([1.0]), 0.99) == math.inf
    assert mgk_sojourn_quantile(4, np.array([1.0]), 3, 0.99) == math.inf
    assert shared_slots(2, 1, np.array([1.0])).wait_quantile == math.inf


# arrivals/s, slots: mean step and P99 step in ms, share that waits, P99 wait in s
SLOTS = [
    (4.0, 64, 15.7, 20.3, 0.000, 0.0),
    (4.5, 64, 17.7, 22.9, 0.015, 0.429),
    (5.0, 64, 20.2, 22.9, 0.20, 6.4),
    (5.0, 400, 20.3, 27.0, 0.0, 0.0),
]


@pytest.mark.parametrize(("rate", "slots", "mean_ms", "p99_ms", "waits", "wait_s"), SLOTS)
def test_slots_that_share_a_processor(
    rate: float, slots: int, mean_ms: float, p99_ms: float, waits: float, wait_s: float
) -> None:
    steps = 0.008 + 0.000232 * np.arange(1, slots + 1)
    seen = shared_slots(rate, 512, steps)
    assert 1000 * seen.mean_step == pytest.approx(mean_ms, rel=0.01)
    assert 1000 * seen.step_quantile == pytest.approx(p99_ms, rel=0.01)
    assert seen.waits == pytest.approx(waits, abs=0.005)
    assert seen.wait_quantile == pytest.approx(wait_s, rel=0.03)


def test_one_slot_is_one_server() -> None:
    seen = shared_slots(0.6, 1, np.array([1.0]))
    assert seen.waits == pytest.approx(0.6)
    assert seen.wait_quantile == pytest.approx(math.log(60) / 0.4)  # M/M/1
