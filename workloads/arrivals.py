"""When requests are due: one seeded schedule for the whole run, made in blocks and dealt in stripes.

Arrival k belongs to stripe k % n, whatever n is, and moments, lengths and sharing come from
generators of their own, so the same seed gives the same requests at the same moments for any number
of workers, and another rate changes no length. Counts are as random as the process says.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

BLOCK = 16_384

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Prefix:
    """The shared head of a prompt: its first ``tokens`` tokens are those of pool entry ``group``."""

    group: int
    tokens: int


NO_PREFIX = Prefix(0, 0)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of the schedule. ``due_s`` is seconds from the start of the run."""

    index: int
    due_s: float
    class_name: str
    input_tokens: int
    output_tokens: int
    prefix: Prefix = NO_PREFIX
    session: int = -1
    turn: int = 0
    think_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive arrivals in columns; the first has the number ``start``."""

    start: int
    due_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    prefix_tokens: Ints
    prefix_group: Ints
    class_code: Ints


class Gaps(Protocol):
    """An arrival process: gaps between arrivals at rate 1."""

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        """``n`` gaps with mean 1."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals: exponential gaps."""

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        """``n`` gaps with mean 1."""
        return rng.exponential(1.0, n)


@dataclass(frozen=True, slots=True)
class Constant:
    """Evenly spaced arrivals, the first after one gap."""

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        """``n`` gaps of 1."""
        return np.ones(n)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma gaps with coefficient of variation ``cv``: over 1 arrivals come in bursts."""

    cv: float

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        """``n`` gaps with mean 1."""
        return rng.gamma(1 / self.cv**2, self.cv**2, n)


class Schedule:
    """All arrivals of one run. Subclasses or callers hand in where the blocks come from."""

    def __init__(
        self, blocks: "BlockSource", class_names: tuple[str, ...], window_s: float
    ) -> None:
        self._source = blocks
        self._names = class_names
        self.window_s = window_s

    def blocks(self) -> Iterator[Block]:
        """The schedule in columns, block by block, up to the end of the window."""
        for block in self._source.blocks():
            inside = int(np.searchsorted(block.due_s, self.window_s, side="left"))
            yield block if inside == len(block.due_s) else _head(block, inside)
            if inside < len(block.due_s):
                return

    def stripe(self, i: int, n: int, from_s: float = 0.0) -> Iterator[Arrival]:
        """Every ``n``-th arrival from number ``i`` on, of those due at ``from_s`` or later."""
        for block in self.blocks():
            if len(block.due_s) == 0 or block.due_s[-1] < from_s:
                continue
            first = (i - block.start) % n
            for k in range(first, len(block.due_s), n):
                if block.due_s[k] >= from_s:
                    yield self._arrival(block, k)

    def _arrival(self, block: Block, k: int) -> Arrival:
        tokens = int(block.prefix_tokens[k])
        return Arrival(
            index=block.start + k,
            due_s=float(block.due_s[k]),
            class_name=self._names[int(block.class_code[k])],
            input_tokens=int(block.input_tokens[k]),
            output_tokens=int(block.output_tokens[k]),
            prefix=Prefix(int(block.prefix_group[k]), tokens) if tokens else NO_PREFIX,
        )

    def follow_up(self, arrival: Arrival, done_s: float) -> Arrival | None:
        """The next turn of a conversation; None: there is none."""
        return None


class BlockSource(Protocol):
    """Where a schedule's blocks come from: a workload or a trace."""

    def blocks(self) -> Iterator[Block]:
        """Blocks in order of due moments, without end or to the end of a trace."""


def _head(block: Block, n: int) -> Block:
    return Block(
        block.start,
        block.due_s[:n],
        block.input_tokens[:n],
        block.output_tokens[:n],
        block.prefix_tokens[:n],
        block.prefix_group[:n],
        block.class_code[:n],
    )
