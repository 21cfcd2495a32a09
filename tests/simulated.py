"""Runs without a run: a workload played on the emulated cluster in virtual time, as records."""

from typing import Any

import numpy as np

from emulator.cluster import simulate
from emulator.model import Deployment, Engine
from planner.measure import measure
from planner.measurement import Measurement, RunContext, Size, Slo
from planner.records import Records
from workloads.workload import load_workload

WORKLOAD = "azure_conv_2023"


def play(
    deployment: Deployment,
    rate_rps: float,
    window_s: float,
    seed: int,
    engine: Engine | None = None,
    workload: str = WORKLOAD,
) -> Records:
    """Records of one run against a cluster with this deployment."""
    due = list(load_workload(workload).schedule(seed, window_s, rate_rps).stripe(0, 1))
    arrivals = [(a.due_s, a.input_tokens, a.output_tokens, (), 0) for a in due]
    done = simulate(arrivals, deployment, engine or Engine(), seed)  # type: ignore[arg-type]
    n = len(due)
    columns: dict[str, Any] = {
        "index": [a.index for a in due],
        "worker": [0] * n,
        "class_name": [workload] * n,
        "due_s": [a.due_s for a in due],
        "sent_s": [a.due_s + 0.0005 for a in due],
        "first_token_s": [r.first_token_s for r in done],
        "second_token_s": [r.second_token_s for r in done],
        "last_token_s": [r.last_token_s for r in done],
        "done_s": [r.last_token_s for r in done],
        "planned_input_tokens": [a.input_tokens for a in due],
        "planned_output_tokens": [a.output_tokens for a in due],
        "input_tokens": [a.input_tokens for a in due],
        "cached_tokens": [0] * n,
        "output_tokens": [a.output_tokens for a in due],
        "n_first": [1] * n,
        "token_source": ["usage"] * n,
        "clock": ["kernel"] * n,
        "outcome": np.where([r.outcome == "ok" for r in done], "ok", "unfinished").tolist(),
    }
    return Records.from_columns(columns)


def measured(
    records: Records,
    deployment: Deployment,
    window_s: float,
    slo_ms: tuple[float, float],
    **more: Any,
) -> Measurement:
    """What a runner would hand to the planner."""
    context = {
        "run_id": "test",
        "seed": 1,
        "target": "http://test",
        "window_s": window_s,
        "stopped_at_s": window_s,
        "slo": Slo(ttft_p99_ms=slo_ms[0], tpot_p99_ms=slo_ms[1]),
        "rate_planned_rps": len(records) / window_s,
        "deployment": Size(
            prefill_instances=deployment.prefill_instances,
            decode_instances=deployment.decode_instances,
            max_running_requests=deployment.max_running_requests,
        ),
    }
    return measure(records, RunContext(**{**context, **more}))
