"""What a run measured: the first half of run.json, from the records and what only the runner knows."""

import math
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from planner.records import LOST, OK, UNFINISHED, UNSENT, Flags, Floats, Records
from planner.statistics import autocorrelation_time, mser5, nearest_rank, quantile_interval

SCHEMA_VERSION = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


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
    rate_planned_rps: float
    max_concurrency: int = 0
    duplicates: int = 0
    outcomes: dict[str, int] | None = None  # exact counts, where the records are a sample
    deployment: Size | None = None
    client: dict[str, float] = Field(default_factory=dict)
    itl: dict[str, float | None] = Field(default_factory=dict)
    server: dict[str, Any] | None = None
    notes: list[str] = Field(default_factory=list)


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


class Measurement(RunContext):
    """All of it."""

    schema_version: int = SCHEMA_VERSION
    measured: int = 0  # arrivals in the measured window
    arrivals: Arrivals
    rate_rps: dict[str, float]
    ttft_ms: Spread
    ttft_from_sent_ms: Spread
    tpot_ms: Spread
    itl_ms: Spread
    lag_ms: Spread
    input_tokens: dict[str, float]
    output_tokens: dict[str, float]
    tokens_per_chunk: float | None = None


def measure(records: Records, context: RunContext) -> Measurement:
    """Count, cut the warm-up, take percentiles."""
    warmup_s = context.warmup_s if context.warmup_s is not None else settled_at(records, context)
    window = records.where(in_window(records, warmup_s))
    ok = window.where(window.ok)
    ttft_over, tpot_over = violations(window, context.slo, context.stopped_at_s)
    sent = np.isfinite(window.sent_s)
    sent_ms = 1000 * (ok.first_token_s - ok.sent_s)
    facts = context.model_dump()
    facts["warmup_s"] = warmup_s
    return Measurement(
        **facts,
        measured=len(window),
        arrivals=count(records, context),
        rate_rps=_rates(window, context, warmup_s),
        ttft_ms=spread(1000 * ok.ttft_s, float(ttft_over.mean()) if len(window) else None),
        ttft_from_sent_ms=spread(sent_ms, None),
        tpot_ms=spread(1000 * ok.tpot_s, float(tpot_over.mean()) if len(window) else None),
        itl_ms=Spread(
            p50=context.itl.get("p50"),
            p90=context.itl.get("p90"),
            p99=context.itl.get("p99"),
            n=int(context.itl.get("n") or 0),
        ),
        lag_ms=spread(1000 * (window.sent_s - window.due_s)[sent], None),
        input_tokens=_tokens(ok.effective_tokens, ok),
        output_tokens=_moments(ok.answer_tokens),
    )


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


def in_window(records: Records, warmup_s: float) -> Flags:
    """Due after the warm-up, and on a worker that lived to send it."""
    mine = ~np.isin(records.outcome, (UNSENT, LOST))
    return np.asarray((records.due_s >= warmup_s) & mine)


def settled_at(records: Records, context: RunContext) -> float:
    """Where the run has settled: three times a request's life, and MSER-5 on the in-flight count.

    Never more than a fifth of the window: what does not settle by then is not a warm-up.
    """
    ok = records.where(records.ok)
    if not len(ok):
        return 0.0
    end_s = min(context.stopped_at_s, context.window_s)
    life_s = 3 * float(np.median(ok.done_s - ok.sent_s))
    times = np.arange(0.0, end_s, max(end_s / 200, 0.05))
    begun = np.searchsorted(np.sort(ok.sent_s), times)
    ended = np.searchsorted(np.sort(ok.done_s), times)
    cut = mser5((begun - ended).astype(float))
    settled_s = float(times[min(cut, len(times) - 1)]) if len(times) else 0.0
    return round(min(max(life_s, settled_s), end_s / 5), 3)


def violations(window: Records, slo: Slo, end_s: float) -> tuple[Flags, Flags]:
    """Which arrivals missed the TTFT and the TPOT limit; failures miss both, and so does what was
    unfinished past its limit."""
    ttft_slo_s, tpot_slo_s = slo.ttft_p99_ms / 1000, slo.tpot_p99_ms / 1000
    open_ = window.outcome == UNFINISHED
    begun = np.isfinite(window.first_token_s)
    waited_s = np.where(begun, window.ttft_s, end_s - window.due_s)
    ttft = window.failed | (np.where(window.ok, window.ttft_s, waited_s) > ttft_slo_s)
    allowed_s = window.planned_output_tokens * tpot_slo_s
    dragging = open_ & begun & (end_s - window.first_token_s > allowed_s)
    with np.errstate(invalid="ignore"):
        tpot = window.failed | (window.ok & (window.tpot_s > tpot_slo_s)) | dragging
    return np.asarray(ttft & (window.ok | open_ | window.failed)), np.asarray(tpot)


def spread(values_ms: Floats, violation_rate: float | None) -> Spread:
    """Percentiles, effective size and interval of values in order of time."""
    values = values_ms[np.isfinite(values_ms)]
    if not len(values):
        return Spread(violation_rate=violation_rate)
    capped = np.minimum(values, nearest_rank(values, 0.995))
    n_eff = len(values) / autocorrelation_time(capped)
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


def _rates(window: Records, context: RunContext, warmup_s: float) -> dict[str, float]:
    span_s = max(min(context.stopped_at_s, context.window_s) - warmup_s, 1e-9)
    done = window.ok & (window.done_s <= warmup_s + span_s)
    return {
        "planned": context.rate_planned_rps,
        "due": len(window) / span_s,
        "sent": float(np.isfinite(window.sent_s).sum()) / span_s,
        "completed": float(done.sum()) / span_s,
    }


def _moments(tokens: Floats) -> dict[str, float]:
    if not len(tokens):
        return {}
    return {
        "mean": float(tokens.mean()),
        "cv": float(tokens.std() / tokens.mean()),
        "p99": nearest_rank(tokens, 0.99),
    }


def _tokens(effective: Floats, ok: Records) -> dict[str, float]:
    """Of the prompt: effective tokens, the hit rate, and how far the lengths were from the plan."""
    told = ok.input_tokens > 0
    if not told.any():
        return _moments(effective)
    inputs = ok.input_tokens[told]
    wanted = ok.planned_input_tokens[told]
    error = np.abs(inputs - wanted) / wanted
    return {
        **_moments(effective),
        "told_mean": float(inputs.mean()),
        "hit_rate": float(np.maximum(ok.cached_tokens[told], 0).sum() / inputs.sum()),
        "error_p50": nearest_rank(error, 0.5),
        "error_p99": nearest_rank(error, 0.99),
    }
