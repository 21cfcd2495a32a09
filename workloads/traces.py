"""Replay of real traces: their rows at their own moments."""

import csv
import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np

from workloads.arrivals import BLOCK, Arrival, Block, Sample, Schedule, Segment
from workloads.errors import ConfigError
from workloads.sampling import unfolded

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True)
class Trace:
    """Rows of a trace file; offers what a Workload offers."""

    name: str
    due_s: "np.ndarray[tuple[int], np.dtype[np.float64]]" = field(repr=False)
    input_tokens: "np.ndarray[tuple[int], np.dtype[np.int64]]" = field(repr=False)
    output_tokens: "np.ndarray[tuple[int], np.dtype[np.int64]]" = field(repr=False)
    digest: str = ""
    ttft_p99_ms: float | None = None
    tpot_p99_ms: float | None = None

    @property
    def window_s(self) -> float:
        """From the first row to just after the last."""
        return float(self.due_s[-1]) + 0.001

    @property
    def rate_rps(self) -> float:
        """Mean over the trace."""
        return len(self.due_s) / self.window_s

    @property
    def longest_output_tokens(self) -> float:
        """Of any row."""
        return float(self.output_tokens.max())

    @property
    def expected_output_tokens(self) -> float:
        """Mean."""
        return float(self.output_tokens.mean())

    def schedule(self, seed: int, window_s: float, rate_rps: float | None = None) -> Schedule:
        """The rows that are due within the window; seed and rate have no say in a replay."""
        return Schedule(self, (self.name,), window_s)

    users: int | None = None
    notes: tuple[str, ...] = ()

    def prefix(self, block: Block, k: int) -> tuple[Segment, ...]:
        """Nothing is shared."""
        return ()

    def session(self, block: Block, k: int) -> int:
        """No conversations."""
        return -1

    def follow_up(self, arrival: Arrival, due_from_s: float) -> Arrival | None:
        """None."""
        return None

    def sample(self, n: int) -> Sample:
        """The first rows."""
        return unfolded(self, (self.name,), n)

    def blocks(self, from_s: float) -> Iterator[Block]:
        """The rows in columns."""
        for start in range(0, len(self.due_s), BLOCK):
            rows = slice(start, start + BLOCK)
            n = len(self.due_s[rows])
            zeros = np.zeros(n, np.int64)
            yield Block(
                start,
                self.due_s[rows],
                self.input_tokens[rows],
                self.output_tokens[rows],
                zeros,
                zeros,
                zeros - 1,
            )


def load_trace(path: str, speed: float = 1.0, limit: int | None = None) -> Trace:
    """An Azure CSV (also .gz), replayed ``speed`` times faster. Raises ConfigError with the line."""
    file = Path(path)
    opener = gzip.open if file.suffix == ".gz" else open
    moments: list[float] = []
    inputs: list[int] = []
    outputs: list[int] = []
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines)
            header = [name.strip() for name in next(rows, [])]
            if tuple(header[:3]) != AZURE:
                raise ConfigError(f"{path}, line 1: found {header}, expected {', '.join(AZURE)}.")
            for row in rows:
                if limit is not None and len(moments) >= limit:
                    break
                moment, tokens_in, tokens_out = _row(path, rows.line_num, row)
                moments.append(moment)
                inputs.append(tokens_in)
                outputs.append(tokens_out)
    except OSError as error:
        raise ConfigError(f"--trace: {path} cannot be read: {error.strerror or error}.") from None
    if not moments:
        raise ConfigError(f"{path}: holds no rows.")
    due_s = (np.array(moments) - min(moments)) / speed
    order = np.argsort(due_s, kind="stable")
    digest = hashlib.sha256(repr((moments, inputs, outputs, speed)).encode()).hexdigest()[:16]
    name = file.name.removesuffix(".gz").removesuffix(".csv")
    return Trace(name, due_s[order], np.array(inputs)[order], np.array(outputs)[order], digest)


def _row(path: str, line: int, row: list[str]) -> tuple[float, int, int]:
    try:
        text = row[0].strip()
        head, _, fraction = text.partition(".")
        moment = datetime.fromisoformat(head).timestamp() + float(f"0.{fraction or 0}")
        tokens_in, tokens_out = int(row[1]), int(row[2])
    except (ValueError, IndexError):
        raise ConfigError(
            f"{path}, line {line}: found {row}, expected a time such as 2023-11-16 18:15:46.6805900 "
            "and two whole numbers."
        ) from None
    if tokens_in < 1 or tokens_out < 1:
        raise ConfigError(f"{path}, line {line}: found {row[1:3]}, token counts must be 1 or more.")
    return moment, tokens_in, tokens_out
