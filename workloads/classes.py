"""One class of requests: how long they are, what they share, how a conversation of them goes on.

All draws take uniform numbers, so that a block of a schedule and a single turn of a conversation are
made by the same code.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals import FOLLOW_UP, Arrival, Floats, Ints, Segment
from workloads.draws import ANSWERS, INPUTS, NEWS, OUTPUTS, POOLS, THINKING, TURNS, hashed, one
from workloads.lengths import Lengths
from workloads.ranks import correlated

ENTRY = 2**32  # keys of pools: the class's place times this, plus the entry
Uniform = Callable[[int], Floats]  # the uniform numbers for a purpose


@dataclass(frozen=True)
class Pool:
    """A pool of shared heads, or of whole requests that are repeated."""

    hit: float
    repeats: bool  # whole requests; else each prompt's first part
    entries: int
    zipf: float
    block_tokens: int

    @cached_property
    def _popularity(self) -> Floats:
        weights = np.arange(1, self.entries + 1, dtype=float) ** -self.zipf
        return np.cumsum(weights / weights.sum())

    def pick(self, u: Floats) -> Ints:
        """Entries, by popularity."""
        return np.minimum(np.searchsorted(self._popularity, u), self.entries - 1).astype(np.int64)

    def aligned(self, tokens: NDArray[np.floating[Any]], u: Floats | float) -> Ints:
        """Whole blocks of about ``tokens``, rounded at random so that their mean is right."""
        return (tokens / self.block_tokens + u).astype(np.int64) * self.block_tokens


@dataclass(frozen=True)
class Talk:
    """How conversations go: each prompt is the one before, its answer, and something new."""

    turns: Lengths
    think_s: Lengths
    new_input: Lengths
    system_tokens: int = 0
    max_context_tokens: int | None = None


@dataclass(frozen=True)
class Drawn:
    """Columns of requests; ``group``: entry of the pool, or -1."""

    inputs: Ints
    outputs: Ints
    shared: Ints
    group: Ints


@dataclass(frozen=True)
class RequestClass:
    """One kind of request. ``code`` is its place in the workload."""

    name: str
    code: int
    weight: float
    input: Lengths  # of a conversation: its first turn's
    output: Lengths
    rank_correlation: float = 0.0
    pool: Pool | None = None
    talk: Talk | None = None
    ttft_p99_ms: float | None = None
    tpot_p99_ms: float | None = None

    # -- first turns --------------------------------------------------------------------------------

    def draw(self, seed: int, u_in: Floats, u_out: Floats, sharing: Uniform) -> Drawn:
        """Requests for uniform numbers; ``sharing`` gives those for places 0, 1, 2 of the sharing."""
        inputs = self.input.draw(u_in)
        outputs = self.output.draw(correlated(u_in, u_out, self.rank_correlation))
        none = np.full(len(inputs), -1, np.int64)
        if self.talk is not None:
            inputs = np.maximum(inputs, self.talk.system_tokens + 1)
            if self.talk.max_context_tokens is not None:
                inputs = np.minimum(inputs, self.talk.max_context_tokens)
            return Drawn(inputs, outputs, np.full(len(inputs), self.talk.system_tokens), none)
        if self.pool is None or self.pool.hit == 0:
            return Drawn(inputs, outputs, np.zeros(len(inputs), np.int64), none)
        entry = self.pool.pick(sharing(0))
        if not self.pool.repeats:
            shared = self.pool.aligned(inputs * self.pool.hit, sharing(1))
            shared = np.minimum(shared, inputs - 1)
            return Drawn(inputs, outputs, shared, np.where(shared > 0, entry, -1))
        again = sharing(2) < self.pool.hit
        own = self.input.draw(hashed(seed, POOLS, entry.astype(np.uint64), self.code))
        inputs = np.where(again, own, inputs)
        shared = np.where(again, self.pool.aligned(inputs - 1.0, 0.0), 0)
        return Drawn(inputs, outputs, shared, np.where(again, entry, -1))

    def prefix(self, entry: int, session: int, tokens: int, shared: int) -> tuple[Segment, ...]:
        """What a prompt of ``tokens`` tokens shares with others."""
        if self.talk is not None:
            return self._history(session, tokens)
        if entry < 0 or self.pool is None:
            return ()
        key = self.code * ENTRY + entry
        if self.pool.repeats:
            return (Segment("repeat", key, 0, tokens),)
        return (Segment("pool", key, 0, shared),)

    def _history(self, session: int, tokens: int) -> tuple[Segment, ...]:
        assert self.talk is not None
        system = self.talk.system_tokens
        said = Segment("session", session * 256 + self.code, 0, tokens - system)
        return (Segment("system", self.code, 0, system), said) if system else (said,)

    # -- later turns ----------------------------------------------------------------------------------

    def turns(self, seed: int, session: int) -> int:
        """Of one conversation."""
        assert self.talk is not None
        return int(self.talk.turns.draw(one(seed, TURNS, session))[0])

    def next_turn(self, seed: int, before: Arrival, done_s: float) -> Arrival | None:
        """The turn after ``before``; None when the conversation is over.

        It ends after its turns, or before the context would grow over its limit.
        """
        talk, session, turn = self.talk, before.session, before.turn + 1
        if talk is None or turn >= self.turns(seed, session):
            return None
        new = int(talk.new_input.draw(one(seed, NEWS, session, turn))[0])
        tokens = before.input_tokens + before.output_tokens + new
        if talk.max_context_tokens is not None and tokens > talk.max_context_tokens:
            return None
        think_s = float(talk.think_s.continuous(one(seed, THINKING, session, turn))[0])
        return replace(
            before,
            index=before.index + FOLLOW_UP,
            due_s=done_s + max(think_s, 0.0),
            input_tokens=tokens,
            output_tokens=int(self.output.draw(one(seed, ANSWERS, session, turn))[0]),
            prefix=self._history(session, tokens),
            turn=turn,
            think_s=think_s,
            # The answer's own KV is on D: on P it was never there.
            shared_tokens=before.input_tokens,
        )

    def mean_turns(self, seed: int, conversations: int = 200) -> float:
        """Requests of a conversation, its limit of context counted in."""
        if self.talk is None:
            return 1.0
        if self.talk.max_context_tokens is None:
            return self.talk.turns.mean
        return float(np.mean([self._length(seed, c) for c in range(conversations)]))

    def _length(self, seed: int, session: int) -> int:
        """Turns of a made-up conversation, all at once."""
        talk = self.talk
        assert talk is not None
        n, numbers = self.turns(seed, session), np.array([session], np.uint64)
        turns = np.arange(n, dtype=np.uint64)
        new = talk.new_input.draw(hashed(seed, NEWS, numbers, turns))
        said = self.output.draw(hashed(seed, ANSWERS, numbers, turns))
        u_in, u_out = one(seed, INPUTS, session), one(seed, OUTPUTS, session)
        first = self.draw(seed, u_in, u_out, lambda _: np.zeros(1))
        tokens = int(first.inputs[0]) + np.concatenate([[0], np.cumsum(new[1:] + said[:-1])])
        return max(int((tokens <= (talk.max_context_tokens or np.inf)).sum()), 1)
