"""How sure a percentile is. Latencies in a queue are alike in their neighbours, so n samples are worth
fewer; every interval here is taken at the effective size.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BATCHES = 10


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
    n = len(series)
    x = series - series.mean() if n else series
    variance = float(x @ x)
    if n < 20 or variance <= 0:
        return 1.0
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
    """Clopper-Pearson, one-sided 95 % each way: (not below, not above)."""
    if n <= 0:
        return 0.0, 1.0
    k = min(violations, n)
    low = float(_special().betaincinv(k, n - k + 1, 0.05)) if k > 0 else 0.0
    high = float(_special().betaincinv(k + 1, n - k, 0.95)) if k < n else 1.0
    return low, high


def batch_interval(violated: NDArray[np.bool_]) -> tuple[float, float]:
    """One-sided 95 % bounds of the violation rate from the means of ten batches in order of time."""
    means = np.array([b.mean() for b in np.array_split(violated.astype(float), BATCHES)])
    half = float(_special().stdtrit(BATCHES - 1, 0.95)) * means.std(ddof=1) / math.sqrt(BATCHES)
    return float(means.mean() - half), float(means.mean() + half)


def mser5(series: Floats) -> int:
    """Where a series has settled (MSER-5): the number of leading values to leave out, at most half."""
    blocks = series[: len(series) // 5 * 5].reshape(-1, 5).mean(axis=1)
    n = len(blocks)
    if n < 4:
        return 0
    errors = [float(blocks[d:].var() / (n - d)) for d in range(n // 2 + 1)]
    return 5 * int(np.argmin(errors))
