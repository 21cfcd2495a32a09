"""Laws for the columns of a trace: quantile tables for lengths, two levels for arrivals."""

import math
from dataclasses import dataclass

import numpy as np

from workloads.arrivals import Floats
from workloads.describe import Counts, cv, per_minute, windowed_cv
from workloads.lengths import Quantiles

# Where the tables have points: close together where a tail decides.
Q = (
    *(0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85),
    *(0.9, 0.925, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.998, 0.999, 1.0),
)
RESAMPLED = 200_000
IDLE = 0.02  # of the mean: a minute with no more is silent
MEAN_ERROR, MORE_POINTS = 0.01, 40


@dataclass(frozen=True)
class Fit:
    """A quantile table and how well 200,000 draws from it come back to the data."""

    table: Quantiles
    ks: float
    mean_ratio: float
    p99_ratio: float

    def told(self, name: str) -> str:
        """One line."""
        return (
            f"{name}: KS {self.ks:.3f}, mean x{self.mean_ratio:.3f}, P99 x{self.p99_ratio:.3f} "
            f"({RESAMPLED} draws)"
        )


def quantile_table(values: Counts) -> Quantiles:
    """Quantiles at ``Q``; the last is an effective end that keeps the mean of the tail.

    Where lengths jump, points are put in until the mean is kept too.
    """
    data = np.sort(np.asarray(values, float))
    whole = bool(np.all(data == np.rint(data)))
    q = list(Q)
    for _ in range(MORE_POINTS):
        table = _table(data, q, whole)
        errors = _errors(data, table)
        if abs(errors.sum()) <= MEAN_ERROR * data.mean():
            break
        k = int(np.argmax(np.abs(errors)))
        q.insert(k + 1, round((q[k] + q[k + 1]) / 2, 6))
    return _table(data, q, whole)


def _table(data: Floats, q: list[float], whole: bool) -> Quantiles:
    v = np.maximum(np.quantile(data, q), np.finfo(float).tiny)
    tail = data[data >= v[-2]]
    v[-1] = _effective_end(float(v[-2]), float(data[-1]), float(tail.mean()))
    rounded = np.rint(v) if whole else np.array([float(f"{x:.4g}") for x in v])
    return Quantiles(tuple(q), tuple(np.maximum.accumulate(rounded).tolist()), float(data[-1]))


def _errors(data: Floats, table: Quantiles) -> Floats:
    """What each stretch of the table adds to the mean that the data does not have."""
    u = (np.arange(50_000) + 0.5) / 50_000
    drawn = table.continuous(u)
    there = data[np.minimum((u * len(data)).astype(np.int64), len(data) - 1)]
    stretch = np.searchsorted(np.array(table.q), u, side="right") - 1
    sums = np.bincount(stretch, (drawn - there) / len(u), len(table.q) - 1)
    return np.asarray(sums, np.float64)


def _effective_end(begin: float, most: float, mean: float) -> float:
    """The end of a log-linear stretch from ``begin`` on that has this mean: at most ``most``."""
    low, high = begin, most
    for _ in range(60):
        end = (low + high) / 2
        its_mean = (end - begin) / math.log(end / begin) if end > begin * (1 + 1e-9) else begin
        low, high = (end, high) if its_mean < mean else (low, end)
    return high


def fit(values: Counts, seed: int = 0) -> Fit:
    """A table for token counts, held against the data."""
    table = quantile_table(values)
    drawn = table.sample(np.random.default_rng(seed), RESAMPLED)
    data = np.sort(np.asarray(values))
    return Fit(
        table,
        ks=ks_distance(data, np.sort(drawn)),
        mean_ratio=float(drawn.mean() / data.mean()),
        p99_ratio=float(np.quantile(drawn, 0.99) / np.quantile(data, 0.99)),
    )


def ks_distance(a: Counts, b: Counts) -> float:
    """Greatest distance between two sorted samples' distributions."""
    points = np.unique(np.concatenate([a, b]))
    one = np.searchsorted(a, points, side="right") / len(a)
    two = np.searchsorted(b, points, side="right") / len(b)
    return float(np.abs(one - two).max())


@dataclass(frozen=True)
class Course:
    """Arrivals: cv of gaps within a minute, and how the minutes' rates differ."""

    gap_cv: float
    cv: float
    ar1: float
    idle: float


def course(due_s: Floats) -> Course:
    """Two levels: a minute's rate, and gaps within it. Noise of counting is taken off the first."""
    within = windowed_cv(due_s)
    gap_cv = within if within is not None else cv(np.diff(due_s))
    counts = per_minute(due_s, np.ones(len(due_s)))
    mean = float(counts.mean())
    if len(counts) < 5:
        return Course(gap_cv, 0.0, 0.0, 0.0)
    idle = float((counts <= IDLE * mean).mean()) if mean > 10 else 0.0  # else they are chance
    # A renewal process at one rate has a variance of cv^2 * mean in its counts.
    variance = max(float(counts.var()) - gap_cv**2 * mean, 0.0)
    least = math.sqrt(idle / (1 - idle)) * 1.01
    return Course(gap_cv, max(math.sqrt(variance) / mean, least), _lag1(counts), idle)


def _lag1(counts: Floats) -> float:
    """Of the logarithms of minutes that follow each other, both busy."""
    on = counts > IDLE * counts.mean()
    busy = on[:-1] & on[1:]
    logs = np.log(np.maximum(counts, 1))
    one, two = logs[:-1][busy], logs[1:][busy]
    if len(one) < 5 or one.std() == 0 or two.std() == 0:
        return 0.0
    return float(np.clip(np.corrcoef(one, two)[0, 1], 0.0, 0.95))


def day_curve(due_s: Floats) -> list[float]:
    """Rate of each hour of the day over the mean; the first hour is the one that the trace begins in."""
    hours = (due_s // 3600).astype(np.int64)
    whole = hours < due_s[-1] // 86_400 * 24  # days that are there as a whole
    counts = np.bincount(hours[whole] % 24, minlength=24)
    return [round(float(x), 2) for x in counts / counts.mean()]
