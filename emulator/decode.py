"""One decode instance: slots, and the batch that is stepped. Pure.

Steps are numbered. While the batch is unchanged the end of each step has a closed form, counted from
an anchor (the last change): m steps take m * step + gamma * batch * m (m - 1) / 2, since each adds
``batch`` tokens of KV. So a simulation plays only the steps at whose end something changes, a live
server plays all of them, and both see the same floats. A running request is noted with the step from
which its tokens count: after step s it has made s - start tokens.
"""

from heapq import heappop, heappush
from itertools import count
from math import inf, isnan, sqrt
from random import Random

from emulator.model import Engine, Request
from emulator.slots import Slots


class Decode:
    """``play`` goes to the planned step ``next_step``, whose end is the moment ``next_s``."""

    def __init__(self, number: int, engine: Engine, cap: int, rng: Random) -> None:
        self.number = number
        self.slots = Slots(engine, cap)
        self.arrived: list[Request] = []  # KV is here; they join at the end of the running step
        self.running: dict[Request, int] = {}
        self.step_no = self.next_step = 0
        self.next_s = inf
        self.step_s = 0.0  # of the step played last (a mean, when several were)
        self.played_tokens = 0  # made in what was played last
        self.generated_tokens = self.retractions = 0
        self._engine, self._rng = engine, rng
        self._kv = 0  # tokens of the batch after step ``step_no``
        self._played_s = 0.0  # when step ``step_no`` ended
        self._anchor_s, self._anchor_step = 0.0, 0
        self._one_s, self._grow_s, self._factor = 0.0, 0.0, 1.0  # first step, growth, stretch
        self._bases: dict[int, float] = {}
        self._fresh: list[Request] = []  # second token not made yet
        self._leaving: list[Request] = []  # aborted, still in the batch
        self._ends: list[tuple[int, int, Request]] = []  # heap by last step
        self._stale = 0  # entries of it whose request was cut or retracted
        self._order = count()

    @property
    def idle(self) -> bool:
        """Nothing here and nothing to come."""
        return not self.load

    @property
    def load(self) -> int:
        """What least-load routing compares: requests here or on their way."""
        return self.slots.taken + len(self.slots.waiting) + len(self.slots.retracted)

    def produced(self, request: Request) -> int:
        """Tokens that a running request has made."""
        return self.step_no - self.running[request]

    # -- the closed form -------------------------------------------------------------------------

    def _anchor(self, now: float) -> None:
        """The batch has changed: steps are counted from here."""
        batch, engine = len(self.running), self._engine
        self._anchor_s, self._anchor_step = now, self.step_no
        base = self._bases.get(batch)
        if base is None:
            base = self._bases[batch] = engine.step_base_s(batch)
        self._factor = max(self._rng.gauss(1.0, engine.jitter), 0.1) if engine.jitter else 1.0
        self._one_s = self._factor * (base + engine.decode_gamma * self._kv)
        self._grow_s = self._factor * engine.decode_gamma * batch

    def _end_s(self, step: int) -> float:
        """When ``step`` ends, which is after the anchor."""
        steps = step - self._anchor_step
        return self._anchor_s + steps * self._one_s + self._grow_s * (steps * (steps - 1) / 2)

    def _step_at(self, now: float) -> int:
        """The first step that ends at or after ``now``."""
        gap = now - self._anchor_s
        if gap <= 0 or not self.running:
            return self._anchor_step
        root = self._one_s - self._grow_s / 2
        about = int(2 * gap / (sqrt(root * root + 2 * self._grow_s * gap) + root))
        step = self._anchor_step + about
        if self._end_s(step) < now:
            step += 1
            while self._end_s(step) < now:
                step += 1
            return step
        while step > self._anchor_step and self._end_s(step - 1) >= now:
            step -= 1
        return step

    def running_kv(self, now: float) -> int:
        """KV tokens of the batch after the last step that has ended by ``now``."""
        step = self._step_at(now)
        if step > self._anchor_step and self._end_s(step) > now:
            step -= 1
        return self._kv + max(step - self.step_no, 0) * len(self.running)

    def kv_used(self, now: float) -> int:
        """KV tokens of the batch, and of those that hold a slot outside it."""
        return self.running_kv(now) + self.slots.outside_kv

    # -- changes of the plan ---------------------------------------------------------------------

    def arrive(self, request: Request, now: float) -> None:
        """KV is here: the request joins at the first end of a step from now on."""
        request.phase, request.arrived_s = "arrived", now
        self.arrived.append(request)
        if self.running:
            self._bring_forward(self._step_at(now))
        else:
            self.next_step, self.next_s = self.step_no, now

    def cut(self, request: Request, now: float) -> None:
        """An aborted request leaves the batch at the end of the running step."""
        self._leaving.append(request)
        self._bring_forward(self._step_at(now))

    def squeeze(self, now: float) -> None:
        """KV outside the batch has grown: the batch may reach the limit sooner."""
        if self.running and self._engine.kv_reserve is not None:
            self._bring_forward(max(self._full_step(), self._step_at(now)))

    def _bring_forward(self, step: int) -> None:
        step = max(step, self.step_no + 1)
        if step < self.next_step:
            self.next_step, self.next_s = step, self._end_s(step)

    def _full_step(self) -> int:
        """The last step after which one more would not fit into the KV memory."""
        room = self._engine.kv_tokens - self.slots.outside_kv - self._kv
        return self.step_no + room // len(self.running)

    def _plan(self, single: bool) -> None:
        if not self.running:
            self.next_s = inf
            return
        if single or self._engine.jitter:
            step = self.step_no + 1
        else:
            if self._stale:
                self._skip_stale()
            step = self._ends[0][0]
            if self._engine.kv_reserve is not None:
                step = max(min(step, self._full_step()), self.step_no + 1)
        self.next_step, self.next_s = step, self._end_s(step)

    # -- play ------------------------------------------------------------------------------------

    def play(self, first_from_prefill: bool, single: bool) -> list[Request]:
        """Go to the planned step; the requests that left the batch for good.

        Then plan: the very next step with ``single``, else the next one that changes something.
        """
        now, steps = self.next_s, self.next_step - self.step_no
        self.played_tokens = 0
        if steps and self.running:
            self._note_tokens(now, steps)
        self.step_no, self._played_s = self.next_step, now
        left = self._leave(now)
        changed = bool(left) or bool(self.arrived)
        if self._engine.kv_reserve is not None:
            changed = self._retract() or changed
        if self.arrived:
            for request in self.arrived:
                self._join(request, now, first_from_prefill)
            self.arrived = []
            if self._ends[0][0] <= self.step_no:
                left += self._leave(now)  # an answer of one token, which came along from P
        if changed or self._engine.jitter:
            self._anchor(now)
        self._plan(single)
        return left

    def _note_tokens(self, now: float, steps: int) -> None:
        self.played_tokens = tokens = steps * len(self.running)
        self._kv += tokens
        self.generated_tokens += tokens
        self.step_s = (now - self._played_s) / steps
        if not self._fresh:
            return
        still = []
        for request in self._fresh:
            start = self.running.get(request)
            if start is None:
                continue  # retracted, or gone
            if isnan(request.first_token_s):
                request.first_token_s = self._end_s(start + 1)
            if start + 2 <= self.next_step:
                request.second_token_s = self._end_s(start + 2)
            elif request.output_tokens > 1:
                still.append(request)
        self._fresh = still

    def _skip_stale(self) -> None:
        ends, running = self._ends, self.running
        while ends:
            last, _, request = ends[0]
            start = running.get(request)
            if start is not None and start + request.output_tokens == last:
                return
            heappop(ends)
            self._stale -= 1

    def _leave(self, now: float) -> list[Request]:
        left: list[Request] = []
        ends, step_no = self._ends, self.step_no
        while ends and ends[0][0] <= step_no:
            request = heappop(ends)[2]
            start = self.running.get(request)
            if start is None or start + request.output_tokens > step_no:
                self._stale -= 1
                continue
            left.append(request)
            self._take_out(request)
        if self._leaving:
            for request in self._leaving:
                if request in self.running:
                    left.append(request)
                    self._take_out(request)
                    self._stale += 1
            self._leaving = []
        for request in left:
            request.last_token_s = now
            self.slots.release(request)
        return left

    def _take_out(self, request: Request) -> None:
        request.produced = made = self.step_no - self.running.pop(request)
        self._kv -= request.prompt_tokens + made

    def _retract(self) -> bool:
        """Put out the requests with the fewest tokens made, until the next step fits."""
        room = self._engine.kv_tokens - self.slots.outside_kv
        before = self.retractions
        while len(self.running) > 1 and self._kv + len(self.running) > room:
            request = max(self.running, key=self.running.__getitem__)
            self._take_out(request)
            self._stale += 1
            self.slots.release(request)
            request.phase = "retracted"
            request.retractions += 1
            self.retractions += 1
            self.slots.retracted.append(request)
        return self.retractions > before

    def _join(self, request: Request, now: float, first_from_prefill: bool) -> None:
        self.slots.joined(request)
        if first_from_prefill and not request.produced:
            request.produced = 1  # made by P, streamed now that the request enters the batch
            self.generated_tokens += 1
            request.first_token_s = now
        request.phase, request.joined_s = "running", now
        start = self.running[request] = self.step_no - request.produced
        self._kv += request.context
        heappush(self._ends, (start + request.output_tokens, next(self._order), request))
        if isnan(request.second_token_s) and request.output_tokens > request.produced:
            self._fresh.append(request)
