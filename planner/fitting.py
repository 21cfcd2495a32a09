"""Least squares for a handful of positive figures whose effect can only be played, not derived.

Damped Gauss-Newton (Levenberg-Marquardt) on the logarithms, with a weak pull towards the start: what the
data do not tell stays where it was. scipy.optimize would take half a second to import.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.statistics import Floats

STEP = 0.05  # of a logarithm, for the derivative: wide enough to see over the noise of a queue
FAR = 1.0  # the longest step
PULL = 0.03
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Fit:
    """The figures, and the mean size of what they leave unexplained."""

    values: Floats
    error: float


def fit(residuals: Callable[[Floats], Floats], start: Floats, rounds: int = ROUNDS) -> Fit:
    """Positive figures near ``start`` with small ``residuals``."""
    origin = np.log(start)

    def rest(x: Floats) -> Floats:
        return np.concatenate([residuals(np.exp(x)), PULL * (x - origin)])

    x, r, damping = origin, rest(origin), 0.1
    for _ in range(rounds):
        slopes = np.stack([(rest(x + STEP * e) - r) / STEP for e in np.eye(len(x))], axis=1)
        better = _step(rest, x, r, slopes, damping)
        if better is None:
            break
        gain = float(r @ r) - float(better[1] @ better[1])
        x, r, damping = better
        if gain < 1e-3 * float(r @ r):
            break
    return Fit(np.exp(x), float(np.abs(r[: -len(x)]).mean()))


def _step(
    rest: Callable[[Floats], Floats], x: Floats, r: Floats, slopes: Floats, damping: float
) -> tuple[Floats, Floats, float] | None:
    """A step that makes the sum of squares smaller, its residuals, and the next damping."""
    for _ in range(4):
        normal = slopes.T @ slopes + damping * np.eye(len(x))
        there = x + np.clip(-np.linalg.solve(normal, slopes.T @ r), -FAR, FAR)
        found = rest(there)
        if found @ found < r @ r:
            return there, found, 0.3 * damping
        damping *= 5
    return None
