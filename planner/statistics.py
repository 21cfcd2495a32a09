"""How sure a figure is. Latencies in a queue are alike in their neighbours, so n samples are worth
fewer; every interval here is taken at the effective size.

Two tests of a violation rate against the 1 % that a P99 allows:

confirmed   Clopper-Pearson at the effective size: passes falsely in at most 3 % of runs
likely      a t-interval over the means of ten batches: settles in minutes, false passes up to 7 % at
            utilisation 0.8 and five minutes
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
BATCHES = 10
CAPPED_AT = 0.995  # the few values above would hide how alike the others are
MAX_SERIES = 1 << 17  # beyond, an autocorrelation is taken over the means of neighbours


def _special() -> Any:
    """scipy.special, imported at first use: it takes most of a second, and only a verdict needs it."""
    from scipy import special  # noqa: PLC0415

    return special


def nearest_rank(values: Floats, q: float) -> float:
    """The value that a share ``q`` does not exceed: rank ceil(q n); nan without values."""
    if not len(values):
        return math.nan
    k = max(math.ceil(q * len(values) - 1e-9) - 1, 0)
    return float(np.partition(values, k)[k])


def autocorrelation_time(series: Floats) -> float:
    """Samples that are worth one, by Geyer's initial positive sequence; at least 1.

    The series is in order of time; at most 0.1 of its length is looked back over.
    """
    width = -(-len(series) // MAX_SERIES)
    if width > 1:
        return width * autocorrelation_time(
            series[: len(series) // width * width].reshape(-1, width).mean(axis=1)
        )
    n = len(series)
    x = series - series.mean() if n else series
    variance = float(x @ x)
    if n < 20 or variance <= 1e-16 * float(series @ series):
        return 1.0  # as good as constant
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(x, size)) ** 2
    rho = np.fft.irfft(spectrum, size)[: max(n // 10, 2)] / variance
    tau = 1.0
    for k in range(1, len(rho) - 1, 2):
        pair = float(rho[k] + rho[k + 1])
        if pair <= 0:
            break
        tau += 2 * pair
    return max(tau, 1.0)


def effective_size(values: Floats) -> float:
    """How many independent samples these are worth; ``values`` in order of time."""
    if not len(values):
        return 0.0
    return len(values) / autocorrelation_time(np.minimum(values, nearest_rank(values, CAPPED_AT)))


def quantile_interval(values: Floats, q: float, n_eff: float) -> tuple[float, float]:
    """95 % interval of a quantile from order statistics at the effective size; nan: no bound."""
    n = max(n_eff, 1.0)
    low = float(_special().bdtrik(0.025, n, q)) / n
    high = (float(_special().bdtrik(0.975, n, q)) + 1) / n
    return (
        nearest_rank(values, low) if low > 0 else math.nan,
        nearest_rank(values, high) if high <= 1 else math.nan,
    )


def rate_interval(violations: float, n: float) -> tuple[float, float]:
    """Clopper-Pearson, one-sided 95 % each way: (not below, not above). Sizes need not be whole."""
    if n <= 0:
        return 0.0, 1.0
    k = min(violations, n)
    low = float(_special().betaincinv(k, n - k + 1, 0.05)) if k > 0 else 0.0
    high = float(_special().betaincinv(k + 1, n - k, 0.95)) if k < n else 1.0
    return low, high


def samples_to_pass(allowed: float, violations: float = 0.0) -> int:
    """The fewest samples with which ``rate_interval`` passes: 299 at 1 % with no violation, 473 with one."""
    low, high = 1, 1 << 24
    while low < high:
        n = (low + high) // 2
        if rate_interval(violations, n)[1] <= allowed:
            high = n
        else:
            low = n + 1
    return low


def batch_interval(violated: Flags) -> tuple[float, float]:
    """One-sided 95 % bounds of the violation rate from the means of ten batches in order of time."""
    means = batch_means(violated.astype(float))
    half = student(0.95, BATCHES - 1) * float(means.std(ddof=1)) / math.sqrt(BATCHES)
    return float(means.mean() - half), float(means.mean() + half)


def batch_means(series: Floats) -> Floats:
    """Means of ten batches of neighbours."""
    return np.array([float(b.mean()) if len(b) else 0.0 for b in np.array_split(series, BATCHES)])


def student(q: float, freedom: int) -> float:
    """Quantile of Student's t."""
    return float(_special().stdtrit(freedom, q))


def mser5(series: Floats) -> int:
    """Where a series has settled (MSER-5): the number of leading values to leave out, at most half."""
    blocks = series[: len(series) // 5 * 5].reshape(-1, 5).mean(axis=1)
    n = len(blocks)
    if n < 4:
        return 0
    kept = np.arange(n, n - n // 2 - 1, -1, dtype=float)  # blocks that stay, for each cut
    tail = np.cumsum(blocks[::-1])[::-1][: len(kept)] / kept
    squares = np.cumsum(blocks[::-1] ** 2)[::-1][: len(kept)] / kept
    return 5 * int(np.argmin(np.maximum(squares - tail**2, 0.0) / kept))


@dataclass(frozen=True, slots=True)
class Growth:
    """Whether a series rises over a window: by how much, and by how much for certain (99 %)."""

    rise: float
    at_least: float


def growth(series: Floats) -> Growth:
    """Rise from the first to the last batch by least squares over ten batch means."""
    y = batch_means(series)
    x = np.arange(BATCHES) - (BATCHES - 1) / 2
    slope = float(x @ (y - y.mean()) / (x @ x))
    rest = y - y.mean() - slope * x
    error = math.sqrt(float(rest @ rest) / (BATCHES - 2) / float(x @ x))
    span = BATCHES - 1
    return Growth(span * slope, span * (slope - student(0.99, BATCHES - 2) * error))
