"""A Prometheus histogram and the bounds that SGLang's exporter uses. Pure."""

from bisect import bisect_left
from collections.abc import Iterator

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 400)
STEP_SECONDS = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.06, 0.1, 0.2, 1)
MILLISECONDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
LATENESS_SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.01, 0.05)


class Histogram:
    """Counts by upper bound, their sum and number."""

    __slots__ = ("bounds", "count", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float, times: int = 1) -> None:
        """``value``, ``times`` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
        self.count += times

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """``le`` and the count at or below it, as Prometheus wants them."""
        total = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            total += count
            yield f"{bound:g}", total
        yield "+Inf", self.count
