"""Times too many to ship or keep one by one are counted, in log bins 0.5 % wide.

A worker counts its token gaps per bin and sends the counts it has not sent yet; the master adds
them up. Counts of parts add up to the counts of the whole, and a quantile is within 0.25 % of the
true one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil, exp

import numpy as np
from numpy.typing import NDArray

ACCURACY = 0.0025
_GAMMA_LOG = 2 * ACCURACY
_FLOOR_S = 1e-6


def count_gaps(gaps_s: Sequence[float] | NDArray[np.float64], into: Counter[int]) -> None:
    """Add gaps, seconds, to ``into``: bin -> count."""
    if len(gaps_s):
        gaps = np.maximum(np.asarray(gaps_s, float), _FLOOR_S)
        bins, counts = np.unique(np.rint(np.log(gaps) / _GAMMA_LOG).astype(int), return_counts=True)
        into.update(dict(zip(bins.tolist(), counts.tolist(), strict=True)))


class GapSketch:
    """All gaps of a run, over all workers; any other kind of time as well."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, counts: Mapping[int, int]) -> None:
        """Take in the counts of one report."""
        self._counts.update(counts)

    def add_s(self, seconds: NDArray[np.float64]) -> None:
        """Take in times; those that are not finite do not count."""
        count_gaps(seconds[np.isfinite(seconds)], self._counts)

    @property
    def count(self) -> int:
        """How many there are."""
        return self._counts.total()

    def quantile_ms(self, q: float) -> float | None:
        """The nearest-rank quantile in milliseconds; None without any."""
        bins = sorted(self._counts)
        if not bins:
            return None
        rank = max(ceil(q * self.count), 1)
        ends = accumulate(self._counts[k] for k in bins)
        k = next(k for k, end in zip(bins, ends, strict=True) if end >= rank)
        return 1000 * exp(k * _GAMMA_LOG)
