"""Closed loop: so many users, each of whom waits for an answer, thinks, and asks again.

The second mode, for agents and for tools that work so. The load follows the answers: a slow server
is asked less, which an open loop never does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from workloads.arrivals import FOLLOW_UP, Arrival, Block, Floats, Ints, Sample, Segment
from workloads.classes import RequestClass
from workloads.draws import (
    CLASSES,
    INPUTS,
    JITTER,
    OUTPUTS,
    POOLS,
    ROUNDING,
    SHARING,
    THINKING,
    hashed,
    one,
)
from workloads.lengths import Lengths
from workloads.sampling import unfolded

SPREAD_S = 30.0  # users begin within their mean think time, but no later than this


@dataclass(frozen=True)
class ClosedLoop:
    """The source of such a schedule. Conversation m of user u has the number u + users * m."""

    classes: tuple[RequestClass, ...]
    users: int
    think_s: Lengths
    seed: int

    @cached_property
    def _block(self) -> Block:
        numbers = np.arange(self.users, dtype=np.uint64)
        spread_s = min(
            float(self.think_s.continuous(np.linspace(0.005, 0.995, 100)).mean()), SPREAD_S
        )
        due_s = np.sort(hashed(self.seed, JITTER, numbers)) * spread_s
        code = self._code(numbers)
        rows = [self._first(u, u, int(code[u]), 0.0) for u in range(self.users)]
        inputs, outputs, shared = (
            np.array([getattr(a, name) for a in rows], np.int64)
            for name in ("input_tokens", "output_tokens", "shared_tokens")
        )
        return Block(0, due_s, inputs, outputs, shared, code, np.arange(self.users))

    def _code(self, users: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> Ints:
        weights = np.array([c.weight for c in self.classes])
        u = hashed(self.seed, CLASSES, users)
        found = np.searchsorted(np.cumsum(weights / weights.sum()), u)
        return np.minimum(found, len(self.classes) - 1).astype(np.int64)

    def _first(self, session: int, index: int, code: int, due_s: float) -> Arrival:
        """The first turn of a conversation."""
        kind = self.classes[code]

        def sharing(k: int) -> Floats:
            return one(self.seed, (POOLS, ROUNDING, SHARING)[k], session, 1)

        u_in, u_out = (one(self.seed, purpose, session) for purpose in (INPUTS, OUTPUTS))
        drawn = kind.draw(self.seed, u_in, u_out, sharing)
        tokens, shared = int(drawn.inputs[0]), int(drawn.shared[0])
        return Arrival(
            index=index,
            due_s=due_s,
            class_name=kind.name,
            input_tokens=tokens,
            output_tokens=int(drawn.outputs[0]),
            prefix=kind.prefix(int(drawn.group[0]), session, tokens, shared),
            session=session,
            shared_tokens=shared,
        )

    def blocks(self, from_s: float) -> Iterator[Block]:
        """The first request of each user; all others are follow-ups."""
        del from_s
        yield self._block

    def prefix(self, block: Block, k: int) -> tuple[Segment, ...]:
        """What row ``k`` shares."""
        user = block.start + k
        return self._first(user, user, int(block.class_code[k]), 0.0).prefix

    def session(self, block: Block, k: int) -> int:
        """Every user is in a conversation, be it of one turn."""
        return block.start + k

    def follow_up(self, arrival: Arrival, due_from_s: float) -> Arrival | None:
        """The next turn, or after the last one the next conversation of this user."""
        kind = next(c for c in self.classes if c.name == arrival.class_name)
        turn = kind.next_turn(self.seed, arrival, due_from_s)
        if turn is not None:
            return turn
        session = arrival.session + self.users
        think_s = max(float(self.think_s.continuous(one(self.seed, THINKING, session))[0]), 0.0)
        index = arrival.index + FOLLOW_UP
        return self._first(session, index, kind.code, due_from_s + think_s)

    def sample(self, n: int) -> Sample:
        """About ``n`` requests."""
        return unfolded(self, tuple(c.name for c in self.classes), n)
