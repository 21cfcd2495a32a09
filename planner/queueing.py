"""Queues in Kendall's words; nothing here knows of language models. Times in one unit, rates in its inverse.

Formulas; where their assumptions do not hold, ``queueing_play`` plays the queue.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CELLS = 32_768  # of the lattice on which P-K is inverted
DAMPED = 1e-8  # what an alias of the inversion is weighed with
LAW = 512  # quantiles that stand for a law of service times


def mm1_mean_sojourn(arrival_rate: float, service_rate: float) -> float:
    """M/M/1, mean time in the system: 1 / (mu - lambda); inf when overloaded."""
    return 1 / (service_rate - arrival_rate) if arrival_rate < service_rate else math.inf


def mm1_sojourn_quantile(arrival_rate: float, service_rate: float, q: float) -> float:
    """M/M/1, quantile of the time in the system, which is exponential.

    For a service law that is not: 2 times too high for a fixed one, 60 % at cv 0.5, 3 to 14 % too
    low for a lognormal of cv 1.
    """
    return -math.log1p(-q) * mm1_mean_sojourn(arrival_rate, service_rate)


def mg1_sojourn_quantile(
    arrival_rate: float, services: Floats, q: float, weights: Floats | None = None
) -> float:
    """M/G/1, FCFS, quantile of the time in the system, for any sample or histogram of service times.

    Pollaczek-Khinchine: the wait is (1 - rho) / (1 - rho * residual service) as a transform, inverted
    by a damped FFT in about 3 ms. Within 3 % of a simulation up to rho 0.9. inf when overloaded.
    """
    share = np.full(len(services), 1 / len(services)) if weights is None else weights
    share = share / share.sum()
    mean, second = float(share @ services), float(share @ services**2)
    rho = arrival_rate * mean
    if rho >= 1:
        return math.inf
    wait = second / mean / 2 / (1 - rho)  # mean of those that wait
    tail = max(math.log(rho / (1 - q)), 0.0) if rho > 0 else 0.0
    cell = (float(services.max()) + wait * (4 + 2 * tail)) / CELLS
    law = _on_lattice(services / cell, share)
    alive = 1 - np.concatenate([[0.0], np.cumsum(law)])
    residual = 0.5 * (alive[:-1] + alive[1:])  # cell k: from k - 1/2 to k + 1/2
    residual[0] = 0.5 * alive[1]
    residual /= residual.sum()
    damping = DAMPED ** (np.arange(CELLS) / CELLS)
    service_z = np.fft.rfft(law * damping)
    residual_z = np.fft.rfft(residual * damping)
    sojourn = np.fft.irfft(service_z * (1 - rho) / (1 - rho * residual_z), CELLS) / damping
    return cell * _quantile_of(sojourn, q)


def _on_lattice(services: Floats, share: Floats) -> Floats:
    """Each time is split between the two cells around it, so that the mean stays."""
    low = np.floor(services).astype(np.int64)
    part = services - low
    law = np.bincount(low, share * (1 - part), CELLS + 1)
    law += np.bincount(low + 1, share * part, CELLS + 1)
    return np.asarray(law[:CELLS], float)


def _quantile_of(law: Floats, q: float) -> float:
    below = np.cumsum(law)
    k = int(np.searchsorted(below, q))
    if k == 0 or k >= len(below):
        return float(k)
    return float(k - 1 + (q - below[k - 1]) / max(below[k] - below[k - 1], 1e-15))


def erlang_c(servers: int, load: float) -> float:
    """M/M/k, probability of a wait, at a load of lambda / mu; 1 when overloaded."""
    if load >= servers:
        return 1.0
    blocked = 1.0  # Erlang B, by its recursion
    for k in range(1, servers + 1):
        blocked = load * blocked / (k + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def mgk_sojourn_quantile(
    arrival_rate: float, services: Floats, servers: int, q: float, arrival_cv: float = 1.0
) -> float:
    """GI/G/k with one queue, quantile of the time in the system; inf when overloaded.

    Allen-Cunneen: P(wait) is Erlang's, the wait of those who wait exponential with the M/M/k mean
    times (ca^2 + cs^2) / 2; convolved with the service law. Within 5 % of least-work routing for
    Poisson arrivals, -13 to +11 % at an arrival cv of 2.
    """
    mean = float(services.mean())
    load = arrival_rate * mean
    if load >= servers:
        return math.inf
    waits = erlang_c(servers, load)
    spread = (arrival_cv**2 + float(services.var()) / mean**2) / 2
    scale = spread * mean / (servers - load)
    law = np.quantile(services, (np.arange(LAW) + 0.5) / LAW)

    def beyond(t: float) -> float:
        late = law > t
        waiting = np.exp(-np.maximum(t - law, 0.0) / max(scale, 1e-12 * mean))
        return float(np.where(late, 1.0, waits * waiting).mean())

    low, high = 0.0, float(law[-1]) + scale * -math.log1p(-q)
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if beyond(middle) > 1 - q else (low, middle)
    return high


def ps_occupancy(arrival_rate: float, work: float, speed: Floats) -> Floats:
    """Processor sharing whose rate depends on the number present: P(n), n = 0, 1, ...

    Jobs of mean ``work`` come at ``arrival_rate``; with n present, ``speed[n - 1]`` work is done a
    unit of time in all. Poisson arrivals; the law of the work does not matter (insensitivity).
    """
    with np.errstate(divide="ignore"):
        logs = np.concatenate([[0.0], np.cumsum(np.log(arrival_rate * work / speed))])
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True)
class SharedSlots:
    """A processor that is shared by those in its slots; others wait, first come, first served."""

    utilisation: float
    mean_step: float
    step_quantile: float
    waits: float  # share of arrivals
    wait_quantile: float


def shared_slots(arrival_rate: float, work: float, steps: Floats, q: float = 0.99) -> SharedSlots:
    """M/G/PS with ``len(steps)`` slots: with n in them each gets a unit of work in ``steps[n - 1]``.

    The mean step is within 2 % of a simulation and its quantile within 4 %; the wait, which takes
    departures from full slots to be exponential, is an order of magnitude above utilisation 0.9.
    """
    slots = len(steps)
    n = np.arange(1, slots + 1)
    speed = n / steps
    rho = arrival_rate * work / float(speed[-1])
    if rho >= 1:
        return SharedSlots(rho, float(steps[-1]), float(steps[-1]), 1.0, math.inf)
    present = ps_occupancy(arrival_rate, work, speed)
    present[-1] /= 1 - rho  # the queue behind full slots is geometric
    present /= present.sum()
    done = present[1:] * speed  # work by the number that shared
    ranks = np.cumsum(done) / done.sum()
    waits = float(present[-1])
    leave = float(speed[-1]) / work * (1 - rho)
    return SharedSlots(
        rho,
        float(present[1:] @ n / done.sum()),
        float(steps[min(int(np.searchsorted(ranks, q)), slots - 1)]),
        waits,
        max(math.log(waits / (1 - q)), 0.0) / leave if waits > 0 else 0.0,
    )
