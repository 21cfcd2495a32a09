"""P and D in one play, for early admission: a slot of D is held while P works, so each holds up the other.

Events in order of time: a request comes and asks a D for a slot; with the slot it goes to a P; an
iteration of P ends; KV arrives and the request joins the batch; a request has its last token and gives
the slot back.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import numpy as np

from planner.models import DecodeModel, Layout, PrefillModel, Traffic
from planner.play_decode import Played, tpot_of
from planner.play_prefill import Packed
from planner.queueing_play import least

Handler = Callable[[float, Any], None]


def play_coupled(
    prefill: PrefillModel, decode: DecodeModel, layout: Layout, traffic: Traffic
) -> Played:
    """Every request from its arrival to its last token."""
    return _Cluster(prefill, decode, layout, traffic).play()


class _Batch:
    """One D: who waits for a slot, who decodes."""

    def __init__(self) -> None:
        self.waiting: deque[int] = deque()
        self.leaving: list[tuple[float, int]] = []  # (tokens given by then, request)
        self.taken = 0
        self.given = 0.0  # tokens that each of the batch was given since the start
        self.since = 0.0
        self.version = 0


class _Cluster:
    def __init__(
        self, prefill: PrefillModel, decode: DecodeModel, layout: Layout, traffic: Traffic
    ) -> None:
        self._servers = [Packed(prefill) for _ in range(layout.prefill)]
        self._of: list[deque[int]] = [deque() for _ in self._servers]
        self._batches = [_Batch() for _ in range(layout.decode)]
        self._layout, self._traffic, self._overhead = layout, traffic, prefill.overhead_s
        n = len(traffic)
        self._tokens, self._outputs = traffic.input_tokens.tolist(), traffic.output_tokens.tolist()
        self._steps = [max(decode.step_s(b), 1e-9) for b in range(min(layout.cap, n) + 1)]
        self._decode_of = [0] * n
        self._granted, self._ready, self._first, self._last = ([math.nan] * n for _ in range(4))
        self._events: list[tuple[float, int, Handler, Any]] = []
        self._order = count()
        self._rng = Random(1)

    def play(self) -> Played:
        at_s = self._traffic.at_s
        events = self._events
        for i, at in enumerate(at_s.tolist()):
            while events and events[0][0] <= at:
                moment, _, handler, subject = heappop(events)
                handler(moment, subject)
            self._arrive(at, i)
        while events:
            moment, _, handler, subject = heappop(events)
            handler(moment, subject)
        granted_s, first_s = np.array(self._granted), np.array(self._first)
        tpot_s = tpot_of(self._traffic.output_tokens, first_s, np.array(self._last))
        before_s = np.array(self._ready) - granted_s
        return Played(first_s - at_s, tpot_s, before_s, granted_s - at_s)

    def _push(self, moment: float, handler: Handler, subject: Any) -> None:
        heappush(self._events, (moment, next(self._order), handler, subject))

    def _pick(self, routing: str, n: int, loads: Iterator[float], turn: int) -> int:
        if routing == "random":
            return self._rng.randrange(n)
        return least(list(loads), turn) if routing == "least-load" else turn % n

    def _arrive(self, now: float, i: int) -> None:
        batches = self._batches
        loads = (b.taken + float(len(b.waiting)) for b in batches)
        k = self._decode_of[i] = self._pick(self._layout.routing_decode, len(batches), loads, i)
        batches[k].waiting.append(i)
        self._grant(now, batches[k])

    def _grant(self, now: float, batch: _Batch) -> None:
        while batch.waiting and batch.taken < self._layout.cap:
            i = batch.waiting.popleft()
            batch.taken += 1
            self._granted[i] = now
            self._to_prefill(now, i)

    def _to_prefill(self, now: float, i: int) -> None:
        loads = (server.pending for server in self._servers)
        k = self._pick(self._layout.routing_prefill, len(self._servers), loads, i)
        server = self._servers[k]
        idle = server.busy_until <= now and not self._of[k]
        self._of[k].append(i)
        server.add(now, self._tokens[i])
        if idle:
            server.play(now)
            self._push(server.busy_until, self._iteration_ends, k)

    def _iteration_ends(self, now: float, k: int) -> None:
        server, mine = self._servers[k], self._of[k]
        before = len(server.times)
        server.play(now)
        for _ in range(len(server.times) - before):
            i = mine.popleft()
            self._ready[i] = now + self._overhead
            self._push(now + self._overhead, self._join, i)
        if mine:
            self._push(server.busy_until, self._iteration_ends, k)

    def _join(self, now: float, i: int) -> None:
        batch = self._batches[self._decode_of[i]]
        leaving, steps = batch.leaving, self._steps
        self._flow(now, batch)
        half = 0.5 if leaving else 0.0
        self._first[i] = now + half * steps[min(len(leaving), len(steps) - 1)]
        heappush(leaving, (batch.given + half + self._outputs[i] - 1, i))
        self._expect(now, batch)

    def _flow(self, now: float, batch: _Batch) -> None:
        if batch.leaving:
            batch.given += (now - batch.since) / self._steps[len(batch.leaving)]
        batch.since = now

    def _expect(self, now: float, batch: _Batch) -> None:
        batch.version += 1
        if leaving := batch.leaving:
            left = max(leaving[0][0] - batch.given, 0.0)
            moment = now + left * self._steps[len(leaving)]
            self._push(moment, self._leave, (batch, batch.version))

    def _leave(self, now: float, subject: tuple[_Batch, int]) -> None:
        batch, version = subject
        if version != batch.version:
            return
        self._flow(now, batch)
        batch.given, i = heappop(batch.leaving)
        self._last[i] = max(now, self._first[i])
        batch.taken -= 1
        self._expect(now, batch)
        self._grant(now, batch)
