"""Distributions of token counts. Each is frozen, samples with the generator it is handed, and knows
its own mean, coefficient of variation and quantiles, so that samples can be held against it.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
_GRID = (np.arange(20_000) + 0.5) / 20_000  # for moments of distributions given by quantiles


class Lengths(Protocol):
    """What every distribution of token counts offers; counts are at least 1."""

    @property
    def mean(self) -> float:
        """Tokens."""

    @property
    def cv(self) -> float:
        """Standard deviation over mean."""

    def quantile(self, q: float) -> float:
        """Tokens that a share ``q`` of requests does not exceed."""

    def draw(self, u: NDArray[np.float64]) -> Counts:
        """Counts for uniform numbers ``u`` in (0, 1): the inverse of the distribution."""


@dataclass(frozen=True)
class Fixed:
    """Always the same count."""

    value: int

    @property
    def mean(self) -> float:
        """Tokens."""
        return float(self.value)

    @property
    def cv(self) -> float:
        """Zero."""
        return 0.0

    def quantile(self, q: float) -> float:
        """The value, whatever ``q``."""
        return float(self.value)

    def draw(self, u: NDArray[np.float64]) -> Counts:
        """As many times the value."""
        return np.full(len(u), self.value, np.int64)


@dataclass(frozen=True)
class Uniform:
    """Whole numbers from ``low`` to ``high``, both included, all alike."""

    low: int
    high: int

    @property
    def mean(self) -> float:
        """Tokens."""
        return (self.low + self.high) / 2

    @property
    def cv(self) -> float:
        """Standard deviation over mean."""
        return math.sqrt(((self.high - self.low + 1) ** 2 - 1) / 12) / self.mean

    def quantile(self, q: float) -> float:
        """Tokens."""
        return float(min(self.low + math.floor(q * (self.high - self.low + 1)), self.high))

    def draw(self, u: NDArray[np.float64]) -> Counts:
        """Counts for uniform numbers."""
        return self.low + np.minimum(
            (u * (self.high - self.low + 1)).astype(np.int64), self.high - self.low
        )


class _Inverse:
    """Moments and draws of a distribution that is given by its quantile function."""

    def continuous(self, q: NDArray[np.float64]) -> NDArray[np.float64]:
        """Quantiles before they are rounded."""
        raise NotImplementedError

    @cached_property
    def _values(self) -> NDArray[np.float64]:
        return np.maximum(np.rint(self.continuous(_GRID)), 1)

    @property
    def mean(self) -> float:
        """Tokens."""
        return float(self._values.mean())

    @property
    def cv(self) -> float:
        """Standard deviation over mean."""
        return float(self._values.std() / self._values.mean())

    def quantile(self, q: float) -> float:
        """Tokens."""
        return float(max(round(float(self.continuous(np.array([q]))[0])), 1))

    def draw(self, u: NDArray[np.float64]) -> Counts:
        """Counts for uniform numbers."""
        return np.maximum(np.rint(self.continuous(u)), 1).astype(np.int64)


@dataclass(frozen=True)
class Lognormal(_Inverse):
    """Lognormal with the given mean and cv, before rounding; cut at ``max`` where one is given."""

    mean_tokens: float
    cv_tokens: float
    max: float = math.inf

    def continuous(self, q: NDArray[np.float64]) -> NDArray[np.float64]:
        """exp(mu + sigma z)."""
        variance = math.log1p(self.cv_tokens**2)
        mu = math.log(self.mean_tokens) - variance / 2
        z = np.array([NormalDist().inv_cdf(float(p)) for p in q]) if len(q) < 64 else _normal(q)
        return np.minimum(np.exp(mu + math.sqrt(variance) * z), self.max)


def _normal(q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverse of the normal distribution function."""
    from scipy.special import ndtri  # noqa: PLC0415  (60 ms to import; only lognormals need it)

    return np.asarray(ndtri(q))


@dataclass(frozen=True)
class Quantiles(_Inverse):
    """A table of quantiles, with log-linear interpolation between its points."""

    q: tuple[float, ...]
    v: tuple[float, ...]

    def continuous(self, q: NDArray[np.float64]) -> NDArray[np.float64]:
        """Interpolated on the logarithm of the count."""
        return np.exp(np.interp(q, self.q, np.log(self.v)))
