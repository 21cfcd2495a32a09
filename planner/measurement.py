"""What a run measured: the first half of run.json, from the records and what only the runner knows."""

import math
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from planner.records import LOST, OK, UNFINISHED, UNSENT, Floats, Records
from planner.signals import ServerSignals
from planner.statistics import effective_size, nearest_rank, quantile_interval
from planner.window import Backlog, Missed, backlog, in_window, last_seen_s, missed, settled_at

SCHEMA_VERSION = 1
HIT_MARGIN = 0.05  # between the hit rate of the workload and the one found
MIN_SAMPLES = 299  # below, nothing is above a P99 for certain


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)


class Slo(_Part):
    """Limits of the 99th percentiles, ms."""

    ttft_p99_ms: float
    tpot_p99_ms: float


class Size(_Part):
    """How many instances, and the cap of one decode instance (None: not known)."""

    prefill_instances: int
    decode_instances: int
    max_running_requests: int | None = None


class RunContext(_Part):
    """What the records do not say."""

    run_id: str
    seed: int
    target: str
    model: str = ""
    workers: int = 1
    versions: dict[str, str] = Field(default_factory=dict)
    started_at: str = ""
    workload: dict[str, str] = Field(default_factory=dict)
    window_s: float
    stopped_at_s: float
    warmup_s: float | None = None
    emulated: bool = False
    partial: bool = False
    partial_reason: str = ""
    slo: Slo
    class_slo: dict[str, Slo] = Field(default_factory=dict)  # of classes with limits of their own
    wanted_hit_rate: float | None = None  # of prompt tokens, once everything shared was seen
    rate_planned_rps: float
    max_concurrency: int = 0
    duplicates: int = 0
    outcomes: dict[str, int] | None = None  # exact counts, where the records are a sample
    deployment: Size | None = None
    client: dict[str, float] = Field(default_factory=dict)
    itl: dict[str, float | None] = Field(default_factory=dict)
    server: dict[str, Any] | None = None  # as scraped; ``signals`` reads it
    notes: list[str] = Field(default_factory=list)

    @property
    def signals(self) -> ServerSignals | None:
        """What the servers said of themselves; None where none was scraped."""
        if not self.server:
            return None
        told = ServerSignals.model_validate(self.server)
        return told if told.prefill or told.decode else None


class Arrivals(_Part):
    """Where every due arrival went."""

    due: int
    succeeded: int
    failed: dict[str, int]
    unfinished: int
    unsent: int
    lost: int
    duplicates: int

    @property
    def adds_up(self) -> bool:
        """Whether each is counted once."""
        parts = (self.succeeded, sum(self.failed.values()), self.unfinished, self.unsent, self.lost)
        return self.due == sum(parts) and self.duplicates == 0


