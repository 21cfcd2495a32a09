"""The whole way of a request, played: P queue, KV transfer, D slot, decode batch.

One model for both ends of the planner's work: calibration fits its figures to a run, prediction plays
it at another size. What it assumes:

P      FCFS, iterations that pack up to ``chunk_tokens`` of the heads of the queue; one iteration takes
       ``setup_s`` plus slope * L + square * L^2 for each prompt; all that it completes leave at its end
D      all requests of a batch get a token a step; a step takes alpha + beta * batch + bend * batch^2, at
       the context lengths of the run. Steps are not played one by one: between two changes of the batch
       time flows, so a moment is right to half a step
early  (SGLang) a slot of D is taken before prefill starts, and held from then on; P makes the first token
       sequential  (vLLM) the slot is taken when the prompt is done; D makes the first token

What is left out: KV memory, failures, an uneven router, P idling because D has no slot (a deployment
where that happens is over its limits anyway).
"""

import math
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

import numpy as np

from planner.queueing import assign
from planner.records import Floats, Ints

Routing = Literal["random", "round-robin", "least-load"]
DEFAULT_CHUNK_TOKENS = 8192.0  # SGLang's and vLLM's on large GPUs
STABLE = 0.95  # of P's capacity


@dataclass(frozen=True, slots=True)
class PrefillModel:
    """S(L) = setup_s + slope_s * L + square_s * L^2 on P, and overhead_s (network, transfer) off it."""

    slope_s: float
    overhead_s: float = 0.0
    setup_s: float = 0.0
    square_s: float = 0.0
    chunk_tokens: float = DEFAULT_CHUNK_TOKENS
    source: str = "given"

    def service_s(self, tokens: Floats) -> Floats:
        """How long P is busy with a prompt that is alone."""
        iterations = np.maximum(np.ceil(tokens / self.chunk_tokens), 1)
        return np.asarray(
            self.setup_s * iterations + self.slope_s * tokens + self.square_s * tokens**2
        )

    def utilisation(self, traffic: "Traffic", instances: int) -> float:
        """Work offered over work that can be done."""
        return self.work_s(traffic.input_tokens) * traffic.rate_rps / instances

    def work_s(self, tokens: Floats) -> float:
        """Mean work of a prompt when iterations are well filled, which they are in a queue."""
        filled = self.setup_s * float(tokens.mean()) / self.chunk_tokens
        return filled + float((self.slope_s * tokens + self.square_s * tokens**2).mean())


@dataclass(frozen=True, slots=True)
class DecodeModel:
    """t(b) = alpha_s + beta_s * b + bend_s * b^2; ``seen_batch`` is the largest that was seen, and
    ``pinned`` whether the batch stayed at it, as one does that is held there."""

    alpha_s: float
    beta_s: float
    bend_s: float = 0.0
    seen_batch: float = 0.0
    source: str = "given"
    pinned: bool = False

    def step_s(self, batch: float) -> float:
        """One step at this batch."""
        return self.alpha_s + self.beta_s * batch + self.bend_s * batch * batch

    def largest_batch(self, tpot_slo_s: float, at_most: int = 4096) -> int:
        """Largest batch whose step is within the limit; 0: none."""
        if self.step_s(1) > tpot_slo_s:
            return 0
        low, high = 1, at_most
        while low < high:
            middle = (low + high + 1) // 2
            if self.step_s(middle) <= tpot_slo_s * (1 + 1e-9):
                low = middle
            else:
                high = middle - 1
        return low


