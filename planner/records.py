"""The records of a run: one numpy array for each column of ``records.csv.gz``."""

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import PlanError

MOMENTS = ("due_s", "sent_s", "first_token_s", "second_token_s", "last_token_s", "done_s")
NAMES = ("class_name", "token_source", "clock", "outcome")
OK, UNFINISHED, UNSENT, LOST = "ok", "unfinished", "unsent", "lost"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Records:
    """All due arrivals, in order of ``due_s``. Moments: seconds from run start, nan = never; counts
    that nobody told are -1."""

    index: Ints
    worker: Ints
    class_name: NDArray[Any]
    due_s: Floats
    sent_s: Floats
    first_token_s: Floats
    second_token_s: Floats
    last_token_s: Floats
    done_s: Floats
    planned_input_tokens: Ints
    planned_output_tokens: Ints
    input_tokens: Ints
    cached_tokens: Ints
    output_tokens: Ints
    n_first: Ints
    token_source: NDArray[Any]
    clock: NDArray[Any]
    outcome: NDArray[Any]

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> "Records":
        """From a mapping of columns, each equally long."""
        return cls(**{f.name: _typed(f.name, columns[f.name]) for f in fields(cls)})

    def __len__(self) -> int:
        return len(self.index)

    def where(self, flags: Flags | Ints) -> "Records":
        """The rows that are flagged, or that stand at these places."""
        return Records(**{f.name: getattr(self, f.name)[flags] for f in fields(self)})

    @property
    def ok(self) -> Flags:
        """Successes."""
        return np.asarray(self.outcome == OK)

    @property
    def failed(self) -> Flags:
        """Failures of the target, by any name."""
        return ~np.isin(self.outcome, (OK, UNFINISHED, UNSENT, LOST))

    @property
    def ttft_s(self) -> Floats:
        """first_token - due."""
        return np.asarray(self.first_token_s - self.due_s)

    @property
    def tpot_s(self) -> Floats:
        """(last - first) / (n - n_first); nan where all tokens came in the first event."""
        spread = self.output_tokens - self.n_first
        good = (spread > 0) & (self.n_first > 0)
        span = self.last_token_s - self.first_token_s
        return np.asarray(np.where(good, span / np.where(good, spread, 1), np.nan))

    @property
    def lag_s(self) -> Floats:
        """sent - due; nan where it never went out."""
        return np.asarray(self.sent_s - self.due_s)

    @property
    def first_gap_s(self) -> Floats:
        """second_token - first_token, where a slow KV transfer can hide."""
        return np.asarray(self.second_token_s - self.first_token_s)

    @property
    def steady_tpot_s(self) -> Floats:
        """TPOT without the first gap; nan with fewer than two tokens after the first event."""
        rest = self.output_tokens - self.n_first - 1
        good = (rest > 0) & (self.n_first > 0)
        span = self.last_token_s - self.second_token_s
        return np.asarray(np.where(good, span / np.where(good, rest, 1), np.nan))

    @property
    def effective_tokens(self) -> Floats:
        """Prompt tokens that had to be computed: told by the server, else as planned."""
        told = np.where(self.input_tokens > 0, self.input_tokens, self.planned_input_tokens)
        return np.asarray(np.maximum(told - np.maximum(self.cached_tokens, 0), 1), np.float64)

    @property
    def answer_tokens(self) -> Floats:
        """Output tokens: as they came, else as planned."""
        return np.where(
            self.output_tokens > 0, self.output_tokens, self.planned_output_tokens
        ).astype(float)


def _typed(name: str, column: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    if name in MOMENTS:
        return np.asarray(column, np.float64)
    return np.asarray(column, object if name in NAMES else np.int64)


def _header(name: str) -> str:
    return "class" if name == "class_name" else name


def write_records(path: Path, records: Records) -> None:
    """As gzipped CSV, moved into place when it is whole."""
    names = [f.name for f in fields(Records)]
    columns = [_texts(name, getattr(records, name)) for name in names]
    with (
        moved_into_place(path) as part,
        gzip.open(part, "wt", compresslevel=4, newline="", encoding="utf-8") as out,
    ):
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(map(_header, names))
        writer.writerows(zip(*columns, strict=True))


@contextmanager
def moved_into_place(path: Path) -> Iterator[Path]:
    """A path to write to; it becomes ``path`` when that is done, and goes when it fails."""
    part = path.with_name(path.name + ".part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _texts(name: str, column: NDArray[Any]) -> list[str]:
    if name in MOMENTS:
        return ["" if isnan(v) else f"{v:.9f}" for v in column.tolist()]
    if name in NAMES:
        return [str(v) for v in column.tolist()]
    return ["" if v == -1 and name != "worker" else str(v) for v in column.tolist()]


def read_records(path: Path) -> Records:
    """What ``write_records`` wrote. Raises PlanError with the line."""
    names = [f.name for f in fields(Records)]
    try:
        text = gzip.decompress(path.read_bytes()).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise PlanError(f"{path}: cannot be read: {why}.") from None
    header, _, body = text.partition("\n")
    if header.rstrip("\r").split(",") != [_header(n) for n in names]:
        raise PlanError(
            f"{path}, line 1: found {header[:80]}, expected the columns of records.csv.gz."
        )
    cells = _cells(path, body, len(names))
    columns = {name: cells[k :: len(names)] for k, name in enumerate(names)}
    return Records.from_columns({n: _read(path, n, column) for n, column in columns.items()})


def _cells(path: Path, body: str, width: int) -> list[str]:
    """All cells, row after row. Without quotes a split does, which is three times as quick as a reader."""
    lines = body.split("\n")
    if not lines[-1]:
        lines.pop()
    if '"' in body or "\r" in body:
        rows = list(csv.reader(lines))
        _check_widths(path, [len(row) for row in rows], width)
        return [cell for row in rows for cell in row]
    _check_widths(path, [line.count(",") + 1 for line in lines], width)
    return ",".join(lines).split(",") if lines else []


def _check_widths(path: Path, found: list[int], width: int) -> None:
    for number, cells in enumerate(found, start=2):
        if cells != width:
            raise PlanError(f"{path}, line {number}: found {cells} cells, expected {width}.")


def _read(path: Path, name: str, cells: list[str]) -> list[Any]:
    try:
        if name in MOMENTS:
            return [float(c) if c else nan for c in cells]
        return cells if name in NAMES else [int(c) if c else -1 for c in cells]
    except ValueError:
        line, cell = next((k, c) for k, c in enumerate(cells, start=2) if not _is_number(c))
        raise PlanError(
            f"{path}, line {line}: {_header(name)}: found {cell[:40]!r}, allowed are numbers."
        ) from None


def _is_number(cell: str) -> bool:
    try:
        float(cell or 0)
    except ValueError:
        return False
    return True
