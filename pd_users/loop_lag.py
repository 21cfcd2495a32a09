"""How late the event loop is: in this very iteration, and as a distribution over time.

The loop is late when what runs in it (greenlets, callbacks) keeps it from looking at its sockets. A
byte that arrives at a random moment waits until the work at hand is done; the quantiles are those
of this wait: with busy periods b over a time T, P(wait > x) = sum(max(0, b - x)) / T.
"""

import math
import os
import time
from contextlib import suppress
from typing import ClassVar

import gevent
from gevent.hub import Hub

_FLOOR_S = 50e-6  # shorter busy periods are all alike
_BINS_PER_OCTAVE = 4


class LoopLag:
    """Watches the loop of this thread's hub, from its creation to ``stop``."""

    _shared: ClassVar["LoopLag | None"] = None

    def __init__(self) -> None:
        self._hub: Hub = gevent.get_hub()
        self._awake = time.monotonic()  # when this iteration's poll returned
        self._looked = self._awake  # when the one before did
        self._before = 0.0  # how long the iteration before was busy
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
            gevent.spawn(widen_poll)
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
        self._looked = self._awake
        self._awake = time.monotonic()

    def _on_prepare(self) -> None:
        busy_s = time.monotonic() - self._awake
        self._before = busy_s
        self._busy_s += busy_s
        if busy_s > _FLOOR_S:
            key = int(math.log2(busy_s) * _BINS_PER_OCTAVE)
            count, total = self._bins.get(key, (0, 0.0))
            self._bins[key] = (count + 1, total + busy_s)

    def now_s(self) -> float:
        """For how long at most bytes that are read now may have lain there because of us."""
        return self._before + time.monotonic() - self._awake

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


def widen_poll(descriptors: int = 600) -> None:
    """Let the loop see many ready sockets in one iteration from the start.

    libev asks epoll for 64 events, and for twice as many each time that was not enough. Until then
    a burst is read over several iterations, of which only the first would know how late it is. So
    have it meet more ready descriptors than that, once: copies of one pipe with a byte in it.
    """
    loop = gevent.get_hub().loop
    ready, feed = os.pipe()
    os.write(feed, b"x")
    copies = [ready]
    with suppress(OSError):  # too many open files: then less wide
        while len(copies) < descriptors:
            copies.append(os.dup(ready))
    watchers = [loop.io(copy, 1) for copy in copies]
    for watcher in watchers:
        watcher.start(int)
    for _ in range(6):
        gevent.sleep(0.001)
    for watcher in watchers:
        watcher.stop()
        watcher.close()
    for descriptor in (*copies, feed):
        os.close(descriptor)
