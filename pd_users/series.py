"""What one instance said, poll by poll: a long run keeps many, so the older ones lie packed."""

import pickle
import zlib
from collections.abc import Iterator

from pd_users.signals import Reading

PACK = 60  # polls; one is like the next, so together they take a tenth to a hundredth of the room


class Series:
    """Readings with the monotonic second of each, in the order they came."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._recent: list[tuple[float, Reading]] = []

    def append(self, at_s: float, reading: Reading) -> None:
        """Take in one more."""
        self._recent.append((at_s, reading))
        if len(self._recent) == PACK:
            self._packed.append(zlib.compress(pickle.dumps(self._recent), 1))
            self._recent = []

    def between(self, since_s: float, until_s: float) -> list[tuple[float, Reading]]:
        """Those of a span of time, both ends included."""
        return [(at_s, reading) for at_s, reading in self if since_s <= at_s <= until_s]

    def __iter__(self) -> Iterator[tuple[float, Reading]]:
        for pack in self._packed:
            yield from pickle.loads(
                zlib.decompress(pack)
            )  # our own bytes: they never left this process
        yield from self._recent
