"""The schedule of a trace: its rows at their own moments, or at Poisson moments where it has none.

Where later turns of a conversation have no moment of their own, only first turns are scheduled and
the others follow the answers (``follow_up``).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count, pairwise

import numpy as np

from workloads.arrivals import BLOCK, FOLLOW_UP, Arrival, Block, Floats, Ints, Sample, Segment
from workloads.draws import GAPS, generator
from workloads.sampling import unfolded
from workloads.trace_rows import Blocks


@dataclass(frozen=True)
class Table:
    """Rows of a trace in columns, in order of time; where ``firsts``, talk by talk.

    ``moment`` None: the trace has none. ``firsts``: the row that each conversation begins with, and
    one past the last row; None: every row has its own moment.
    """

    moment: Floats | None
    input: Ints
    output: Ints
    shared: Ints
    think_s: Floats
    blocks: Blocks | None
    session: Ints | None
    firsts: Ints | None

    def __len__(self) -> int:
        return len(self.input)

    @cached_property
    def starts(self) -> Ints:
        """Rows that are scheduled."""
        return np.arange(len(self)) if self.firsts is None else self.firsts[:-1]

    @cached_property
    def _origins(self) -> tuple[Ints, Ints, Ints]:
        """Of every block: its code; of every code: the row and the place where it came up first."""
        assert self.blocks is not None
        begins = self.blocks.begins
        _, first, code = np.unique(self.blocks.ids, return_index=True, return_inverse=True)
        row = np.searchsorted(begins, first, side="right") - 1
        return code.astype(np.int64), row, first - begins[row]

    def segments(self, row: int, base: int) -> tuple[Segment, ...]:
        """The text of a row, piece by piece of the rows that had it first; ``base`` is added to keys."""
        assert self.blocks is not None
        code, origin, place = self._origins
        size, tokens = self.blocks.size, int(self.input[row])
        mine = code[self.blocks.begins[row] : self.blocks.begins[row + 1]]
        rows, places = origin[mine], place[mine]
        cuts = np.flatnonzero((np.diff(rows) != 0) | (np.diff(places) != 1)) + 1
        edges = [0, *cuts.tolist(), len(mine)]
        parts = [
            Segment(
                "row", base + int(rows[a]), int(places[a]) * size, (int(places[b - 1]) + 1) * size
            )
            for a, b in pairwise(edges)
            if b > a
        ]
        if len(mine) * size < tokens and (not parts or parts[-1].key != base + row):
            parts.append(Segment("row", base + row, len(mine) * size, tokens))
        return tuple(parts)


@dataclass(frozen=True)
class Replay:
    """The source of such a schedule. ``due_s``: of the scheduled rows; None: ``rate_rps`` of all."""

    table: Table
    name: str
    due_s: Floats | None
    rate_rps: float
    seed: int

    def blocks(self, from_s: float) -> Iterator[Block]:
        """The scheduled rows; without moments, over and over."""
        if self.due_s is not None:
            for start in range(0, len(self.due_s), BLOCK):
                due_s = self.due_s[start : start + BLOCK]
                if due_s[-1] >= from_s:
                    yield self._block(start, due_s)
            return
        starts_rps = self.rate_rps * len(self.table.starts) / len(self.table)
        last_s = 0.0
        for number in count():
            gaps = generator(self.seed, GAPS, number).exponential(1 / starts_rps, BLOCK)
            due_s = last_s + np.cumsum(gaps)
            last_s = float(due_s[-1])
            if last_s >= from_s:
                yield self._block(number * BLOCK, due_s)

    def _block(self, start: int, due_s: Floats) -> Block:
        t = self.table
        numbers = start + np.arange(len(due_s))
        rows = t.starts[numbers % len(t.starts)]
        shares = t.blocks is not None or t.firsts is not None
        return Block(
            start,
            due_s,
            t.input[rows],
            t.output[rows],
            t.shared[rows],
            np.zeros(len(rows), np.int64),
            numbers if shares else np.full(len(rows), -1),
        )

    def prefix(self, block: Block, k: int) -> tuple[Segment, ...]:
        """What row ``k`` shares."""
        return self._text(int(block.group[k]), 0)

    def _text(self, start: int, turn: int) -> tuple[Segment, ...]:
        """Of a turn of the conversation with that number; every pass over the trace has its own."""
        t = self.table
        again, place = divmod(start, len(t.starts))
        row = int(t.starts[place]) + turn
        if t.blocks is not None:
            return t.segments(row, again * len(t))
        return (Segment("session", start, 0, int(t.input[row])),)

    def session(self, block: Block, k: int) -> int:
        """The conversation that row ``k`` begins; -1 where every row has its own moment."""
        return block.start + k if self.table.firsts is not None else -1

    def follow_up(self, arrival: Arrival, due_from_s: float) -> Arrival | None:
        """The next turn of its conversation."""
        t = self.table
        if t.firsts is None:
            return None
        turn, start = arrival.index // FOLLOW_UP + 1, arrival.index % FOLLOW_UP
        place = start % len(t.starts)
        row = int(t.firsts[place]) + turn
        if row >= t.firsts[place + 1]:
            return None
        think_s = float(t.think_s[row])
        return Arrival(
            index=turn * FOLLOW_UP + start,
            due_s=due_from_s + think_s,
            class_name=self.name,
            input_tokens=int(t.input[row]),
            output_tokens=int(t.output[row]),
            prefix=self._text(start, turn),
            session=start,
            turn=turn,
            think_s=think_s,
            shared_tokens=int(t.shared[row]),
        )

    def sample(self, n: int) -> Sample:
        """The first ``n`` requests."""
        return unfolded(self, (self.name,), n)
