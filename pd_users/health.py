"""Was the client fit to measure? Event-loop lag, CPU share and coalesced reads of one worker."""

import time
from typing import Any

from pd_users.loop_lag import LoopLag


class Health:
    """Watches this process from ``start`` until ``summary``."""

    def __init__(self) -> None:
        self._lag = LoopLag.shared()
        self._since: tuple[float, float] | None = None

    def start(self) -> None:
        """The run begins now."""
        self._lag.reset()
        self._since = (time.monotonic(), time.process_time())

    def summary(self, client_facts: dict[str, Any]) -> dict[str, Any]:
        """Plain figures for the master; ``client_facts`` are counts that the HTTP client kept."""
        cpu_percent = 0.0
        if self._since is not None:
            wall_s = max(time.monotonic() - self._since[0], 1e-3)
            cpu_percent = 100 * (time.process_time() - self._since[1]) / wall_s
        return {
            "cpu_percent": round(cpu_percent, 1),
            "loop_lag_p99_ms": round(self._lag.quantile_s(0.99) * 1000, 3),
            **client_facts,
        }
