"""When requests are due: one seeded schedule for the whole run, made in blocks and dealt in stripes.

Arrival k belongs to stripe k % n, whatever n is, and moments, lengths and sharing come from
generators of their own, so the same seed gives the same requests at the same moments for any number
of workers, and another rate changes no length. Counts are as random as the process says.

Conversations. Only first turns have a moment of their own; they are what ``stripe``, ``between``
and ``count`` give, numbered 0, 1, 2, ... When a turn is done, whoever sent it asks
``follow_up(arrival, done_s)`` for the next one, which is due at done_s + think_s, and sends it too:
so a conversation stays with the worker that took its first turn, and nobody else need know of it.
A follow-up's number is made from its first turn's: turn * 2^32 + first (in a closed loop: the n-th
request of user u has n * 2^32 + u), so numbers are unique and alike for any number of workers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

BLOCK = 65_536
FOLLOW_UP = 2**32  # numbers of follow-up turns are multiples of this, plus the first turn's

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of text that others may have too: tokens ``start`` to ``stop`` of a numbered text.

    ``source`` says whose text: a ``pool`` of shared heads, a ``repeat``ed request, a ``session``
    (conversation), or the ``row`` of a trace where the text came up first. The last segment of a
    prompt goes on as long as the prompt does; where it is a ``pool``, the request's own text does.
    """

    source: str
    key: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of the schedule. ``due_s`` is seconds from the start of the run.

    ``shared_tokens`` of its prompt were there before, in an earlier request of the schedule or in
    the pool: what a cache that forgets nothing need not compute again.
    """

    index: int
    due_s: float
    class_name: str
    input_tokens: int
    output_tokens: int
    prefix: tuple[Segment, ...] = ()
    session: int = -1
    turn: int = 0
    think_s: float = 0.0
    shared_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive arrivals in columns; the first has the number ``start``."""

    start: int
    due_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    shared_tokens: Ints
    class_code: Ints  # places in the schedule's class names
    group: Ints  # entry of the pool, conversation, or -1: for the source of the block to know

    def rows(self, first: int, last: int) -> "Block":
        """Part of it."""
        part = slice(first, last)
        return Block(
            self.start + first,
            self.due_s[part],
            self.input_tokens[part],
            self.output_tokens[part],
            self.shared_tokens[part],
            self.class_code[part],
            self.group[part],
        )

    def __len__(self) -> int:
        return len(self.due_s)


@dataclass(frozen=True, slots=True)
class Sample:
    """Requests of a schedule in columns, for sizing: what a long run of it is like."""

    due_s: Floats
    input_tokens: Ints
    shared_tokens: Ints
    output_tokens: Ints
    class_code: Ints

    @property
    def effective_tokens(self) -> Ints:
        """Input tokens that must be computed when nothing shared is ever forgotten."""
        return np.asarray(np.maximum(self.input_tokens - self.shared_tokens, 1))


class Source(Protocol):
    """Where a schedule's arrivals come from: a workload or a trace."""

    def blocks(self, from_s: float) -> Iterator[Block]:
        """Blocks in order of due moments, the first may begin before ``from_s``; no end needed."""

    def prefix(self, block: Block, k: int) -> tuple[Segment, ...]:
        """What row ``k`` of a block shares."""

    def session(self, block: Block, k: int) -> int:
        """The conversation that row ``k`` of a block begins, or -1."""

    def follow_up(self, arrival: Arrival, due_from_s: float) -> Arrival | None:
        """The next turn after one that was done at ``due_from_s``."""

    def sample(self, n: int) -> Sample:
        """``n`` requests or a few more or less, follow-up turns among them."""


class Schedule:
    """All arrivals of one run."""

    def __init__(self, source: Source, class_names: tuple[str, ...], window_s: float) -> None:
        self._source = source
        self.class_names = class_names
        self.window_s = window_s

    def between(self, from_s: float, to_s: float) -> Iterator[Block]:
        """Arrivals due from ``from_s`` until just before ``to_s``, in columns, block by block."""
        to_s = min(to_s, self.window_s)
        for block in self._source.blocks(from_s):
            first, last = np.searchsorted(block.due_s, (from_s, to_s), side="left")
            if first < last:
                yield block.rows(int(first), int(last))
            if last < len(block):
                return

    def blocks(self) -> Iterator[Block]:
        """The whole schedule in columns."""
        return self.between(0.0, self.window_s)

    def count(self) -> int:
        """Arrivals in the window (first turns only)."""
        return sum(len(block) for block in self.blocks())

    def stripe(self, i: int, n: int, from_s: float = 0.0) -> Iterator[Arrival]:
        """Every ``n``-th arrival from number ``i`` on, of those due at ``from_s`` or later."""
        for block in self.between(from_s, self.window_s):
            first = (i - block.start) % n
            yield from self._arrivals(block, first, n)

    def _arrivals(self, block: Block, first: int, step: int) -> Iterator[Arrival]:
        names, source, start = self.class_names, self._source, block.start
        part = slice(first, None, step)
        rows = zip(
            range(first, len(block), step),
            block.due_s[part].tolist(),
            block.class_code[part].tolist(),
            block.input_tokens[part].tolist(),
            block.output_tokens[part].tolist(),
            block.shared_tokens[part].tolist(),
            block.group[part].tolist(),
            strict=True,
        )
        for k, due_s, code, inputs, outputs, shared, group in rows:
            if group < 0:
                yield Arrival(start + k, due_s, names[code], inputs, outputs)
                continue
            yield Arrival(
                index=start + k,
                due_s=due_s,
                class_name=names[code],
                input_tokens=inputs,
                output_tokens=outputs,
                prefix=source.prefix(block, k),
                session=source.session(block, k),
                shared_tokens=shared,
            )

    def follow_up(self, arrival: Arrival, done_s: float) -> Arrival | None:
        """The next turn of a conversation, due after its think time; None: there is none.

        Nor is there one when it would be due after the window.
        """
        if arrival.session < 0:
            return None
        turn = self._source.follow_up(arrival, done_s)
        return turn if turn is not None and turn.due_s < self.window_s else None

    def sample(self, n: int = 20_000) -> Sample:
        """About ``n`` requests as a long run would have them, window or not: for sizing."""
        return self._source.sample(n)

    @property
    def expected_input_tokens(self) -> float:
        """Mean over a sample."""
        return float(self.sample().input_tokens.mean())

    @property
    def expected_effective_input_tokens(self) -> float:
        """Mean over a sample, without what is shared."""
        return float(self.sample().effective_tokens.mean())

    @property
    def expected_output_tokens(self) -> float:
        """Mean over a sample."""
        return float(self.sample().output_tokens.mean())
