"""Queues played from given arrivals and services, where no formula holds. Times in one unit.

Exact for the arrivals given; as a forecast they have the arrivals' sampling noise. Play the numbers
of servers that are to be compared with the same arrivals and services (common random numbers).
"""

import heapq
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def assign(arrivals: Floats, services: Floats, servers: int, routing: str, seed: int = 0) -> Ints:
    """Which FCFS server each arrival goes to.

    round-robin; random; least-work (of which least-load is the other name), which is one queue for
    all servers; shortest-queue, by the number present; ties go round.
    """
    if routing == "random":
        return np.random.default_rng(seed).integers(0, servers, len(arrivals))
    if servers > 1 and routing in ("least-load", "least-work"):
        return _least_work(arrivals, services, servers)
    if servers > 1 and routing == "shortest-queue":
        return _shortest_queue(arrivals, services, servers)
    return np.arange(len(arrivals)) % servers


def least(loads: list[float], turn: int) -> int:
    """Which one has the least; of those that have as little, the first from ``turn`` on, round and round."""
    first = turn % len(loads)
    in_turn = loads[first:] + loads[:first]
    return (first + in_turn.index(min(in_turn))) % len(loads)


def simulate_sojourns(arrivals: Floats, services: Floats, number: Ints, servers: int) -> Floats:
    """Time in the system at FCFS servers with a queue each (GI/G/1 per server)."""
    sojourns = np.empty(len(arrivals))
    by_server = np.argsort(number, kind="stable")
    ends = np.searchsorted(number[by_server], np.arange(servers + 1))
    for first, last in pairwise(ends):
        mine = by_server[first:last]
        sojourns[mine] = lindley(arrivals[mine], services[mine]) + services[mine]
    return sojourns


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
        moment, k = free[0]
        number[i] = k
        heapq.heapreplace(free, (max(moment, arrival) + service, k))
    return number


def _shortest_queue(arrivals: Floats, services: Floats, servers: int) -> Ints:
    present, free = [0.0] * servers, [0.0] * servers
    leaving: list[tuple[float, int]] = []
    number = np.empty(len(arrivals), np.int64)
    for i, (arrival, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        while leaving and leaving[0][0] <= arrival:
            present[heapq.heappop(leaving)[1]] -= 1
        k = least(present, i)
        present[k] += 1
        free[k] = max(free[k], arrival) + service
        heapq.heappush(leaving, (free[k], k))
        number[i] = k
    return number
