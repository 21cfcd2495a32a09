"""Traces as CSV: columns are found by name, never by place."""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

import numpy as np

from workloads.arrivals import Floats
from workloads.trace_rows import Chunk, Row, Rows, WrongRowError, number, tokens

AT_ONCE = 16_384  # rows that are turned into columns together

_ZERO = datetime(2000, 1, 1, tzinfo=UTC)
_CLOCK = "a time such as 2023-11-16 18:15:46.6805900"


@dataclass(frozen=True)
class Layout:
    """Which columns of a CSV mean what. ``unit_s`` is that of its moments."""

    about: str
    input: str
    output: str
    moment: str | None = None
    unit_s: float = 1.0
    more_input: str | None = None  # a further column that counts as input, where it is there
    session: str | None = None
    think_s: str | None = None
    reused: tuple[str, int] | None = None  # column and the tokens that its unit stands for
    failed_are_zero: bool = False  # failed requests stand there with 0 output tokens
    marks: tuple[str, ...] = ()  # further columns that only this format has

    @property
    def failed(self) -> WrongRowError:
        """What a row of a failed request is."""
        return WrongRowError(f"0 {self.output} (a failed request)", 0, "1 or more", known=True)

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns without which it is not this format."""
        return (self.input, self.output, *self.marks)


TABLES = {
    "azure": Layout(
        "Azure LLM inference trace",
        *("ContextTokens", "GeneratedTokens", "TIMESTAMP"),
        unit_s=1e-6,  # moments are turned into microseconds, which a double holds exactly
        marks=("TIMESTAMP",),
    ),
    "burstgpt": Layout(
        "BurstGPT",
        *("Request tokens", "Response tokens", "Timestamp"),
        session="Session ID",
        failed_are_zero=True,
        marks=("Timestamp",),
    ),
    "weka-csv": Layout(
        "agent sessions",
        *("input_tokens", "output_tokens"),
        session="conv",
        think_s="think_time_s",
        reused=("reused_blocks", 64),
        failed_are_zero=True,
        marks=("conv", "think_time_s", "reused_blocks"),
    ),
    "servegen-csv": Layout(
        "ServeGen, rows",
        *("input_tokens", "output_tokens", "timestamp_s"),
        more_input="image_tokens",
    ),
    "sharegpt-csv": Layout(
        "ShareGPT lengths",
        *("input_tokens_with_history", "output_tokens"),
        session="conv",
        marks=("conv",),
    ),
    "vidur": Layout("vidur", *("num_prefill_tokens", "num_decode_tokens", "arrived_at")),
    "splitwise": Layout("splitwise-sim", *("prompt_size", "token_size", "arrival_timestamp")),
    "llmservingsim-csv": Layout(
        "LLMServingSim",
        *("input_toks", "output_toks", "arrival_time_ns"),
        unit_s=1e-9,
    ),
}


def table_of(header: list[str]) -> str | None:
    """The format with this header line."""
    there = {name.strip() for name in header}
    return next((name for name, table in TABLES.items() if there.issuperset(table.needs)), None)


def read_csv(lines: Iterator[str], table: Layout) -> Rows:
    """Rows of a CSV with a header line. Raises WrongRowError when a column is missing."""
    rows = csv.reader(lines)
    header = [name.strip() for name in next(rows, [])]
    missing = [name for name in table.needs if name not in header]
    if missing:
        raise WrongRowError(f"no column {missing[0]}", ", ".join(header), ", ".join(table.needs))
    read = _Reader(table, header)
    line = rows.line_num
    while part := list(islice(rows, AT_ONCE)):
        chunk = read.at_once(part)
        if chunk is None:  # something in it is not plain: row by row, to find out what
            yield from read.one_by_one(line + 1, part)
        else:
            yield chunk
            if failed := len(part) - len(chunk):
                yield replace(table.failed.row(line + 1), rows=failed)
        line = rows.line_num


class _Reader:
    def __init__(self, table: Layout, header: list[str]) -> None:
        def place(name: str | None) -> int | None:
            return header.index(name) if name in header else None

        self._table, self._width = table, len(header)
        self._input, self._output = header.index(table.input), header.index(table.output)
        self._moment, self._more = place(table.moment), place(table.more_input)
        self._session, self._think = place(table.session), place(table.think_s)
        self._reused = place(table.reused[0]) if table.reused else None
        self._clock = table.moment == "TIMESTAMP"

    def at_once(self, rows: list[list[str]]) -> Chunk | None:
        """All of them in columns; None when any is not what most are."""
        if {self._session, self._think, self._reused, self._more} != {None}:
            return None
        try:
            inputs, outputs = (
                np.fromiter((int(row[place]) for row in rows), np.int64, len(rows))
                for place in (self._input, self._output)
            )
            moments = np.full(len(rows), math.nan)
            if self._moment is not None:
                moments = self._moments([row[self._moment] for row in rows])
        except (ValueError, IndexError, OverflowError):
            return None
        kept = outputs > 0 if self._table.failed_are_zero else np.full(len(rows), True)
        chunk = Chunk(moments[kept], inputs[kept], outputs[kept])
        if (self._moment is not None and not np.isfinite(moments).all()) or outputs.min() < 0:
            return None
        plain = not len(chunk) or (chunk.input.min() >= 1 and chunk.output.min() >= 1)
        return chunk if plain else None

    def _moments(self, texts: list[str]) -> Floats:
        if not self._clock:
            return np.fromiter(map(float, texts), np.float64, len(texts))
        texts = [text.removesuffix("+00:00") for text in texts]
        whole = "".join(texts)
        if "+" in whole or "Z" in whole or whole.count("-") != 2 * len(texts):
            raise ValueError("offsets from UTC")
        since = np.array(texts, "datetime64[us]") - np.datetime64(_ZERO.replace(tzinfo=None), "us")
        return since.astype(np.float64)

    def one_by_one(self, first: int, rows: list[list[str]]) -> Rows:
        """Row by row from line ``first`` on, with those that are wrong; blank ones left out."""
        for line, row in enumerate(rows, first):
            if not row:
                continue
            try:
                yield self._row(line, row)
            except WrongRowError as wrong:
                yield wrong.row(line)
            except IndexError:
                yield WrongRowError(
                    "too few columns", ",".join(row), f"the {self._width} columns of line 1"
                ).row(line)

    def _row(self, line: int, row: list[str]) -> Row:
        t = self._table
        moment = math.nan
        if self._moment is not None:
            text = row[self._moment]
            moment = _clock_us(text) if self._clock else number(text, str(t.moment))
        if t.failed_are_zero and row[self._output].strip() in ("0", "0.0"):
            raise t.failed
        inputs = tokens(row[self._input], t.input)
        if self._more is not None:
            inputs += int(number(row[self._more] or "0", str(t.more_input)))
        reused = -1
        if self._reused is not None and t.reused is not None:
            reused = int(number(row[self._reused], t.reused[0])) * t.reused[1]
        return Row(
            line,
            moment,
            inputs,
            tokens(row[self._output], t.output),
            session=(row[self._session] or None) if self._session is not None else None,
            think_s=self._pause(row),
            reused=reused,
        )

    def _pause(self, row: list[str]) -> float:
        """Seconds; nan where none is told."""
        if self._think is None or not row[self._think]:
            return math.nan
        return number(row[self._think], str(self._table.think_s))


def _clock_us(text: str) -> float:
    """Microseconds since 2000; without an offset it is UTC. Seven decimals keep six."""
    text = text.strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongRowError("TIMESTAMP is not a time", text, _CLOCK) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _ZERO
    return float((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
