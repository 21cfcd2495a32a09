"""Records made by hand: a few columns given, the rest as in a healthy run."""

from typing import Any

import numpy as np

from planner.measure import measure
from planner.measurement import Measurement, RunContext, Size, Slo
from planner.records import Records


def records(n: int, **columns: Any) -> Records:
    """``n`` requests, one each 50 ms: TTFT 100 ms, 10 tokens at 20 ms, unless told otherwise.

    ``ttft_ms``, ``tpot_ms``, ``lag_ms`` and ``e2e_s`` may be given in place of moments.
    """
    due = np.asarray(columns.pop("due_s", np.arange(n) * 0.05), float)
    outputs = np.full(n, columns.pop("output_tokens", 10))
    first = due + np.full(n, columns.pop("ttft_ms", 100.0)) / 1000
    tpot = np.full(n, columns.pop("tpot_ms", 20.0)) / 1000
    last = first + tpot * (outputs - 1)
    base: dict[str, Any] = {
        "index": np.arange(n),
        "worker": np.zeros(n, int),
        "class_name": np.full(n, "chat", object),
        "due_s": due,
        "sent_s": due + np.full(n, columns.pop("lag_ms", 0.5)) / 1000,
        "first_token_s": first,
        "second_token_s": np.where(outputs > 1, first + tpot, np.nan),
        "last_token_s": last,
        "done_s": last,
        "planned_input_tokens": np.full(n, 1000),
        "planned_output_tokens": outputs,
        "input_tokens": np.full(n, 1000),
        "cached_tokens": np.zeros(n, int),
        "output_tokens": outputs,
        "n_first": np.ones(n, int),
        "token_source": np.full(n, "usage", object),
        "clock": np.full(n, "kernel", object),
        "outcome": np.full(n, "ok", object),
    }
    return Records.from_columns({**base, **columns})


def context(rows: Records, **more: Any) -> RunContext:
    """What a runner would add: no warm-up, SLOs of 500 and 50 ms, 4P5D with a cap of 64."""
    end_s = float(rows.due_s.max()) + 0.05 if len(rows) else 60.0
    facts: dict[str, Any] = {
        "run_id": "20260101T000000Z-1",
        "seed": 1,
        "target": "http://test",
        "window_s": end_s,
        "stopped_at_s": end_s,
        "warmup_s": 0.0,
        "slo": Slo(ttft_p99_ms=500, tpot_p99_ms=50),
        "rate_planned_rps": len(rows) / end_s,
        "deployment": Size(prefill_instances=4, decode_instances=5, max_running_requests=64),
    }
    return RunContext(**{**facts, **more})


def measured(rows: Records, **more: Any) -> Measurement:
    """Measured with that context."""
    return measure(rows, context(rows, **more))
