"""Queues in Kendall's words; nothing here knows of language models. Times in one unit, rates in its inverse.

Where a formula's assumptions do not hold, the simulations play the queue.
"""

import heapq
import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def mm1_mean_sojourn(arrival_rate: float, service_rate: float) -> float:
    """M/M/1, mean time in the system: 1 / (mu - lambda); inf when overloaded."""
    return 1 / (service_rate - arrival_rate) if arrival_rate < service_rate else math.inf


def mm1_sojourn_quantile(arrival_rate: float, service_rate: float, q: float) -> float:
    """M/M/1, quantile of the time in the system, which is exponential."""
    return -math.log1p(-q) * mm1_mean_sojourn(arrival_rate, service_rate)


def assign(arrivals: Floats, services: Floats, servers: int, routing: str, seed: int = 0) -> Ints:
    """Which server each arrival goes to: round-robin, random, or least-load (least work left)."""
    if routing == "random":
        return np.random.default_rng(seed).integers(0, servers, len(arrivals))
    if routing == "least-load" and servers > 1:
        return _least_work(arrivals, services, servers)
    return np.arange(len(arrivals)) % servers


def simulate_sojourns(arrivals: Floats, services: Floats, number: Ints, servers: int) -> Floats:
    """Time in the system at FCFS servers with a queue each (GI/G/1 per server).

    Exact for the arrivals given; as a forecast it has their sampling noise.
    """
    sojourns = np.empty(len(arrivals))
    for k in range(servers):
        mine = number == k
        sojourns[mine] = lindley(arrivals[mine], services[mine]) + services[mine]
    return sojourns


def simulate_packed(
    arrivals: Floats, sizes: Floats, per_unit: float, pack: float, setup: float = 0.0
) -> Floats:
    """Time in the system at one FCFS server that works in iterations of up to ``pack`` units.

    An iteration takes ``setup`` + ``per_unit`` for each unit; whoever is completed by it leaves at
    its end, so a small job waits for the large one beside it. Jobs larger than ``pack`` take several.
    """
    out = np.empty(len(arrivals))
    moments, left = arrivals.tolist(), sizes.tolist()
    now, head, n = 0.0, 0, len(moments)
    while head < n:
        now = max(now, moments[head])
        room, k = pack, head
        while k < n and moments[k] <= now and room > 0:
            take = min(left[k], room)
            left[k] -= take
            room -= take
            if left[k] > 0:
                break
            k += 1
        now += setup + per_unit * (pack - room)
        for j in range(head, k):
            out[j] = now - moments[j]
        head = k
    return out


def lindley(arrivals: Floats, services: Floats) -> Floats:
    """Waits of one FCFS server, vectorised: W_n = S_n - min over k <= n of S_k, of the free walk S."""
    if not len(arrivals):
        return np.empty(0)
    steps = services[:-1] - np.diff(arrivals)
    walk = np.concatenate([[0.0], np.cumsum(steps)])
    return walk - np.minimum.accumulate(walk)


def _least_work(arrivals: Floats, services: Floats, servers: int) -> Ints:
    free = [(0.0, k) for k in range(servers)]
    number = np.empty(len(arrivals), np.int64)
    for i, (arrival, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        moment, k = heapq.heappop(free)
        number[i] = k
        heapq.heappush(free, (max(moment, arrival) + service, k))
    return number


def ps_occupancy(arrival_rate: float, work: float, speed: Floats) -> Floats:
    """Processor sharing whose rate depends on the number present: P(n), n = 0, 1, ...

    Jobs of mean ``work`` come at ``arrival_rate``; with n present, ``speed[n - 1]`` work is done a
    unit of time in all. Poisson arrivals; the law of the work does not matter (insensitivity).
    """
    with np.errstate(divide="ignore"):
        logs = np.concatenate([[0.0], np.cumsum(np.log(arrival_rate * work / speed))])
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())
