"""Which instance a request goes to. Pure."""

from itertools import count
from random import Random
from typing import Protocol, TypeVar


class Instance(Protocol):
    """What a router sees of an instance."""

    number: int

    @property
    def load(self) -> int:
        """To be compared with that of the others."""


T = TypeVar("T", bound=Instance)


class Router:
    """Takes turns over the instances of one role."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._turns = count()

    def pick(self, policy: str, pool: list[T]) -> T:
        """``random``, ``round-robin``, or ``least-load`` (ties go round)."""
        if policy == "random":
            return self._rng.choice(pool)
        turn, size = next(self._turns), len(pool)
        if policy == "round-robin":
            return pool[turn % size]
        return min(pool, key=lambda i: (i.load, (i.number - turn) % size))
