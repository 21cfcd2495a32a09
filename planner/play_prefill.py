"""P, played: FCFS, iterations that pack up to ``chunk_tokens`` of the heads of the queue.

An iteration takes setup_s plus slope * L + square * L^2 for each prompt; all that it completes leave at
its end, so a short prompt waits for the long one beside it.
"""

import math

import numpy as np

from planner.models import PrefillModel, Traffic
from planner.queueing_play import assign
from planner.records import Floats


def prefill_s(model: PrefillModel, traffic: Traffic, instances: int, routing: str) -> Floats:
    """From arrival to KV on D, for each request: wait, iterations, overhead."""
    if routing == "least-load" and instances > 1:
        return least_loaded(model, traffic, instances) + model.overhead_s
    number = assign(traffic.at_s, traffic.input_tokens, instances, routing)
    out = np.empty(len(traffic))
    for k in range(instances):
        mine = np.flatnonzero(number == k)
        server = Packed(model)
        for at_s, tokens in zip(
            traffic.at_s[mine].tolist(), traffic.input_tokens[mine].tolist(), strict=True
        ):
            server.add(at_s, tokens)
        server.play(math.inf)
        out[mine] = server.times
    return out + model.overhead_s


def least_loaded(model: PrefillModel, traffic: Traffic, instances: int) -> Floats:
    """A router that sees the tokens each P has not finished, and takes the least; ties go round."""
    servers = [Packed(model) for _ in range(instances)]
    numbers: list[list[int]] = [[] for _ in servers]
    order = range(instances)
    for i, (at_s, tokens) in enumerate(
        zip(traffic.at_s.tolist(), traffic.input_tokens.tolist(), strict=True)
    ):
        least, k = math.inf, 0
        for j in (*order[i % instances :], *order[: i % instances]):
            server = servers[j]
            if server.pending and server.busy_until <= at_s:
                server.play(at_s)
            if server.pending < least:
                least, k = server.pending, j
        servers[k].add(at_s, tokens)
        numbers[k].append(i)
    out = np.empty(len(traffic))
    for server, mine in zip(servers, numbers, strict=True):
        server.play(math.inf)
        out[mine] = server.times
    return out


class Packed:
    """One P: FCFS, in iterations of up to ``chunk_tokens``; played as far as is asked for."""

    def __init__(self, model: PrefillModel) -> None:
        self.times: list[float] = []  # in the system, in order of arrival
        self.pending = 0.0  # tokens that are not finished
        self.busy_until = 0.0  # end of the iteration that runs
        self._figures = (model.chunk_tokens, model.setup_s, model.slope_s, model.square_s)
        self._arrivals: list[float] = []
        self._sizes: list[float] = []
        self._head = self._next = (
            0  # first not finished; first not finished when this iteration ends
        )
        self._done = 0.0  # tokens of the head that are computed
        self._running = 0.0  # tokens of the iteration that runs

    def add(self, at_s: float, tokens: float) -> None:
        """A prompt comes in."""
        self._arrivals.append(at_s)
        self._sizes.append(tokens)
        self.pending += tokens

    def play(self, until_s: float) -> None:
        """All iterations that end, and then begin, by ``until_s``."""
        arrivals, times = self._arrivals, self.times
        n = len(arrivals)
        while (now := self.busy_until) <= until_s:
            for at_s in arrivals[self._head : self._next]:
                times.append(now - at_s)
            self.pending -= self._running
            self._running = 0.0
            head = self._head = self._next
            if head >= n:
                return
            if arrivals[head] > now:
                now = arrivals[head]
                if now > until_s:
                    return
            self._begin(now)

    def _begin(self, now: float) -> None:
        arrivals, sizes = self._arrivals, self._sizes
        chunk, took, slope, square = self._figures
        room, k, n, start = chunk, self._head, len(arrivals), self._done
        while k < n and arrivals[k] <= now and room > 0:
            size, end = sizes[k], start + room
            if end < size:
                took += room * (slope + square * (end + start))
                room, start = 0.0, end
                break
            took += (size - start) * (slope + square * (size + start))
            room -= size - start
            k += 1
            start = 0.0
        self._done, self._next = start, k
        self._running = chunk - room
        self.busy_until = now + took