class Spread(_Part):
    """Percentiles of one metric, ms, with how sure the 99th is."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    n: int = 0
    n_eff: float = 0.0
    ci_low: float | None = None
    ci_high: float | None = None
    violation_rate: float | None = None


class ClassFigures(_Part):
    """One kind of traffic in a mixed run."""

    n: int
    slo: Slo | None = None
    ttft_p50_ms: float | None = None
    ttft_p90_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p90_ms: float | None = None
    tpot_p99_ms: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    ttft_violation_rate: float
    tpot_violation_rate: float


class Saturation(_Part):
    """Whether more came in than went out (window.Backlog)."""

    saturated: bool = False
    completed_share: float = 1.0
    in_flight_mean: float = 0.0
    in_flight_rise: float = 0.0


class Measurement(RunContext):
    """All of it."""

    schema_version: int = SCHEMA_VERSION
    measured: int = 0  # arrivals in the measured window
    excluded: int = 0  # arrivals before it
    undecided: int = 0  # cut off before it could be told whether they meet the limits
    arrivals: Arrivals
    rate_rps: dict[str, float]
    interarrival_cv: float | None = None
    ttft_ms: Spread
    ttft_from_sent_ms: Spread
    tpot_ms: Spread
    itl_ms: Spread
    first_gap_ms: Spread = Spread()
    steady_tpot_ms: Spread = Spread()  # without the first gap
    lag_ms: Spread
    input_tokens: dict[str, float]
    output_tokens: dict[str, float]
    estimated_share: float = 0.0  # of the answers, whose tokens were counted from events
    classes: dict[str, ClassFigures] = Field(default_factory=dict)
    saturation: Saturation = Saturation()
    warnings: list[str] = Field(default_factory=list)


def measure(records: Records, context: RunContext) -> Measurement:
    """Count, cut the warm-up, take percentiles."""
    end_s = min(context.stopped_at_s, context.window_s)
    warmup_s = context.warmup_s if context.warmup_s is not None else settled_at(records, end_s)
    window = records.where(in_window(records, warmup_s))
    over = judged(window, records, context)
    ok = window.where(window.ok)
    facts = context.model_dump()
    facts["warmup_s"] = warmup_s
    n, itl = len(window), context.itl
    m = Measurement(
        **facts,
        measured=n,
        excluded=int((records.due_s < warmup_s).sum()),
        undecided=int((over.ttft_open | over.tpot_open).sum()),
        arrivals=count(records, context),
        rate_rps=_rates(window, context, warmup_s, end_s),
        interarrival_cv=_cv(np.diff(window.due_s)),
        ttft_ms=spread(1000 * ok.ttft_s, float(over.ttft.mean()) if n else None),
        ttft_from_sent_ms=spread(1000 * (ok.first_token_s - ok.sent_s), None),
        tpot_ms=spread(1000 * ok.tpot_s, float(over.tpot.mean()) if n else None),
        itl_ms=Spread(
            p50=itl.get("p50"), p90=itl.get("p90"), p99=itl.get("p99"), n=int(itl.get("n") or 0)
        ),
        first_gap_ms=spread(1000 * ok.first_gap_s, None),
        steady_tpot_ms=spread(1000 * ok.steady_tpot_s, None),
        lag_ms=spread(1000 * window.lag_s, None),
        input_tokens=_tokens(ok.effective_tokens, ok),
        output_tokens={**_moments(ok.answer_tokens), **_asked(ok.planned_output_tokens)},
        estimated_share=float((ok.token_source == "estimated").mean()) if len(ok) else 0.0,
        classes=_classes(window, over, context),
        saturation=_saturation(backlog(records, warmup_s, end_s)),
    )
    return m.model_copy(update={"warnings": warnings(m)})


def judged(window: Records, records: Records, context: RunContext) -> Missed:
    """Which arrivals of the window missed the SLOs of this run."""
    names, place = np.unique(window.class_name.astype(str), return_inverse=True)
    slos = [context.class_slo.get(name, context.slo) for name in names.tolist()]
    ttft_s = np.array([s.ttft_p99_ms / 1000 for s in slos])[place]
    tpot_s = np.array([s.tpot_p99_ms / 1000 for s in slos])[place]
    end_s = last_seen_s(records, context.stopped_at_s)
    return missed(window, ttft_s, tpot_s, end_s)


def count(records: Records, context: RunContext) -> Arrivals:
    """Every due arrival by how it ended."""
    names, counts = np.unique(records.outcome.astype(str), return_counts=True)
    by_name = dict(zip(names.tolist(), counts.tolist(), strict=True))
    by_name = dict(context.outcomes) if context.outcomes is not None else by_name
    special = {name: by_name.pop(name, 0) for name in (OK, UNFINISHED, UNSENT, LOST)}
    return Arrivals(
        due=sum(special.values()) + sum(by_name.values()),
        succeeded=special[OK],
        failed=by_name,
        unfinished=special[UNFINISHED],
        unsent=special[UNSENT],
        lost=special[LOST],
        duplicates=context.duplicates,
    )


def spread(values_ms: Floats, violation_rate: float | None) -> Spread:
    """Percentiles, effective size and interval of values in order of time."""
    values = values_ms[np.isfinite(values_ms)]
    if not len(values):
        return Spread(violation_rate=violation_rate)
    n_eff = effective_size(values)
    low, high = quantile_interval(values, 0.99, n_eff)
    return Spread(
        p50=nearest_rank(values, 0.5),
        p90=nearest_rank(values, 0.9),
        p99=nearest_rank(values, 0.99),
        n=len(values),
        n_eff=round(n_eff, 1),
        ci_low=None if math.isnan(low) else low,
        ci_high=None if math.isnan(high) else high,
        violation_rate=violation_rate,
    )


def _rates(window: Records, context: RunContext, warmup_s: float, end_s: float) -> dict[str, float]:
    span_s = max(end_s - warmup_s, 1e-9)
    done = window.ok & (window.done_s <= warmup_s + span_s)
    return {
        "planned": context.rate_planned_rps,
        "due": len(window) / span_s,
        "sent": float(np.isfinite(window.sent_s).sum()) / span_s,
        "completed": float(done.sum()) / span_s,
    }


def _saturation(seen: Backlog) -> Saturation:
    return Saturation(
        saturated=seen.saturated,
        completed_share=round(seen.completed_share, 4),
        in_flight_mean=round(seen.in_flight_mean, 2),
        in_flight_rise=round(seen.in_flight_rise, 2),
    )


def _classes(window: Records, over: Missed, context: RunContext) -> dict[str, ClassFigures]:
    names = window.class_name.astype(str)
    out = {}
    for name in np.unique(names).tolist():
        mine = names == name
        ok = window.where(mine & window.ok)
        out[name] = ClassFigures(
            n=int(mine.sum()),
            slo=context.class_slo.get(name, context.slo),
            **_three("ttft", 1000 * ok.ttft_s),
            **_three("tpot", 1000 * ok.tpot_s),
            input_tokens=float(ok.effective_tokens.mean()) if len(ok) else None,
            output_tokens=float(ok.answer_tokens.mean()) if len(ok) else None,
            ttft_violation_rate=float(over.ttft[mine].mean()),
            tpot_violation_rate=float(over.tpot[mine].mean()),
        )
    return out


def _three(name: str, values: Floats) -> dict[str, float]:
    seen = values[np.isfinite(values)]
    if not len(seen):
        return {}
    return {f"{name}_p{100 * q:.0f}_ms": nearest_rank(seen, q) for q in (0.5, 0.9, 0.99)}


def _cv(values: Floats) -> float | None:
    mean = float(values.mean()) if len(values) else 0.0
    return float(values.std()) / mean if mean > 0 else None


def _moments(tokens: Floats) -> dict[str, float]:
    if not len(tokens):
        return {}
    return {
        "mean": float(tokens.mean()),
        "cv": _cv(tokens) or 0.0,
        "p99": nearest_rank(tokens, 0.99),
    }


def _asked(planned: Any) -> dict[str, float]:
    return {"asked_mean": float(planned.mean())} if len(planned) else {}


def _tokens(effective: Floats, ok: Records) -> dict[str, float]:
    """Of the prompt: effective tokens, the hit rate, and how far the lengths were from the plan."""
    told = ok.input_tokens > 0
    if not told.any():
        return {**_moments(effective), **_asked(ok.planned_input_tokens)}
    inputs = ok.input_tokens[told]
    wanted = ok.planned_input_tokens[told]
    error = np.abs(inputs - wanted) / np.maximum(wanted, 1)
    return {
        **_moments(effective),
        **_asked(wanted),
        "told_mean": float(inputs.mean()),
        "hit_rate": float(np.maximum(ok.cached_tokens[told], 0).sum() / inputs.sum()),
        "error_p50": nearest_rank(error, 0.5),
        "error_p99": nearest_rank(error, 0.99),
    }


# -- doubts ----------------------------------------------------------------------------------------


def warnings(m: Measurement) -> list[str]:
    """What a reader should doubt: each with its figure and what to do."""
    return [text for text in (*_doubts_of_tokens(m), *_doubts_of_time(m)) if text]


def _doubts_of_tokens(m: Measurement) -> list[str]:
    out = []
    if m.estimated_share > 0:
        out.append(
            f"Token counts of {100 * m.estimated_share:.0f} % of the answers were estimated from events: the "
            "server sent no usage. TPOT is off where an event carries several tokens."
        )
    asked, told = m.input_tokens.get("asked_mean"), m.input_tokens.get("told_mean")
    if asked and told and abs(told / asked - 1) > 0.05:
        out.append(
            f"Prompts have {told:.0f} tokens on the server, {asked:.0f} were asked for "
            f"({100 * (told / asked - 1):+.1f} %): the plan uses what the server says."
        )
    out += _doubts_of_hits(m)
    asked, told = m.output_tokens.get("asked_mean"), m.output_tokens.get("mean")
    if asked and told and told < 0.95 * asked:
        out.append(
            f"Answers have {told:.0f} tokens, {asked:.0f} were asked for: D is tested with less than planned. Use a "
            "target that takes ignore_eos or min_tokens."
        )
    return out


def _doubts_of_hits(m: Measurement) -> list[str]:
    """The hit rate that was asked for, and the one that came of it."""
    wanted, found = m.wanted_hit_rate, m.input_tokens.get("hit_rate")
    if wanted is None or found is None or abs(found - wanted) <= HIT_MARGIN:
        return []
    return [
        f"{100 * found:.1f} % of the prompt tokens came from the prefix cache, the workload shares "
        f"{100 * wanted:.1f} %: the plan uses what the server says. A cold or small cache, blocks, or a router "
        "that does not keep shared prompts together make it less; a template that is cached, more."
    ]


def _doubts_of_time(m: Measurement) -> list[str]:
    out = []
    if 0 < m.ttft_ms.n < MIN_SAMPLES:
        out.append(
            f"n = {m.ttft_ms.n}: a P99 of fewer than {MIN_SAMPLES} is not reliable (it is likely below the true one)."
        )
    if m.arrivals.unfinished:
        out.append(
            f"{m.arrivals.unfinished} requests were in flight at the end and are in no percentile; "
            "a longer --drain-timeout lets them finish."
        )
    if m.arrivals.lost:
        out.append(
            f"{m.arrivals.lost} arrivals were lost with a worker; {m.rate_rps.get('sent', 0.0):.2f} requests a second "
            f"were sent, {m.rate_planned_rps:.2f} planned."
        )
    return out
