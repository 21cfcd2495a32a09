"""Rows of a trace: what every reader makes, and the columns they are gathered in.

A reader yields one ``Row`` a request, or the ``BadRow`` that it could not read. Rows are put into
typed arrays at once, so that five million of them need no Python objects.
"""

import math
from array import array
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from workloads.arrivals import Floats, Ints

Number = float  # of tokens or of time units


class Row(NamedTuple):
    """One request. ``moment`` is in the format's own unit; nan: none is told.

    ``blocks`` are ids of its prefix blocks, ``reused`` tokens that an earlier turn of its session
    already had (-1: not told), ``think_s`` the pause before it (nan: it has a moment of its own).
    """

    line: int
    moment: float
    input: int
    output: int
    blocks: Sequence[int] = ()
    session: Hashable = None
    think_s: float = math.nan
    reused: int = -1


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read. ``reason`` is short, the same for all rows of its kind.

    ``known``: such rows are part of the format (failed requests, for instance): counted and left
    out without being asked.
    """

    line: int
    reason: str
    found: str
    allowed: str
    known: bool = False
    rows: int = 1  # so many of the kind


class WrongRowError(ValueError):
    """Raised inside a reader for one row: reason, what was found, what is allowed."""

    def __init__(self, reason: str, found: Any, allowed: str, known: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.found, self.allowed, self.known = reason, found, allowed, known

    def row(self, line: int) -> BadRow:
        """As the row of a file."""
        return BadRow(line, self.reason, repr(self.found)[:80], self.allowed, self.known)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Many rows at once, without blocks and sessions."""

    moment: Floats
    input: Ints
    output: Ints

    def __len__(self) -> int:
        return len(self.input)

    def first(self, n: int) -> "Chunk":
        """The first ``n``."""
        return Chunk(self.moment[:n], self.input[:n], self.output[:n])


Rows = Iterator[Row | Chunk | BadRow]


def tokens(value: Any, name: str) -> int:
    """A count of tokens, also as text. Raises WrongRowError when it is none, or under 1."""
    if type(value) is str:
        value = _parsed(value)
    if type(value) is int and value >= 1:
        return value
    if value is None or value == "":
        raise WrongRowError(f"no {name}", value, "a whole number of 1 or more")
    if type(value) is not float or not value.is_integer() or value < 1:
        raise WrongRowError(f"{name} is not a count", value, "a whole number of 1 or more")
    return int(value)


def number(value: Any, name: str) -> float:
    """A moment or a pause, also as text. Raises WrongRowError when it is none."""
    if type(value) is str:
        value = _parsed(value)
    if type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if value is None or value == "":
        raise WrongRowError(f"no {name}", value, "a number")
    raise WrongRowError(f"{name} is not a number", value, "a number")


def _parsed(text: str) -> int | float | str:
    if text.isdecimal():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text.strip()


@dataclass(frozen=True)
class Blocks:
    """Prefix blocks of all rows: ``ids`` one after the other, row r has those from ``begins[r]``.

    Equal ids mean equal text. The last block of a row may be partly filled.
    """

    ids: Ints
    begins: Ints
    size: int

    def take(self, rows: Ints) -> "Blocks":
        """Those of some rows, in that order."""
        counts = np.diff(self.begins)[rows]
        begins = np.concatenate([[0], np.cumsum(counts)])
        inside = np.arange(begins[-1]) - np.repeat(begins[:-1], counts)
        return Blocks(self.ids[np.repeat(self.begins[rows], counts) + inside], begins, self.size)


@dataclass
class Columns:
    """Rows gathered in typed arrays; sessions are numbered as they come up."""

    moment: "array[float]" = field(default_factory=lambda: array("d"))
    input: "array[int]" = field(default_factory=lambda: array("q"))
    output: "array[int]" = field(default_factory=lambda: array("q"))
    think_s: "array[float]" = field(default_factory=lambda: array("d"))
    reused: "array[int]" = field(default_factory=lambda: array("q"))
    session: "array[int]" = field(default_factory=lambda: array("q"))
    ids: "array[int]" = field(default_factory=lambda: array("q"))
    begins: "array[int]" = field(default_factory=lambda: array("q", [0]))
    _sessions: dict[Hashable, int] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """One more."""
        self.moment.append(row.moment)
        self.input.append(row.input)
        self.output.append(row.output)
        self.think_s.append(row.think_s)
        self.reused.append(row.reused)
        known = self._sessions
        self.session.append(
            -1 if row.session is None else known.setdefault(row.session, len(known))
        )
        self.ids.extend(row.blocks)
        self.begins.append(len(self.ids))

    def extend(self, chunk: Chunk) -> None:
        """Many more."""
        n = len(chunk)
        self.moment.frombytes(chunk.moment.tobytes())
        self.input.frombytes(chunk.input.tobytes())
        self.output.frombytes(chunk.output.tobytes())
        self.think_s.frombytes(np.full(n, math.nan).tobytes())
        for column, value in (
            (self.reused, -1),
            (self.session, -1),
            (self.begins, len(self.ids)),
        ):
            column.frombytes(np.full(n, value, np.int64).tobytes())

    def __len__(self) -> int:
        return len(self.input)

    def floats(self, name: str) -> Floats:
        """A column of times."""
        return np.frombuffer(getattr(self, name), np.float64)

    def ints(self, name: str) -> Ints:
        """A column of counts or numbers."""
        return np.frombuffer(getattr(self, name), np.int64)

    def blocks(self, size: int) -> Blocks | None:
        """The prefix blocks, if any row has some."""
        if not self.ids or not size:
            return None
        return Blocks(self.ints("ids"), self.ints("begins"), size)
