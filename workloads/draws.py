"""Random numbers that can be made again at any place of a schedule.

Every column of every block has a generator of its own, a child of the seed, so that a schedule can
be entered anywhere, is the same for any number of workers, and another rate changes no length.
Conversations draw from hashes of (seed, purpose, conversation, turn): a worker can make the next
turn without having made those of others.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

# Which column a generator is for. Never renumber: the numbers are part of every schedule.
GAPS, INPUTS, OUTPUTS, SHARING, CLASSES, PATH, POOLS, JITTER = range(8)
TURNS, THINKING, NEWS, ANSWERS, ROUNDING = range(8, 13)

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def generator(seed: int, purpose: int, block: int) -> np.random.Generator:
    """The generator of one column of one block."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, block)))


def hashed(seed: int, purpose: int, first: Words, second: Words | int = 0) -> Floats:
    """Uniform numbers in (0, 1), one for each pair; any pair alone gives the same."""
    with np.errstate(over="ignore"):
        h = _mix(first.astype(np.uint64) + np.uint64(_key(seed, purpose)))
        h = _mix(h ^ _mix(np.asarray(second, np.uint64) + np.uint64(_GOLDEN)))
    return ((h >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def one(seed: int, purpose: int, first: int, second: int = 0) -> Floats:
    """One such number, in an array of length 1. With plain integers: NumPy takes ten times as long for one."""
    h = mix(first + _key(seed, purpose) & _MASK)
    h = mix(h ^ mix(second + _GOLDEN & _MASK))
    return np.array([((h >> 11) + 0.5) * 2.0**-53])


@cache
def _key(seed: int, purpose: int) -> int:
    return mix(mix(seed & _MASK) ^ (purpose * _GOLDEN & _MASK))


def mix(x: int) -> int:
    """The finaliser of splitmix64: every bit of the result depends on every bit of ``x``."""
    x = (x + _GOLDEN) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _mix(x: Words) -> Words:
    x = x + np.uint64(_GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)
