"""ServeGen's folders: clients with a rate, a burstiness and lengths for every window of time.

They hold no requests, so requests are drawn: gaps of each client from its own law, lengths from its
own tables. Input and output are drawn independently of each other.
"""

import ast
import csv
import heapq
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workloads.arrivals import Floats, Ints
from workloads.errors import ConfigError
from workloads.trace_rows import BadRow, Row, Rows

MOST = 20_000_000  # rows; more must be asked for in parts
WINDOW_S = 600.0
_INPUTS = ("input_tokens", "text_tokens", "image_tokens", "audio_tokens", "video_tokens")
Pdf = tuple[Ints, Floats]


class Window(NamedTuple):
    """One client for 600 s."""

    from_s: float
    rate_rps: float
    cv: float
    pattern: str
    shape: float


def is_servegen(folder: Path) -> bool:
    """Whether a folder holds chunk-<i>-trace.csv files."""
    return bool(list(folder.glob("chunk-*-trace.csv")))


def read_servegen(folder: Path, limit: int | None, seed: int = 0) -> Rows:
    """Requests of all clients in order of time. Raises ConfigError when they are too many."""
    clients: list[Iterator[Row]] = []
    expected = 0.0
    for k, file in enumerate(sorted(folder.glob("chunk-*-trace.csv"))):
        windows = list(_windows(file))
        lengths = file.with_name(file.name.replace("-trace.csv", "-dataset.json"))
        share = sum(w.rate_rps for w in windows) * WINDOW_S
        if not lengths.exists():
            yield BadRow(k, "no lengths for a client", lengths.name, "", known=True)
            continue
        expected += share
        clients.append(_client(windows, _lengths(lengths), np.random.default_rng([seed, k])))
    if expected > MOST and limit is None:
        raise ConfigError(
            f"{folder}: holds about {expected:.0f} requests, allowed are {MOST} at once; limit them."
        )
    yield from heapq.merge(*clients, key=lambda row: row.moment)


def _windows(file: Path) -> Iterator[Window]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        for line, row in enumerate(csv.reader(lines), 1):
            try:
                rate = float(row[1])
                if rate > 0:
                    shape = float(row[4]) if len(row) > 4 and row[4] else math.nan
                    yield Window(float(row[0]), rate, float(row[2] or 1), row[3].strip(), shape)
            except (ValueError, IndexError):
                raise ConfigError(
                    f"{file}, line {line}: found {','.join(row)[:80]!r}, allowed is "
                    "t_s,rate_rps,cv,pattern,shape,scale."
                ) from None


def _lengths(file: Path) -> dict[float, dict[str, Pdf]]:
    """Tables of counts and their shares, by the window they begin with."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {
            float(start): {name: _pdf(text) for name, text in fields.items() if "tokens" in name}
            for start, fields in found.items()
        }
    except (ValueError, SyntaxError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"{file}: found {str(error)[:80]!r}, allowed is "
            '{window: {"input_tokens": "{tokens: share, ...}", ...}}.'
        ) from None


def _pdf(text: str | dict[str, float]) -> Pdf:
    table = ast.literal_eval(text) if isinstance(text, str) else text
    counts = np.array([int(k) for k in table], np.int64)
    shares = np.cumsum(np.array(list(table.values()), float))
    if not len(counts) or shares[-1] <= 0:
        raise ValueError("an empty table")
    return counts, shares / shares[-1]


def _client(
    windows: list[Window], lengths: dict[float, dict[str, Pdf]], rng: np.random.Generator
) -> Iterator[Row]:
    starts = np.array(sorted(lengths))
    for w in windows:
        moments = w.from_s + _moments(w, rng)
        place = max(int(np.searchsorted(starts, w.from_s, side="right")) - 1, 0)
        tables = lengths[starts[place]]
        inputs = sum(
            (_drawn(tables[name], rng, len(moments)) for name in _INPUTS if name in tables),
            np.zeros(len(moments), np.int64),
        )
        outputs = _drawn(tables["output_tokens"], rng, len(moments))
        for moment, a, b in zip(
            moments.tolist(),
            np.maximum(inputs, 1).tolist(),
            np.maximum(outputs, 1).tolist(),
            strict=True,
        ):
            yield Row(0, moment, a, b)


def _drawn(table: Pdf, rng: np.random.Generator, n: int) -> Ints:
    counts, shares = table
    return counts[np.minimum(np.searchsorted(shares, rng.random(n)), len(counts) - 1)]


def _moments(w: Window, rng: np.random.Generator) -> Floats:
    """Arrivals of one window, from its begin: a renewal process of its rate."""
    n = int(w.rate_rps * WINDOW_S + 6 * max(w.cv, 1) * math.sqrt(w.rate_rps * WINDOW_S) + 16)
    if w.pattern == "Weibull" and w.shape > 0:
        gaps = rng.weibull(w.shape, n) / math.gamma(1 + 1 / w.shape)
    else:
        shape = 1 / w.cv**2 if w.cv > 0 else 1.0
        gaps = rng.gamma(shape, 1 / shape, n)
    # A renewal process that has long been going on: its first gap is what is left of one.
    moments = (np.cumsum(gaps) - gaps[0] * rng.random()) / w.rate_rps
    return np.asarray(moments[moments < WINDOW_S])
