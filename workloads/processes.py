"""When arrivals come: gaps at rate 1, and the course of the rate that stretches them over the clock.

A process makes gaps with mean 1 in "operational time"; the sum of the first k is the moment of
arrival k there. The clock runs along it at the rate r(t): arrival k is due when the integral of
r from 0 to t equals that sum. So bursts (gaps) and the course of the day (rate) are told apart, and
the number of arrivals in a window is as random as the gaps are; it is never made to fit.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.draws import PATH, generator

Floats = NDArray[np.float64]


class Gaps(Protocol):
    """An arrival process: gaps between arrivals at rate 1."""

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        """``n`` gaps with mean 1."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals: exponential gaps."""

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        """``n`` gaps with mean 1."""
        return rng.exponential(1.0, n)


@dataclass(frozen=True, slots=True)
class Constant:
    """Evenly spaced arrivals, the first after one gap."""

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        """``n`` gaps of 1."""
        return np.ones(n)


@dataclass(frozen=True, slots=True)
class GammaGaps:
    """Gamma gaps with coefficient of variation ``cv``: over 1 arrivals come in bursts."""

    cv: float

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        """``n`` gaps with mean 1."""
        return rng.gamma(1 / self.cv**2, self.cv**2, n)


class Course(Protocol):
    """How the rate goes over time, as a multiple of its mean: pieces that are straight lines."""

    @property
    def peak(self) -> float:
        """The highest rate over the mean; of a random one what 1 % of the time exceeds."""

    def pieces(self, seed: int) -> "Pieces":
        """The course of one run."""


