"""When the kernel received bytes: SO_TIMESTAMPNS stamps, moved to the monotonic clock.

The kernel stamps a packet as it arrives, however busy this process is. The stamp is of
CLOCK_REALTIME, which may be set or slewed, so the offset between the clocks is measured again every
second and at both ends of each request; where it moved by over 1 ms, the clock was set, and the
records of that time say so.
"""

import socket
import struct
import sys
import time

STAMP_SPACE = socket.CMSG_SPACE(16) if hasattr(socket, "CMSG_SPACE") else 0
SO_TIMESTAMPNS = 35  # Linux, all but a few rare architectures; asked for below before it is trusted
AVAILABLE = sys.platform == "linux" and STAMP_SPACE > 0 and sys.maxsize > 2**32

_JUMP_NS = 1_000_000
_NARROW_NS = 2_000  # a reading between two this close is good to a microsecond
unpack_stamp = struct.Struct("qq").unpack  # struct timespec: seconds, nanoseconds


class KernelClock:
    """One a process; ``offset_ns`` is CLOCK_REALTIME minus CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self.offset_ns, _ = _measure(20)
        self.jumps = 0
        self._armed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if AVAILABLE:  # the kernel begins to stamp a while after the first socket asks for it
            self._armed.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def refresh(self) -> None:
        """Measure the offset again; counts a jump."""
        offset_ns, width_ns = _measure(3)
        moved_ns = abs(offset_ns - self.offset_ns)
        if moved_ns > _JUMP_NS + width_ns:
            self.jumps += 1
            self.offset_ns = offset_ns
        elif width_ns < _NARROW_NS:
            self.offset_ns = offset_ns

    def close(self) -> None:
        """Let go of the socket that keeps the stamping on."""
        self._armed.close()


def _measure(tries: int) -> tuple[int, int]:
    """The offset between two readings of the monotonic clock, the narrowest of ``tries``."""
    best_ns, offset_ns = sys.maxsize, 0
    for _ in range(tries):
        before_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        after_ns = time.monotonic_ns()
        if after_ns - before_ns < best_ns:
            best_ns = after_ns - before_ns
            offset_ns = wall_ns - (before_ns + after_ns) // 2
    return offset_ns, best_ns
