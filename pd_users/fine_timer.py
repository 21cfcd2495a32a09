"""A timer that is exact to some hundredths of a millisecond.

gevent's own timers end in ``epoll_wait``, which takes whole milliseconds and so is up to one late;
a sender that is late by that on average makes every TTFT so much longer. Linux has timers that are
file descriptors: the loop sees them as readable at the very moment. Elsewhere gevent's own is used.
"""

import ctypes
import os
import sys
from typing import Any

import gevent
from gevent.event import Event

_MONOTONIC, _NONBLOCK = 1, 0o4000


class _Spec(ctypes.Structure):
    """struct itimerspec: the interval, then the time until it expires; seconds and nanoseconds."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


def _kernel_timer() -> int | None:
    if sys.platform != "linux":
        return None
    try:
        fd = _LIBC.timerfd_create(_MONOTONIC, _NONBLOCK)
    except AttributeError:
        return None
    return int(fd) if fd >= 0 else None


_LIBC: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class FineTimer:
    """Sets ``event`` when the time that was last asked for is over."""

    def __init__(self, event: Event) -> None:
        self._event = event
        self._fd = _kernel_timer()
        self._watcher: Any = None
        if self._fd is not None:
            self._watcher = gevent.get_hub().loop.io(self._fd, 1)
            self._watcher.start(self._over)

    def wait(self, seconds: float, at_most_s: float) -> None:
        """Wait for the event, which is set after ``seconds`` if nobody does so before."""
        if self._fd is None or seconds >= at_most_s:
            self._event.wait(min(seconds, at_most_s))
        else:
            whole = int(seconds)
            ns = max(int((seconds - whole) * 1e9), 1)  # 0 would disarm it
            spec = _Spec(0, 0, whole, ns)
            _LIBC.timerfd_settime(self._fd, 0, ctypes.byref(spec), None)
            self._event.wait(at_most_s)
        self._event.clear()

    def _over(self) -> None:
        try:
            os.read(self._fd or 0, 8)
        except BlockingIOError:
            return  # armed anew in the meantime
        self._event.set()

    def close(self) -> None:
        """Give the descriptor back."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            os.close(self._fd or 0)
            self._watcher, self._fd = None, None
