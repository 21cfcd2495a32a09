"""Before a run: options, plan, workload and target settle what will be sent. On the master only.

Who wins where they disagree: command line > plan > workload > default.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pd_users import VERSION
from pd_users.options import DEFAULT_SLO_MS, DEFAULT_WINDOW_S, RunOptions, read
from pd_users.spec import RunSpec
from pd_users.traffic import Share, Traffic, build, load
from pd_users.users import PDUser
from planner.config import Plan, load_plan
from workloads.errors import ConfigError
from workloads.workload import Workload

MAX_SLOTS = 20_000
MIN_SLOTS = 16


@dataclass
class Prepared:
    """A run that may begin, and what its conclusion will need."""

    spec: RunSpec
    traffic: Traffic
    plan: Plan | None
    emulated: bool
    deployment: dict[str, Any] | None
    notes: list[str] = field(default_factory=list)


def prepare(
    parsed: Any,
    user_classes: Sequence[type[PDUser]],
    host: str,
    embedded: bool,
    run_time_s: float | None,
    users: int | None,
) -> Prepared:
    """Settle one run. Raises ConfigError, PlanError or TargetError: one sentence each."""
    options = read(parsed)
    plan = load_plan(options.plan) if options.plan else None
    shares = [Share(c.workload, c.weight) for c in user_classes]
    workloads = [load(options, s.workload) for s in shares]
    rate_rps = _rate(options, plan, workloads)
    window_s = float(run_time_s or _first(w.window_s for w in workloads) or DEFAULT_WINDOW_S)
    traffic = build(options, shares, rate_rps, window_s)
    ttft_ms, tpot_ms = _slo(options, plan, workloads)
    raise NotImplementedError((host, embedded, users, traffic, ttft_ms, tpot_ms, VERSION))


def _first(values: Any) -> Any:
    return next((v for v in values if v is not None), None)


def _rate(options: RunOptions, plan: Plan | None, workloads: Sequence[Workload]) -> float | None:
    if options.rate_rps is not None and options.trace:
        raise ConfigError("--rate: a trace is sent at its own moments; use --trace-speed instead.")
    asked = options.rate_rps
    if asked is None and plan is not None and not options.trace:
        asked = plan.slo.target_qps
    rates = [w.rate_rps for w in workloads]
    if asked is None and None not in rates and len(rates) > 1:
        asked = sum(rates)  # type: ignore[arg-type]
    if asked is None and None in rates and not options.trace:
        raise ConfigError("--rate: not given, and neither the plan nor the workload names a rate.")
    return asked


def _slo(
    options: RunOptions, plan: Plan | None, workloads: Sequence[Workload]
) -> tuple[float, float]:
    of_plan = (plan.slo.ttft_p99_ms, plan.slo.tpot_p99_ms) if plan else (None, None)
    ttft = (options.ttft_p99_ms, of_plan[0], _first(w.ttft_p99_ms for w in workloads))
    tpot = (options.tpot_p99_ms, of_plan[1], _first(w.tpot_p99_ms for w in workloads))
    return float(_first((*ttft, DEFAULT_SLO_MS[0]))), float(_first((*tpot, DEFAULT_SLO_MS[1])))


def slots_for(rate_rps: float, longest_s: float, window_s: float) -> int:
    """Concurrency that the rate can need: nothing stays in flight longer than its time limit."""
    return int(min(max(rate_rps * min(longest_s, window_s) * 1.2 + 10, MIN_SLOTS), MAX_SLOTS))


def new_run_id(seed: int) -> str:
    """<UTC start>-<seed>, the name of the run's folder."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{seed}"


def new_salt() -> str:
    """Random letters, so that no prompt of this run was ever seen by a prefix cache."""
    return secrets.token_hex(6)
