"""A locustfile for benchmarks: the project's own, with a watch on the leading process's event loop.

At the end of the window it writes what it saw to the file that ``PD_WATCH`` names.
"""

from locust import events

import json
import os
import time
from pathlib import Path
from typing import Any

from pd_users.loop_lag import LoopLag

_began: dict[str, float] = {}


@events.test_stopping.add_listener  # before the listeners of install(): they drain and conclude
def _tell(**_kw: Any) -> None:
    if not _began:
        return
    lag, wall_s = LoopLag.shared(), time.monotonic() - _began["wall_s"]
    seen = {
        "loop_lag_p50_ms": 1000 * lag.quantile_s(0.5),
        "loop_lag_p99_ms": 1000 * lag.quantile_s(0.99),
        "loop_lag_max_ms": 1000 * lag.quantile_s(1.0),
        "cpu_share": (time.process_time() - _began["cpu_s"]) / wall_s,
        "wall_s": wall_s,
    }
    _began.clear()
    Path(os.environ["PD_WATCH"]).write_text(json.dumps(seen))


from locustfile import PDTraffic  # noqa: E402, F401


@events.test_start.add_listener
def _watch(**_kw: Any) -> None:
    LoopLag.shared().reset()
    _began.update(wall_s=time.monotonic(), cpu_s=time.process_time())
