"""Before a run: options, plan, workload and target settle what will be sent. Leading process only.

Who wins where they disagree: command line > plan > workload > default.
"""

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from pd_users import VERSION
from pd_users.client import Client
from pd_users.errors import TargetError
from pd_users.options import DEFAULT_SLO_MS, DEFAULT_WINDOW_S, RunOptions, read
from pd_users.preflight import Learned, preflight
from pd_users.secrets import guard_logs
from pd_users.server_metrics import Scraper
from pd_users.spec import RunSpec
from pd_users.target import DEFAULT_EXTRAS, Target, build_target
from pd_users.timeouts import Timeouts, timeouts_for
from pd_users.traffic import Share, Source, Traffic, build, load
from pd_users.users import PDUser
from planner.config import Plan, load_plan
from workloads.errors import ConfigError
from workloads.workload import Workload

MIN_SLOTS, MAX_SLOTS = 16, 20_000


@dataclass
class Prepared:
    """A run that may begin, and what its conclusion will need."""

    spec: RunSpec
    traffic: Traffic
    plan: Plan | None
    emulated: bool
    deployment: dict[str, Any] | None
    scraper: Scraper
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Ask:
    """What the caller knows beside the options."""

    host: str
    embedded: bool
    run_time_s: float | None  # Locust's -t
    users: int | None  # Locust's -u


def prepare(parsed: Any, user_classes: Sequence[type[PDUser]], ask: Ask) -> Prepared:
    """Settle one run. Raises ConfigError, PlanError or TargetError: one sentence each."""
    options = read(parsed)
    plan = load_plan(options.plan) if options.plan else None
    shares = [Share(c.workload, c.weight) for c in user_classes]
    workloads = [load(options, s.workload) for s in shares]
    rate_rps = _rate(options, plan, workloads)
    window_s = float(ask.run_time_s or _first(w.window_s for w in workloads) or DEFAULT_WINDOW_S)
    traffic = build(options, shares, rate_rps, window_s)
    ttft_ms, tpot_ms = _slo(options, plan, workloads)
    learned = _look(options, ask.host, (ttft_ms, tpot_ms))
    longest = max(w.longest_output_tokens for w in workloads)
    limits = timeouts_for(ttft_ms / 1000, tpot_ms / 1000, longest)
    spec = RunSpec(
        run_id=f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{options.seed}",
        options=options,
        host=ask.host,
        model=learned.target.model,
        rate_rps=rate_rps,
        window_s=window_s,
        ttft_slo_ms=ttft_ms,
        tpot_slo_ms=tpot_ms,
        slots=ask.users or slots_for(rate_rps, limits, window_s),
        workload_name=traffic.name,
        digest=traffic.digest,
        salt="" if options.warm else secrets.token_hex(4),
        version=VERSION,
        learned={
            "template_tokens": learned.template_tokens,
            "tokens_per_word": learned.tokens_per_word,
            "extras": list(learned.target.extras()),
            "timeouts": asdict(limits),
        },
    )
    pages, said = _metrics_pages(options, learned)
    return Prepared(
        spec=spec,
        traffic=traffic,
        plan=plan,
        emulated=ask.embedded or learned.is_emulator,
        deployment=_deployment(plan, learned),
        scraper=Scraper(*pages),
        notes=[*learned.notes, *said, *(note for w in workloads for note in w.notes)],
    )


def _first(values: Iterable[Any]) -> Any:
    return next((v for v in values if v is not None), None)


def _rate(options: RunOptions, plan: Plan | None, workloads: Sequence[Source]) -> float:
    if any(w.users for w in workloads):
        return _closed_loop_rate(options, plan, workloads)
    if options.trace and all(w.rate_rps is not None for w in workloads):  # else it has no moments
        if options.rate_rps is not None:
            raise ConfigError(
                "--rate: a trace is sent at its own moments; --trace-speed changes its rate."
            )
        return sum(w.rate_rps or 0.0 for w in workloads)
    asked = options.rate_rps
    if asked is None and plan is not None:
        asked = plan.slo.target_qps
    if asked is None:
        rates = [w.rate_rps for w in workloads]
        if None in rates:
            raise ConfigError(
                "--rate: not given, and neither the plan nor the workload names a rate."
            )
        asked = sum(r for r in rates if r is not None)
    return asked


