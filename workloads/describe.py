"""What traffic is like, in numbers: rate, burstiness, lengths, reuse. Of a trace or of a workload."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals import Floats, Ints
from workloads.reuse import hit_curve, working_set_tokens
from workloads.traces import Trace
from workloads.workload import Workload

WINDOW_S, ENOUGH = 60.0, 20  # of a window, and the requests that it must have to count
QUANTILES = (0.1, 0.5, 0.9, 0.99)
Counts = NDArray[np.integer[Any]] | NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Length:
    """One side of the requests, in tokens."""

    mean: float
    cv: float
    p10: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Moments:
    """When requests come. ``peak`` values: the busiest minute over the mean minute."""

    span_s: float
    rate_rps: float
    gap_cv: float
    gap_cv_60s: float | None
    peak_rate: float
    peak_input: float
    peak_output: float
    minutes: Floats = field(repr=False)  # requests in each


@dataclass(frozen=True)
class Description:
    """All numbers; None: not told by the source.

    ``uncached`` tokens are left when nothing is ever forgotten; ``hit_at``: pairs of cache size and
    token hit rate of a least-recently-used cache.
    """

    name: str
    requests: int
    moments: Moments | None
    input: Length
    output: Length
    in_out: float
    rank_correlation: float
    ideal_hit: float | None = None
    uncached: Length | None = None
    hit_at: tuple[tuple[float, float], ...] = ()
    working_set_tokens: float | None = None
    turns: Length | None = None
    think_s: Length | None = None


@dataclass(frozen=True)
class Requests:
    """The columns that are described; ``due_s`` None: no moments of their own."""

    due_s: Floats | None
    input: Ints
    output: Ints
    shared: Ints


def requests_of(source: Trace | Workload, seed: int = 1, n: int | None = None) -> Requests:
    """Of a trace all rows, of a workload about ``n`` requests of a run of it."""
    if isinstance(source, Trace):
        t = source.table
        due_s = source.moments(seed) if t.firsts is None else None
        return Requests(due_s, t.input, t.output, t.shared)
    talks = any(c.talk for c in source.classes)  # are made turn by turn, which takes its time
    n = n or (20_000 if talks else 60_000)
    s = source.schedule(seed, np.inf, source.rate_rps or 1.0).sample(n)
    timed = source.rate_rps is not None and source.users is None
    return Requests(s.due_s if timed else None, s.input_tokens, s.output_tokens, s.shared_tokens)


def describe(
    source: Trace | Workload, requests: Requests, cache_tokens: Sequence[float] = ()
) -> Description:
    """The numbers of these ``requests`` of it; hit rates at cache sizes where it names its blocks."""
    told = _of_columns(source.name, requests)
    if not isinstance(source, Trace):
        return told
    t = source.table
    turns = think_s = None
    if t.session is not None:
        turns = length(np.bincount(t.session[t.session >= 0]))
    if t.firsts is not None and t.think_s.any():
        later = np.ones(len(t), bool)
        later[t.starts] = False
        think_s = length(t.think_s[later])
    told = replace(told, turns=turns, think_s=think_s)
    if t.blocks is None:
        return told
    curve = hit_curve(t.blocks, t.input, cache_tokens)
    return replace(
        told,
        hit_at=tuple(zip(cache_tokens, curve, strict=True)),
        working_set_tokens=float(working_set_tokens(t.blocks)),
    )


def _of_columns(name: str, r: Requests) -> Description:
    reused = bool(r.shared.any())
    return Description(
        name,
        len(r.input),
        moments=_moments(r),
        input=length(r.input),
        output=length(r.output),
        in_out=float(r.input.mean() / r.output.mean()),
        rank_correlation=spearman(r.input, r.output),
        ideal_hit=float(r.shared.sum() / r.input.sum()) if reused else None,
        uncached=length(np.maximum(r.input - r.shared, 1)) if reused else None,
    )


def _moments(r: Requests) -> Moments | None:
    due_s = r.due_s
    if due_s is None or len(due_s) < 3 or due_s[-1] <= due_s[0]:
        return None
    span_s = float(due_s[-1] - due_s[0])
    minutes = per_minute(due_s, np.ones(len(due_s)))
    return Moments(
        span_s,
        len(due_s) / span_s,
        cv(np.diff(due_s)),
        windowed_cv(due_s),
        peak_to_mean(minutes),
        peak_to_mean(per_minute(due_s, r.input)),
        peak_to_mean(per_minute(due_s, r.output)),
        minutes,
    )


def length(values: Counts) -> Length:
    """Moments and quantiles of a column."""
    p10, p50, p90, p99 = np.quantile(values, QUANTILES).tolist()
    return Length(float(values.mean()), cv(values), p10, p50, p90, p99, float(values.max()))


def cv(values: Counts) -> float:
    """Standard deviation over mean."""
    mean = float(values.mean())
    return float(values.std()) / mean if mean else 0.0


def windowed_cv(due_s: Floats) -> float | None:
    """Median over minutes of the gaps' cv within a minute: burstiness without the course of the rate."""
    edges = np.arange(due_s[0], due_s[-1] + WINDOW_S, WINDOW_S)
    parts = np.split(due_s, np.searchsorted(due_s, edges[1:]))
    found = [cv(np.diff(part)) for part in parts if len(part) >= ENOUGH]
    return float(np.median(found)) if found else None


def per_minute(due_s: Floats, weights: Counts) -> Floats:
    """Sum of ``weights`` in each whole minute; of a shorter span, in all of it."""
    minute = ((due_s - due_s[0]) // WINDOW_S).astype(np.int64)
    sums = np.bincount(minute, weights)
    whole = int((due_s[-1] - due_s[0]) // WINDOW_S)
    return np.asarray(sums[:whole] if whole >= 2 else sums)


def peak_to_mean(sums: Floats) -> float:
    """Of the busiest minute."""
    return float(sums.max() / sums.mean())


def spearman(a: Counts, b: Counts) -> float:
    """Rank correlation; equal values share their mean rank. 0 where one side never varies."""
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale else 0.0


def _ranks(values: Counts) -> Floats:
    _, code, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[code])
