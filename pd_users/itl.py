"""Gaps between tokens: too many to ship one by one, so they are counted in narrow log bins.

A worker counts per bin and sends the counts it has not sent yet; the master adds them to one
DDSketch. Bin and sketch are each within 0.25 %, so a quantile is within 0.5 % of the true one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from ddsketch import DDSketch

ACCURACY = 0.0025
_GAMMA_LOG = 2 * ACCURACY
_FLOOR_S = 1e-6


def count_gaps(gaps_s: Sequence[float], into: Counter[int]) -> None:
    """Add a request's gaps, seconds, to ``into``: bin -> count."""
    if len(gaps_s):
        gaps = np.maximum(np.asarray(gaps_s, float), _FLOOR_S)
        bins, counts = np.unique(np.rint(np.log(gaps) / _GAMMA_LOG).astype(int), return_counts=True)
        into.update(dict(zip(bins.tolist(), counts.tolist(), strict=True)))


class GapSketch:
    """All gaps of a run, over all workers."""

    def __init__(self) -> None:
        self._sketch = DDSketch(ACCURACY)

    def add(self, counts: Mapping[int, int]) -> None:
        """Take in the counts of one report."""
        for key, count in counts.items():
            self._sketch.add(float(np.exp(int(key) * _GAMMA_LOG)), float(count))

    @property
    def count(self) -> int:
        """How many gaps there are."""
        return int(self._sketch.count)

    def quantile_ms(self, q: float) -> float | None:
        """A quantile in milliseconds; None without gaps."""
        value = self._sketch.get_quantile_value(q)
        return None if value is None else float(value) * 1000
