"""One prefill instance: a queue, first come first served, in iterations of ``chunk_tokens``. Pure."""

from collections import deque
from math import inf
from random import Random

from emulator.model import Engine, Request
from emulator.prefix_cache import PrefixCache


class Prefill:
    """An iteration packs the heads of the queue; all prompts that it completes are done at its end."""

    def __init__(self, number: int, engine: Engine, rng: Random) -> None:
        self.number = number
        self.queue: deque[Request] = deque()  # the heads of it are in the iteration that runs
        self.batch: list[Request] = []
        self.done_s = inf  # end of the iteration that runs
        self.bootstrapping = 0  # requests that wait for their decode slot
        self.pending_tokens = 0  # prompt tokens routed here and not computed yet
        self.inflight = 0  # KV on its way to D
        self.iterations = self.computed_tokens = 0
        self.busy_s = 0.0
        self.cache = PrefixCache(engine.cache_tokens, engine.block_tokens)
        self._engine, self._rng = engine, rng

    @property
    def idle(self) -> bool:
        """Nothing here and nothing to come."""
        return not self.queue and not self.bootstrapping and not self.inflight

    @property
    def load(self) -> int:
        """What least-load routing compares: the work that lies here."""
        return self.pending_tokens

    def enqueue(self, request: Request, now: float) -> bool:
        """Into the queue; True: an idle instance has begun an iteration with it."""
        request.phase, request.queued_s = "prefill", now
        self.queue.append(request)
        if self.done_s < inf:
            return False
        self._begin(now)
        return True

    def _begin(self, now: float) -> None:
        engine, room = self._engine, self._engine.chunk_tokens
        duration = engine.prefill_a
        self.batch = batch = []
        for request in self.queue:
            done = request.prefilled
            if not done:
                self._start(request, now)
            left = request.prompt_tokens - request.cached_tokens - done
            request.piece = piece = left if left < room else room
            duration += engine.prefill_piece_s(done, done + piece)
            batch.append(request)
            room -= piece
            if room <= 0:
                break
        if not batch:
            self.done_s = inf
            return
        if engine.jitter:
            duration *= max(self._rng.gauss(1.0, engine.jitter), 0.1)
        self.iterations += 1
        self.busy_s += duration
        self.done_s = now + duration

    def _start(self, request: Request, now: float) -> None:
        request.prefill_began_s = now
        cached = self.cache.look_up(request.blocks, request.prompt_tokens, request.hit_tokens)
        request.cached_tokens = cached
        self.pending_tokens -= cached

    def finish(self) -> list[Request]:
        """The iteration is over: those whose prompt is done, in order. The next one begins."""
        now, done = self.done_s, []
        for request in self.batch:
            request.prefilled += request.piece
            self.pending_tokens -= request.piece
            self.computed_tokens += request.piece
            request.piece = 0
            if request.outcome:  # aborted meanwhile; it was a head, so it is one still
                self.queue.popleft()
                self.pending_tokens -= request.uncached_left
            elif request.uncached_left == 0:
                self.queue.popleft()
                if request.blocks:
                    self.cache.insert(request.blocks)
                request.prefilled_s = now
                done.append(request)
        self._begin(now)
        return done

    def drop(self, request: Request) -> None:
        """An aborted request leaves the queue; one in the iteration that runs leaves at its end."""
        if not any(request is r for r in self.batch):
            self.queue.remove(request)
            self.pending_tokens -= request.uncached_left
