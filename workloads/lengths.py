"""Distributions of token counts (and of think times). Each is frozen, samples with the generator it
is handed, and knows its own mean, coefficient of variation and quantiles, so that samples can be
held against it.

All are given by their quantile function: one uniform number makes one count, so that input and
output can be tied by a rank correlation, and other seeds or rates move nothing else.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.ranks import Floats, normal

Counts = NDArray[np.int64]


def _grid() -> tuple[Floats, Floats]:
    """Points and weights to average a quantile function over: fine in both tails, to 1e-9."""
    tail = 0.01 * 10 ** -np.linspace(0, 7, 1401)
    edges = np.concatenate([[0.0], tail[::-1], np.linspace(0.01, 0.99, 9_801)[1:-1], 1 - tail, [1]])
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


_POINTS, _WEIGHTS = _grid()


class Lengths(Protocol):
    """What every distribution of token counts offers; counts are at least 1."""

    @property
    def mean(self) -> float:
        """Tokens."""

    @property
    def cv(self) -> float:
        """Standard deviation over mean."""

    @property
    def clamped_share(self) -> float:
        """Share of draws that would be under one token and are made 1."""

    def quantile(self, q: float) -> float:
        """Tokens that a share ``q`` of requests does not exceed."""

    def draw(self, u: Floats) -> Counts:
        """Counts for uniform numbers ``u`` in (0, 1): the inverse of the distribution."""

    def continuous(self, u: Floats) -> Floats:
        """The same before it is rounded and held at 1 or more: for think times."""

    def sample(self, rng: np.random.Generator, n: int) -> Counts:
        """``n`` independent counts."""


class Inverse:
    """Moments and draws of a distribution that is given by its quantile function."""

    def continuous(self, u: Floats) -> Floats:
        """Quantiles before they are rounded."""
        raise NotImplementedError

    @cached_property
    def _raw(self) -> Floats:
        return self.continuous(_POINTS)

    @cached_property
    def _moments(self) -> tuple[float, float]:
        counts = np.maximum(np.rint(self._raw), 1)
        mean = float(counts @ _WEIGHTS)
        return mean, math.sqrt(max(float((counts - mean) ** 2 @ _WEIGHTS), 0.0))

    @property
    def mean(self) -> float:
        """Tokens."""
        return self._moments[0]

    @property
    def cv(self) -> float:
        """Standard deviation over mean."""
        return self._moments[1] / self._moments[0]

    @property
    def mean_continuous(self) -> float:
        """Mean before rounding: of think times."""
        return float(self._raw @ _WEIGHTS)

    @property
    def clamped_share(self) -> float:
        """Share of draws that would be under one token and are made 1."""
        return float((self._raw < 0.5) @ _WEIGHTS)

    def quantile(self, q: float) -> float:
        """Tokens."""
        return float(self.draw(np.array([q], float))[0])

    def draw(self, u: Floats) -> Counts:
        """Counts for uniform numbers."""
        return np.maximum(np.rint(self.continuous(u)), 1).astype(np.int64)

    def sample(self, rng: np.random.Generator, n: int) -> Counts:
        """``n`` independent counts."""
        return self.draw(rng.random(n))


@dataclass(frozen=True)
class Fixed(Inverse):
    """Always the same."""

    value: float

    def continuous(self, u: Floats) -> Floats:
        """As many times the value."""
        return np.full(len(u), float(self.value))


@dataclass(frozen=True)
class Uniform(Inverse):
    """Whole numbers from ``low`` to ``high``, both included, all alike."""

    low: float
    high: float

    def continuous(self, u: Floats) -> Floats:
        """Spread half a count over both ends, so that rounding leaves all counts alike."""
        spread = self.low - 0.5 + u * (self.high - self.low + 1)
        return np.clip(spread, self.low, self.high)


@dataclass(frozen=True)
class Spread(Inverse):
    """Any number between ``low`` and ``high``: times, which are not whole."""

    low: float
    high: float

    def continuous(self, u: Floats) -> Floats:
        """Linear."""
        return self.low + u * (self.high - self.low)


@dataclass(frozen=True)
class Normal(Inverse):
    """Normal, held at 1 from below: ``clamped_share`` says how much of it that is."""

    mean_tokens: float
    sd_tokens: float
    low: float = 1.0
    max: float = math.inf

    def continuous(self, u: Floats) -> Floats:
        """mean + sd z."""
        return np.minimum(self.mean_tokens + self.sd_tokens * normal(u), self.max)

    def draw(self, u: Floats) -> Counts:
        """Counts for uniform numbers."""
        return np.maximum(np.rint(self.continuous(u)), self.low).astype(np.int64)


@dataclass(frozen=True)
class Lognormal(Inverse):
    """exp of a normal with ``mu`` and ``sigma``; cut at ``max`` where one is given."""

    mu: float
    sigma: float
    max: float = math.inf

    @classmethod
    def of_cv(cls, mean: float, cv: float, max: float = math.inf) -> "Lognormal":
        """The one with this mean and coefficient of variation (before a cut)."""
        variance = math.log1p(cv**2)
        return cls(math.log(mean) - variance / 2, math.sqrt(variance), max)

    @classmethod
    def of_p99(cls, mean: float, p99: float, max: float = math.inf) -> "Lognormal":
        """The one with this mean and 99th percentile; ValueError where there is none."""
        z = 2.3263478740408408  # of 0.99: ln(p99 / mean) = z sigma - sigma^2 / 2
        ratio = math.log(p99 / mean)
        if not 0 <= ratio <= z * z / 2:
            raise ValueError(
                f"p99 must be between 1 and 14.9 times the mean {mean:g}, found {p99:g}"
            )
        sigma = z - math.sqrt(z * z - 2 * ratio)
        return cls(math.log(mean) - sigma**2 / 2, sigma, max)

    def continuous(self, u: Floats) -> Floats:
        """exp(mu + sigma z)."""
        return np.minimum(np.exp(self.mu + self.sigma * normal(u)), self.max)


@dataclass(frozen=True)
class Gamma(Inverse):
    """Gamma with ``shape`` and ``scale``: shape = 1 / cv^2, mean = shape * scale."""

    shape: float
    scale: float
    max: float = math.inf

    def continuous(self, u: Floats) -> Floats:
        """The inverse of the regularised incomplete gamma function, scaled."""
        from scipy.special import gammaincinv  # noqa: PLC0415  (60 ms; few need it)

        return np.asarray(np.minimum(gammaincinv(self.shape, u) * self.scale, self.max))


@dataclass(frozen=True)
class Weibull(Inverse):
    """Weibull with ``shape`` and ``scale``."""

    shape: float
    scale: float
    max: float = math.inf

    def continuous(self, u: Floats) -> Floats:
        """scale * (-ln(1 - u))^(1 / shape)."""
        tiny = np.finfo(float).tiny
        survive = np.maximum(1 - u, tiny)
        return np.minimum(self.scale * (-np.log(survive)) ** (1 / self.shape), self.max)


@dataclass(frozen=True)
class Mixture(Inverse):
    """Several distributions, each with a share of the draws."""

    parts: tuple[Lengths, ...]
    weights: tuple[float, ...]

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        """Cumulated shares and values: the parts' quantiles with their weights, sorted."""
        total = sum(self.weights)
        values = np.concatenate([p.continuous(_POINTS) for p in self.parts])
        shares = np.concatenate([_WEIGHTS * w / total for w in self.weights])
        order = np.argsort(values, kind="stable")
        cumulated = np.cumsum(shares[order])
        return cumulated - shares[order] / 2, values[order]

    def continuous(self, u: Floats) -> Floats:
        """Interpolated in the merged table."""
        return np.interp(u, *self._table)


@dataclass(frozen=True)
class Quantiles(Inverse):
    """A table of quantiles, with log-linear interpolation between its points."""

    q: tuple[float, ...]
    v: tuple[float, ...]
    max: float = math.inf

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        return np.array(self.q), np.log(self.v)

    def continuous(self, u: Floats) -> Floats:
        """Interpolated on the logarithm of the count."""
        return np.minimum(np.exp(np.interp(u, *self._table)), self.max)


@dataclass(frozen=True)
class Empirical(Inverse):
    """The counts that were found in a file, each as likely as it was frequent there."""

    values: tuple[float, ...] = field(repr=False)

    @cached_property
    def _sorted(self) -> Floats:
        return np.sort(np.array(self.values))

    def continuous(self, u: Floats) -> Floats:
        """The value at that rank."""
        n = len(self._sorted)
        return self._sorted[np.minimum((u * n).astype(np.int64), n - 1)]

    @cached_property
    def _moments(self) -> tuple[float, float]:
        counts = np.maximum(np.rint(self._sorted), 1)
        return float(counts.mean()), float(counts.std())