@dataclass(frozen=True, slots=True)
class Layout:
    """A deployment as the model sees it."""

    prefill: int
    decode: int
    cap: int
    routing_prefill: str = "round-robin"
    routing_decode: str = "round-robin"
    admission: str = "early"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What comes in, in order of time."""

    at_s: Floats
    input_tokens: Floats  # effective
    output_tokens: Floats

    def __len__(self) -> int:
        return len(self.at_s)

    @property
    def rate_rps(self) -> float:
        """Mean over the whole."""
        span_s = float(self.at_s[-1] - self.at_s[0]) if len(self) > 1 else 1.0
        return max(len(self) - 1, 1) / max(span_s, 1e-9)

    def faster(self, factor: float) -> "Traffic":
        """The same requests at ``factor`` times the rate."""
        return Traffic(self.at_s / factor, self.input_tokens, self.output_tokens)

    def first(self, n: int) -> "Traffic":
        """The first ``n``."""
        return Traffic(self.at_s[:n], self.input_tokens[:n], self.output_tokens[:n])


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
        for server in servers:
            if server.busy_until <= at_s:
                server.play(at_s)
        k = min(order, key=lambda j, i=i: (servers[j].pending, (j - i) % instances))  # type: ignore[misc]
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
        self._model = model
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
        arrivals = self._arrivals
        while self.busy_until <= until_s:
            now = self.busy_until
            for j in range(self._head, self._next):
                self.times.append(now - arrivals[j])
            self.pending -= self._running
            self._running = 0.0
            self._head = self._next
            if self._head >= len(arrivals):
                return
            now = max(now, arrivals[self._head])
            if now > until_s:
                return
            self._begin(now)

    def _begin(self, now: float) -> None:
        model, arrivals, sizes = self._model, self._arrivals, self._sizes
        room, took, k, n = model.chunk_tokens, model.setup_s, self._head, len(self._arrivals)
        start = self._done
        while k < n and arrivals[k] <= now and room > 0:
            size = sizes[k]
            end = min(size, start + room)
            took += (end - start) * (model.slope_s + model.square_s * (end + start))
            room -= end - start
            if end < size:
                start = end
                break
            k += 1
            start = 0.0
        self._done, self._next = start, k
        self._running = model.chunk_tokens - room
        self.busy_until = now + took


@dataclass(frozen=True, slots=True)
class Played:
    """What each request would see; ``tpot_s`` is nan for an answer of one token."""

    ttft_s: Floats
    tpot_s: Floats
    prefill_s: Floats
    slot_wait_s: Floats


def play(prefill: PrefillModel, decode: DecodeModel, layout: Layout, traffic: Traffic) -> Played:
    """The whole pipeline. Beyond capacity the figures grow with the length of ``traffic``."""
    before_s = prefill_s(prefill, traffic, layout.prefill, layout.routing_prefill)
    again_s = before_s
    if prefill.utilisation(traffic, layout.prefill) > STABLE:
        # A slot that comes late does not delay the KV of a P that is behind anyway.
        again_s = prefill.service_s(traffic.input_tokens) + prefill.overhead_s
    return play_decode(decode, layout, traffic, before_s, again_s)


def play_decode(
    decode: DecodeModel, layout: Layout, traffic: Traffic, before_s: Floats, again_s: Floats
) -> Played:
    """D, for requests whose KV is there ``before_s`` after they came, and with early admission not
    sooner than ``again_s`` after they got a slot."""
    early = layout.admission == "early"
    ready_s = traffic.at_s + before_s
    wanted_s = traffic.at_s if early else ready_s
    order = np.argsort(wanted_s, kind="stable")
    after_s = again_s if early else np.zeros(len(traffic))
    work = (wanted_s[order], ready_s[order], after_s[order], traffic.output_tokens[order] - early)
    number = _decode_of(decode, layout, work)
    wait_s, first_s, last_s = (np.empty(len(traffic)) for _ in range(3))
    for k in range(layout.decode):
        mine = order[number == k]
        part = tuple(column[number == k] for column in work)
        wait_s[mine], first_s[mine], last_s[mine] = _batches(decode, layout.cap, early, part)
    steps = traffic.output_tokens - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot_s = np.where(steps > 0, (last_s - first_s) / np.where(steps > 0, steps, 1), np.nan)
    return Played(first_s - traffic.at_s, tpot_s, before_s, wait_s)


def _decode_of(
    decode: DecodeModel, layout: Layout, work: tuple[Floats, Floats, Floats, Floats]
) -> Ints:
    """Which D each gets. Least-load compares requests; their number goes by how long each stays."""
    wanted_s, ready_s, _, steps = work
    stay_s = ready_s - wanted_s + steps * decode.step_s(0.5 * layout.cap)
    if layout.routing_decode == "least-load" and layout.decode > 1:
        return _fewest(wanted_s, stay_s, layout.decode)
    return assign(wanted_s, stay_s, layout.decode, layout.routing_decode, seed=1)


def _fewest(at_s: Floats, stay_s: Floats, instances: int) -> Ints:
    present = [0] * instances
    leaving: list[tuple[float, int]] = []
    number = np.empty(len(at_s), np.int64)
    for i, (at, stay) in enumerate(zip(at_s.tolist(), stay_s.tolist(), strict=True)):
        while leaving and leaving[0][0] <= at:
            present[heappop(leaving)[1]] -= 1
        k = min(range(instances), key=lambda j: (present[j], (j - i) % instances))
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
    asked, there, after, length = (column.tolist() for column in work)
    n = len(asked)
    wait, first, last = np.empty(n), np.empty(n), np.empty(n)
    sizes = range(min(cap, n) + 1)
    step_of = [max(model.step_s(b), 1e-9) for b in sizes]
    coming: list[tuple[float, int]] = []  # slot taken, KV on its way: (moment, request)
    leaving: list[tuple[float, int]] = []  # in the batch: (v at which it leaves, request)
    now = given = 0.0
    taken = head = granted = batch = 0  # ``head``: next to ask; ``granted``: next to get a slot
    endless = float("inf")
    while granted < n or coming or leaving:
        step = step_of[batch]
        ends = now + (leaving[0][0] - given) * step if leaving else endless
        comes = coming[0][0] if coming else endless
        asks = asked[head] if head < n else endless
        moment = min(ends, comes, asks)
        if batch:
            given += (moment - now) / step
        now = moment
        if moment == ends:
            given, k = heappop(leaving)
            last[k] = now
            batch -= 1
            taken -= 1
        elif moment == comes:
            k = heappop(coming)[1]
            first[k] = now + step * (0.5 if early else 1.5) * (batch > 0)
            if not early and not batch:
                first[k] = now + step_of[1]
            batch += 1
            heappush(leaving, (given + length[k] + 0.5 * (batch > 1), k))
        else:
            head += 1
        while granted < head and taken < cap:
            wait[granted] = now - asked[granted]
            heappush(coming, (max(there[granted], now + after[granted]), granted))
            taken += 1
            granted += 1
    return wait, first, np.maximum(last, first)
