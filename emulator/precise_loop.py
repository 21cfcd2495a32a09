"""An event loop whose timers are exact to well under a millisecond.

``epoll_wait`` takes whole milliseconds and asyncio rounds up, so every timer is up to 1 ms late. The
epoll descriptor can itself be waited for with ``select``, which takes microseconds.
"""

import asyncio
import select
import selectors

if hasattr(selectors, "EpollSelector"):

    class _PreciseSelector(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is None:
                return super().select()
            if timeout > 0:
                select.select([self.fileno()], [], [], timeout)
            return super().select(0)

else:  # macOS: kqueue is exact as it is
    _PreciseSelector = selectors.DefaultSelector  # type: ignore[misc,assignment]


def precise_loop() -> asyncio.AbstractEventLoop:
    """For ``asyncio.Runner``."""
    return asyncio.SelectorEventLoop(_PreciseSelector())
