"""Traces of real traffic: loaded from their files, replayed as a workload.

The format is found by the file's content and said in ``notes``, as are rows that were left out,
sorted or spread. A broken row is an error with its line; it never silently shortens a trace.
"""

import hashlib
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from workloads.arrivals import Floats, Schedule
from workloads.draws import JITTER, generator
from workloads.errors import ConfigError
from workloads.replay import Replay, Table
from workloads.trace_files import Opened, open_trace
from workloads.trace_rows import BadRow, Chunk, Columns, Row
from workloads.trace_table import settled

TICK_ROWS = 100  # fewer say nothing about the clock of a source


@dataclass(frozen=True)
class Trace:
    """Rows of a trace; offers what a Workload offers. ``tick_s``: moments are spread over so much."""

    name: str
    table: Table = field(repr=False)
    tick_s: float = 0.0
    digest: str = ""
    notes: tuple[str, ...] = ()
    format: str = ""
    ttft_p99_ms: float | None = None
    tpot_p99_ms: float | None = None
    users: int | None = None

    @property
    def window_s(self) -> float | None:
        """From the first row to just after the last; None when rows have no moments."""
        if self.table.moment is None:
            return None
        return float(self.table.moment[-1]) + max(self.tick_s, 0.001)

    @property
    def rate_rps(self) -> float | None:
        """Mean over the trace, later turns counted in; None when rows have no moments."""
        if self.table.moment is None:
            return None
        span_s = float(self.table.moment[-1])
        return (len(self.table) - 1) / span_s if span_s > 0 else float(len(self.table))

    @property
    def longest_output_tokens(self) -> float:
        """Of any row."""
        return float(self.table.output.max())

    @property
    def expected_output_tokens(self) -> float:
        """Mean."""
        return float(self.table.output.mean())

    def moments(self, seed: int) -> Floats | None:
        """Of the scheduled rows; those on one tick of the source's clock are spread until the next."""
        moment = self.table.moment
        if moment is None or not self.tick_s:
            return moment
        begins, ticks = np.flatnonzero(np.diff(moment, prepend=-1.0) > 0), moment
        room = np.minimum(np.diff(moment[begins], append=np.inf), self.tick_s)
        counts = np.diff(begins, append=len(moment))
        late = generator(seed, JITTER, 0).random(len(moment)) * np.repeat(room, counts)
        return np.sort(ticks + late)  # within a tick the rows keep their order

    def schedule(self, seed: int, window_s: float, rate_rps: float | None = None) -> Schedule:
        """The rows that are due within the window. ``rate_rps`` is for traces without moments.

        Raises ConfigError when such a trace gets no rate.
        """
        due_s = self.moments(seed)
        if due_s is None and rate_rps is None:
            raise ConfigError(f"trace {self.name}: its rows have no moments; give --rate.")
        source = Replay(self.table, self.name, due_s, rate_rps or 0.0, seed)
        return Schedule(source, (self.name,), window_s)


def load_trace(
    path: str,
    speed: float = 1.0,
    limit: int | None = None,
    *,
    format: str | None = None,
    skip_bad_rows: bool = False,
    jitter_s: float | None = None,
) -> Trace:
    """A trace file or folder (.gz too), replayed ``speed`` times faster.

    ``limit`` keeps the first rows; ``jitter_s`` None spreads rows over a source's coarse ticks.
    Raises ConfigError: file, line, what was found, what is allowed.
    """
    for name, value, least in (
        ("speed", speed, 1e-9),
        ("limit", limit, 1),
        ("jitter_s", jitter_s, 0),
    ):
        if value is not None and not value >= least:
            allowed = "more than 0" if name == "speed" else f"{least} or more"
            raise ConfigError(f"trace {name}: found {value:g}, allowed is {allowed}.")
    opened = open_trace(Path(path), format, limit)
    columns, left_out = _gather(opened, limit, skip_bad_rows)
    table, told = settled(opened, columns, speed)
    file = Path(path).name
    notes = [f"{file}: {text}" for text in (_read_as(opened, table, speed), *told)]
    notes += [f"{file}: left out {n} rows: {reason}" for reason, n in left_out.items()]
    if opened.estimated:
        notes.append(f"{file}: lengths are estimated from characters: within 10 % for prose")
    tick_s = (
        _tick(table.moment, opened.whole_seconds, speed) if jitter_s is None else jitter_s / speed
    )
    if tick_s and jitter_s is None:
        notes.append(
            f"{file}: its clock ticks every {tick_s * speed:.3g} s: arrivals are spread in between"
        )
    name = file.removesuffix(".gz").rsplit(".", 1)[0]
    return Trace(name, table, tick_s, _digest(table, tick_s), tuple(notes), opened.format)


def _read_as(opened: Opened, table: Table, speed: float) -> str:
    """What it was taken for: format, unit, size of blocks, how many requests."""
    unit = {1.0: "seconds", 0.001: "milliseconds", 1e-9: "nanoseconds", 1e-6: "wall clock"}
    moments, span = "no moments", ""
    if table.moment is not None:
        moments = f"moments in {unit[opened.unit_s]}"
        span = f" over {table.moment[-1] * speed:.4g} s"
    blocks = f", prefix blocks of {table.blocks.size} tokens" if table.blocks is not None else ""
    talks = f" in {len(table.starts)} conversations" if table.firsts is not None else ""
    return (
        f"read as {opened.format} ({opened.about}): {moments}{blocks}; {len(table)} requests"
        f"{talks}{span}"
    )


def _gather(opened: Opened, limit: int | None, skip: bool) -> tuple[Columns, Counter[str]]:
    columns, left_out = Columns(), Counter[str]()
    for row in opened.rows:
        room = math.inf if limit is None else limit - len(columns)
        if isinstance(row, Row):
            columns.add(row)
        elif isinstance(row, Chunk):
            columns.extend(row if len(row) <= room else row.first(int(room)))
        elif skip or row.known:
            left_out[row.reason] += row.rows
        else:
            raise ConfigError(_sentence(opened, row))
        if len(columns) == limit:
            break
    if not len(columns):
        why = "; ".join(f"left out {n}: {reason}" for reason, n in left_out.items())
        raise ConfigError(f"{opened.path}: holds no requests{f' ({why})' if why else ''}.")
    return columns, left_out


def _sentence(opened: Opened, row: BadRow) -> str:
    return (
        f"{opened.path}, {opened.row_is} {row.line}: {row.reason}, found {row.found}, allowed is "
        f"{row.allowed}; --skip-bad-rows leaves such rows out and counts them."
    )


def _tick(due_s: Floats | None, whole_seconds: bool, speed: float) -> float:
    """Seconds between ticks of a source whose clock is too coarse for its rate; 0: it is not."""
    if due_s is None or len(due_s) < TICK_ROWS:
        return 0.0
    gaps = np.diff(due_s) * speed
    between = gaps[gaps > 0]
    if not len(between):
        return 0.0
    if np.mean(gaps == 0) >= 0.5 and between.min() >= 0.9:
        return float(np.median(between)) / speed
    return 1.0 / speed if whole_seconds and np.all(gaps == np.rint(gaps)) else 0.0


def _digest(table: Table, tick_s: float) -> str:
    h = hashlib.sha256(repr((tick_s, len(table))).encode())
    for column in (table.moment, table.input, table.output, table.shared, table.think_s):
        if column is not None:
            h.update(np.ascontiguousarray(column).data)
    if table.blocks is not None:
        h.update(table.blocks.ids.data)
    return h.hexdigest()[:16]
