"""Queues in Kendall's words; nothing here knows of language models. Times in one unit, rates in its inverse.

Where a formula's assumptions do not hold, ``simulate_waits`` plays the queue.
"""

import heapq
import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def mm1_mean_sojourn(arrival_rate: float, service_rate: float) -> float:
    """M/M/1, mean time in the system: 1 / (mu - lambda); inf when overloaded."""
    return 1 / (service_rate - arrival_rate) if arrival_rate < service_rate else math.inf


def mm1_sojourn_quantile(arrival_rate: float, service_rate: float, q: float) -> float:
    """M/M/1, quantile of the time in the system, which is exponential."""
    return -math.log1p(-q) * mm1_mean_sojourn(arrival_rate, service_rate)


def simulate_waits(
    arrivals: Floats, services: Floats, servers: int, routing: str, seed: int = 0
) -> Floats:
    """Waits of FCFS servers with a queue each (GI/G/1 per server), for arrivals in order of time.

    ``routing``: round-robin, random, or least-load (least work left, which equals one central
    queue). Exact for the arrivals given; as a forecast it has their sampling noise.
    """
    if routing == "least-load" and servers > 1:
        return _least_work(arrivals, services, servers)
    waits = np.empty(len(arrivals))
    number = np.arange(len(arrivals))
    if routing == "random":
        number = np.random.default_rng(seed).integers(0, servers, len(arrivals))
    for k in range(servers):
        mine = number % servers == k
        waits[mine] = lindley(arrivals[mine], services[mine])
    return waits


def lindley(arrivals: Floats, services: Floats) -> Floats:
    """Waits of one FCFS server, vectorised: W_n = S_n - min over k <= n of S_k, of the free walk S."""
    if not len(arrivals):
        return np.empty(0)
    steps = services[:-1] - np.diff(arrivals)
    walk = np.concatenate([[0.0], np.cumsum(steps)])
    return walk - np.minimum.accumulate(walk)


def _least_work(arrivals: Floats, services: Floats, servers: int) -> Floats:
    free = [0.0] * servers
    waits = np.empty(len(arrivals))
    for k, (arrival, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        start = max(heapq.heappop(free), arrival)
        waits[k] = start - arrival
        heapq.heappush(free, start + service)
    return waits


def ps_occupancy(arrival_rate: float, work: float, speed: Floats) -> Floats:
    """Processor sharing whose rate depends on the number present: P(n), n = 0, 1, ...

    Jobs of mean ``work`` come at ``arrival_rate``; with n present, ``speed[n - 1]`` work is done a
    unit of time in all. Poisson arrivals; the law of the work does not matter (insensitivity).
    """
    with np.errstate(divide="ignore"):
        logs = np.concatenate([[0.0], np.cumsum(np.log(arrival_rate * work / speed))])
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())
