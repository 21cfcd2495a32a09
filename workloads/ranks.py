"""Uniform numbers and their normal scores: what ties input and output lengths by rank."""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def normal(u: Floats) -> Floats:
    """Normal scores of uniform numbers."""
    from scipy.special import ndtri  # noqa: PLC0415  (60 ms to import; only some need it)

    return np.asarray(ndtri(u))


def uniform_of(z: Floats) -> Floats:
    """Uniform numbers of normal scores."""
    from scipy.special import ndtr  # noqa: PLC0415

    return np.asarray(ndtr(z))


def correlated(u: Floats, other: Floats, rank_correlation: float) -> Floats:
    """Uniform numbers with this Spearman correlation to ``u``, made from independent ``other``.

    A Gaussian copula: rho = 2 sin(pi r / 6).
    """
    if rank_correlation == 0:
        return other
    rho = 2 * math.sin(math.pi * rank_correlation / 6)
    return uniform_of(rho * normal(u) + math.sqrt(max(1 - rho * rho, 0.0)) * normal(other))