def _closed_loop_rate(options: RunOptions, plan: Plan | None, workloads: Sequence[Source]) -> float:
    """What the users would ask for if every answer just kept its SLOs."""
    if options.rate_rps is not None:
        raise ConfigError(
            "--rate: the workload is a closed loop, its rate follows from its users and their think "
            "time; change users in the workload."
        )
    ttft_ms, tpot_ms = _slo(options, plan, workloads)
    return sum(
        w.users / (w.mean_think_s + (ttft_ms + tpot_ms * w.expected_output_tokens) / 1000)
        if isinstance(w, Workload) and w.users
        else w.rate_rps or 0.0
        for w in workloads
    )


def _slo(
    options: RunOptions, plan: Plan | None, workloads: Sequence[Source]
) -> tuple[float, float]:
    of_plan = (plan.slo.ttft_p99_ms, plan.slo.tpot_p99_ms) if plan else (None, None)
    ttft = (options.ttft_p99_ms, of_plan[0], *(w.ttft_p99_ms for w in workloads))
    tpot = (options.tpot_p99_ms, of_plan[1], *(w.tpot_p99_ms for w in workloads))
    return float(_first((*ttft, DEFAULT_SLO_MS[0]))), float(_first((*tpot, DEFAULT_SLO_MS[1])))


def _look(options: RunOptions, host: str, slo_ms: tuple[float, float]) -> Learned:
    target = build_target(options, host, options.model or "", DEFAULT_EXTRAS)
    guard_logs(target.endpoint.secrets)
    if options.preflight:
        return preflight(target, options.wait_s or None, slo_ms)
    if not target.model:
        raise ConfigError("--model: --no-preflight does not ask the target, so give the model id.")
    return Learned(target, notes=["the target was not looked at (--no-preflight)"])


def _metrics_pages(
    options: RunOptions, learned: Learned
) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], list[str]]:
    """/metrics of P and of D: as given, else of the instances that the router lists."""
    given = options.prefill_metrics_url, options.decode_metrics_url
    if any(given) or learned.instances is None:
        return given, []
    p, d = (learned.instances.metrics_urls(role) for role in ("prefill", "decode"))
    note = (
        f"metrics of {len(p)} P and {len(d)} D are read, found through {learned.instances.source}"
    )
    return (p, d), [note] if p or d else []


def slots_for(rate_rps: float, limits: Timeouts, window_s: float) -> int:
    """Concurrency that the rate can need: nothing stays in flight longer than its time limit."""
    longest_s = min(limits.total_s, window_s)
    return int(min(max(rate_rps * longest_s * 1.2 + 10, MIN_SLOTS), MAX_SLOTS))


def usual_slots(parsed: Any, run_time_s: float | None) -> int:
    """Slots for the options as they stand, before any look at the target."""
    options = read(parsed)
    plan = load_plan(options.plan) if options.plan else None
    workload = load(options, None)
    window_s = float(run_time_s or workload.window_s or DEFAULT_WINDOW_S)
    ttft_ms, tpot_ms = _slo(options, plan, [workload])
    limits = timeouts_for(ttft_ms / 1000, tpot_ms / 1000, workload.longest_output_tokens)
    return slots_for(_rate(options, plan, [workload]), limits, window_s)


def _deployment(plan: Plan | None, learned: Learned) -> dict[str, Any] | None:
    """What runs there: what the plan says, else what the emulator says of itself."""
    if plan is not None and plan.deployment is not None:
        return plan.deployment.model_dump()
    return deployment_of(learned.target) if learned.is_emulator else None


def deployment_of(target: Target) -> dict[str, Any] | None:
    """The emulator's own word; None when it does not answer."""
    client = Client(target.endpoint, Timeouts(connect_s=5, first_byte_s=5, total_s=5))
    try:
        told = orjson.loads(client.request("GET", "/deployment").body)
        keys = ("prefill_instances", "decode_instances", "max_running_requests")
        return {key: told[key] for key in keys}
    except (TargetError, orjson.JSONDecodeError, KeyError):
        return None
    finally:
        client.close()