class Pieces:
    """A rate that is a straight line between ``knots``; the integral and its inverse.

    ``more`` lengthens a course that is drawn at random; one that is not goes on at its last rate.
    """

    def __init__(self, lengths_s: Floats, begin: Floats, end: Floats) -> None:
        self._begin, self._end, self._lengths = begin, end, lengths_s
        self._lay()

    def _lay(self) -> None:
        self._at_s = np.concatenate([[0.0], np.cumsum(self._lengths)])
        areas = self._lengths * (self._begin + self._end) / 2
        self._area = np.concatenate([[0.0], np.cumsum(areas)])

    def more(self) -> bool:
        """Lengthen the course; whether it could be."""
        return False

    def when(self, area: Floats) -> Floats:
        """The moments by which the integral of the rate has come to ``area``; inf: it never does."""
        while area[-1] > self._area[-1] and self.more():
            self._lay()
        k = np.searchsorted(self._area, area, side="right") - 1
        inside = np.minimum(k, len(self._lengths) - 1)
        rest = area - self._area[inside]
        r0, r1, length = self._begin[inside], self._end[inside], self._lengths[inside]
        slope = (r1 - r0) / length
        # r0 t + slope t^2 / 2 = rest, in the form that is exact when the slope is 0
        root = np.sqrt(np.maximum(r0 * r0 + 2 * slope * rest, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            within = np.where(rest > 0, 2 * rest / (r0 + root), 0.0)
        beyond = area > self._area[-1]
        last = self._end[-1]
        after = self._lengths[-1] + (area - self._area[-1]) / last if last > 0 else np.inf
        return self._at_s[inside] + np.where(beyond, after, within)


@dataclass(frozen=True, slots=True)
class Stages:
    """Straight pieces one after the other, then on at the last rate: stages, or a ramp."""

    lengths_s: tuple[float, ...]
    begin: tuple[float, ...]
    end: tuple[float, ...]

    @property
    def total_s(self) -> float:
        """Of all pieces."""
        return math.fsum(self.lengths_s)

    @property
    def mean(self) -> float:
        """Rate, over all pieces."""
        pairs = zip(self.lengths_s, self.begin, self.end, strict=True)
        return math.fsum(n * (a + b) / 2 for n, a, b in pairs) / self.total_s

    @property
    def peak(self) -> float:
        """The highest rate over the mean."""
        return max(*self.begin, *self.end) / self.mean

    def pieces(self, seed: int) -> Pieces:
        """The same for any seed."""
        mean = self.mean
        return Pieces(
            np.array(self.lengths_s), np.array(self.begin) / mean, np.array(self.end) / mean
        )


@dataclass(frozen=True, slots=True)
class Day:
    """A curve through evenly spaced values that comes again every ``day_s``, for 400 days."""

    values: tuple[float, ...]
    day_s: float = 86_400.0
    start_share: float = 0.0  # where in the day the run begins

    @property
    def peak(self) -> float:
        """The highest rate over the mean."""
        return max(self.values) / float(np.mean(self.values))

    def pieces(self, seed: int) -> Pieces:
        """Straight lines between the values; mean 1 over a day."""
        n, days = len(self.values), 400
        curve = np.array(self.values) / np.mean(self.values)
        shift = self.start_share * n
        knots = np.concatenate([[0.0], np.arange(1, n * days + 1) - shift % 1])
        rates = np.interp((knots + shift) % n, np.arange(n + 1), np.append(curve, curve[0]))
        return Pieces(np.diff(knots) * self.day_s / n, rates[:-1], rates[1:])


@dataclass(frozen=True, slots=True)
class Minutes:
    """Each minute has a rate of its own: a log-normal chain with idle minutes in between.

    ``cv`` is that of all minutes' rates, idle ones among them, ``ar1`` how much of a minute's
    deviation the next one keeps.
    """

    cv: float
    ar1: float = 0.0
    idle: float = 0.0
    minute_s: float = 60.0

    @property
    def _variance(self) -> float:
        """Of the logarithm of a busy minute's rate."""
        return max(math.log((1 + self.cv**2) * (1 - self.idle)), 0.0)

    @property
    def peak(self) -> float:
        """What 1 % of the minutes exceed, over the mean."""
        sigma = math.sqrt(self._variance)
        return math.exp(2.3263 * sigma - self._variance / 2) / (1 - self.idle)

    def pieces(self, seed: int) -> Pieces:
        """Drawn from the seed, lengthened as needed."""
        return _Drawn(lambda rng: self._draw(rng, 1024), seed)

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        variance = self._variance
        steps = rng.normal(size=n)
        keep = math.sqrt(1 - self.ar1**2)
        level, levels = steps[0], steps.copy()
        for k in range(1, n):  # a chain: each minute needs the one before
            level = levels[k] = self.ar1 * level + keep * steps[k]
        rates = np.exp(math.sqrt(variance) * levels - variance / 2) / (1 - self.idle)
        return np.full(n, self.minute_s), np.where(rng.random(n) < self.idle, 0.0, rates)


@dataclass(frozen=True, slots=True)
class OnOff:
    """Busy and silent spells in turn, exponential with these means; the rate is 0 in a silent one."""

    on_s: float
    off_s: float

    @property
    def peak(self) -> float:
        """The rate of a busy spell over the mean."""
        return 1 + self.off_s / self.on_s

    def pieces(self, seed: int) -> Pieces:
        """Drawn from the seed, lengthened as needed."""
        return _Drawn(lambda rng: self._draw(rng, 1024), seed)

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        share = self.on_s / (self.on_s + self.off_s)
        begins_on = rng.random() < share
        on = (np.arange(n) % 2 == 0) == begins_on
        lengths = rng.exponential(1.0, n) * np.where(on, self.on_s, self.off_s)
        return lengths, np.where(on, 1 / share, 0.0)


class _Drawn(Pieces):
    """A course made of level pieces that are drawn batch by batch."""

    def __init__(self, draw: "Draw", seed: int) -> None:
        self._draw_batch, self._seed, self._batch = draw, seed, 1
        lengths, rates = draw(generator(seed, PATH, 0))
        super().__init__(lengths, rates, rates)

    def more(self) -> bool:
        """One more batch."""
        lengths, rates = self._draw_batch(generator(self._seed, PATH, self._batch))
        self._batch += 1
        self._lengths = np.concatenate([self._lengths, lengths])
        self._begin = np.concatenate([self._begin, rates])
        self._end = self._begin
        return True


class Draw(Protocol):
    """Lengths and rates of one batch of pieces."""

    def __call__(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw them."""
