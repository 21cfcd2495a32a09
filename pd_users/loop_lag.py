"""How late the event loop is: in this very iteration, and as a distribution over time.

The loop is late when what runs in it (greenlets, callbacks) keeps it from looking at its sockets. A
byte that arrives at a random moment waits until the work at hand is done; the quantiles are those
of this wait: with busy periods b over a time T, P(wait > x) = sum(max(0, b - x)) / T.
"""

import math
import time
from typing import ClassVar

import gevent
from gevent.hub import Hub

_FLOOR_S = 50e-6  # shorter busy periods are all alike
_BINS_PER_OCTAVE = 4
_LONG_S = 200e-6  # an iteration longer than this may have left sockets for the next one
_AT_ONCE_S = 300e-6  # a poll shorter than this, or than a quarter of the work before it, found
# its sockets ready: nothing had to be waited for


class LoopLag:
    """Watches the loop of this thread's hub, from its creation to ``stop``."""

    _shared: ClassVar["LoopLag | None"] = None

    def __init__(self) -> None:
        self._hub: Hub = gevent.get_hub()
        now = time.monotonic()
        self._awake = now  # when this iteration's poll returned
        self._asleep = now  # when it began
        self._looked = now  # what is read in this iteration came after that
        self._busy = 0.0  # how long the iteration before was at work
        self._late = 0.0  # how long the loop was at work since ``_looked``
        self.reset()
        # First of all after the poll, last of all before it.
        self._check = self._hub.loop.check(ref=False, priority=2)
        self._prepare = self._hub.loop.prepare(ref=False, priority=-2)
        self._check.start(self._on_check)
        self._prepare.start(self._on_prepare)

    @classmethod
    def shared(cls) -> "LoopLag":
        """The one of this process's main loop, made on first use."""
        if cls._shared is None or cls._shared._hub is not gevent.get_hub():
            cls._shared = cls()
        return cls._shared

    def stop(self) -> None:
        """Stop watching; what was seen stays."""
        for watcher in (self._check, self._prepare):
            watcher.stop()
            watcher.close()

    def reset(self) -> None:
        """Forget the distribution so far."""
        self._since = time.monotonic()
        self._busy_s = 0.0
        self._bins: dict[int, tuple[int, float]] = {}  # busy periods by length: count, sum

    def _on_check(self) -> None:
        now = time.monotonic()
        if self._busy > _LONG_S and now - self._asleep < max(_AT_ONCE_S, self._busy / 4):
            # One poll shows a limited number of sockets. After a long iteration, and with more to
            # read at once, what is read now may have been there before that iteration as well.
            self._late += self._busy
        else:
            self._late, self._looked = self._busy, self._awake
        self._awake = now

    def _on_prepare(self) -> None:
        self._asleep = time.monotonic()
        busy_s = self._busy = self._asleep - self._awake
        self._busy_s += busy_s
        if busy_s > _FLOOR_S:
            key = int(math.log2(busy_s) * _BINS_PER_OCTAVE)
            count, total = self._bins.get(key, (0, 0.0))
            self._bins[key] = (count + 1, total + busy_s)

    def now_s(self) -> float:
        """For how long at most bytes that are read now may have lain there because of us."""
        return self._late + time.monotonic() - self._awake

    def unseen_s(self) -> float:
        """For how long nobody had looked: what is read now came within this time."""
        return time.monotonic() - self._looked

    @property
    def busy_share(self) -> float:
        """The share of time in which the loop was at work."""
        return self._busy_s / max(time.monotonic() - self._since, 1e-9)

    def quantile_s(self, q: float) -> float:
        """A quantile of the wait of a byte that arrives at a random moment."""
        allowed_s = (1 - q) * (time.monotonic() - self._since)
        periods = [(count, total / count) for count, total in self._bins.values()]
        low_s, high_s = 0.0, max((mean for _, mean in periods), default=0.0)
        for _ in range(40):
            wait_s = (low_s + high_s) / 2
            late_s = sum(count * max(0.0, mean - wait_s) for count, mean in periods)
            low_s, high_s = (wait_s, high_s) if late_s > allowed_s else (low_s, wait_s)
        return high_s
