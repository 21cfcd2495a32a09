"""D, played: slots, first come, first served, and a batch whose requests all get a token a step.

Steps are not played one by one: between two changes of the batch time flows, so a moment is right to half
a step. With early admission the slot is taken before prefill; one that comes late makes the KV as late,
which holds as long as P is no bottleneck itself (``coupled`` plays what is left).
"""

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from planner.models import DecodeModel, Layout, Traffic
from planner.queueing_play import assign, least
from planner.records import Floats, Ints


@dataclass(frozen=True, slots=True)
class Played:
    """What each request would see; ``tpot_s`` is nan for an answer of one token."""

    ttft_s: Floats
    tpot_s: Floats
    prefill_s: Floats
    slot_wait_s: Floats


def play_decode(decode: DecodeModel, layout: Layout, traffic: Traffic, before_s: Floats) -> Played:
    """D, for requests whose KV needs ``before_s`` to be there."""
    early = layout.admission == "early"
    ready_s = traffic.at_s + before_s
    wanted_s = traffic.at_s if early else ready_s
    order = np.argsort(wanted_s, kind="stable")
    work = (wanted_s[order], ready_s[order], traffic.output_tokens[order] - early)
    number = _decode_of(decode, layout, *work)
    wait_s, first_s, last_s = (np.empty(len(traffic)) for _ in range(3))
    for k in range(layout.decode):
        mine = order[number == k]
        part = tuple(column[number == k] for column in work)
        wait_s[mine], first_s[mine], last_s[mine] = _batches(decode, layout.cap, early, part)
    tpot_s = tpot_of(traffic.output_tokens, first_s, last_s)
    return Played(first_s - traffic.at_s, tpot_s, before_s, wait_s)


def tpot_of(outputs: Floats, first_s: Floats, last_s: Floats) -> Floats:
    """Time per output token after the first."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(outputs > 1, (last_s - first_s) / np.maximum(outputs - 1, 1), np.nan)


def _decode_of(
    decode: DecodeModel, layout: Layout, wanted_s: Floats, ready_s: Floats, steps: Floats
) -> Ints:
    """Which D each gets. Least-load compares requests; their number goes by how long each stays."""
    stay_s = ready_s - wanted_s + steps * decode.step_s(0.5 * layout.cap)
    if layout.routing_decode == "least-load" and layout.decode > 1:
        return _fewest(wanted_s, stay_s, layout.decode)
    return assign(wanted_s, stay_s, layout.decode, layout.routing_decode, seed=1)


def _fewest(at_s: Floats, stay_s: Floats, instances: int) -> Ints:
    present = [0.0] * instances
    leaving: list[tuple[float, int]] = []
    number = np.empty(len(at_s), np.int64)
    for i, (at, stay) in enumerate(zip(at_s.tolist(), stay_s.tolist(), strict=True)):
        while leaving and leaving[0][0] <= at:
            present[heappop(leaving)[1]] -= 1
        k = least(present, i)
        present[k] += 1
        number[i] = k
        heappush(leaving, (at + stay, k))
    return number


def _batches(
    model: DecodeModel, cap: int, early: bool, work: tuple[Floats, ...]
) -> tuple[Floats, Floats, Floats]:
    """One D: wait for a slot, moment of the first and of the last token of each request.

    All requests of the batch get a token in the same time, so a request that joins when each has been
    given ``v`` tokens since the start leaves when each has been given v + its own number.
    """
    asked, there, length = (column.tolist() for column in work)
    n = len(asked)
    wait, first, last = ([0.0] * n for _ in range(3))
    step_of = [max(model.step_s(b), 1e-9) for b in range(min(cap, n) + 1)]
    joins = 0.5 if early else 1.5  # steps, until a batch has the first token of who comes
    never = (float("inf"), -1)  # ends each list, so that none is ever empty
    coming = [never]  # slot taken, KV on its way: (moment, request)
    leaving = [never]  # in the batch: (v at which it leaves, request)
    asked.append(never[0])
    now = given = 0.0
    taken = head = granted = batch = 0  # ``head``: next to ask; ``granted``: next to get a slot
    while True:
        step, before = step_of[batch], now
        now, comes, asks = before + (leaving[0][0] - given) * step, coming[0][0], asked[head]
        if now <= comes and now <= asks:
            if now == never[0]:
                break
            given, k = heappop(leaving)
            last[k] = now
            batch -= 1
            taken -= 1
        else:
            now = comes if comes <= asks else asks
            if batch:
                given += (now - before) / step
            if comes > asks:
                head += 1
            else:
                k = heappop(coming)[1]
                first[k] = now + (step * joins if batch else 0.0 if early else step_of[1])
                batch += 1
                heappush(leaving, (given + length[k] + 0.5 * (batch > 1), k))
        while granted < head and taken < cap:
            asks = asked[granted]
            wait[granted] = now - asks
            heappush(coming, (there[granted] + now - asks, granted))
            taken += 1
            granted += 1
    first_s = np.array(first)
    return np.array(wait), first_s, np.maximum(last, first_s)
