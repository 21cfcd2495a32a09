"""From records to figures: count, cut the warm-up, take percentiles."""

import math
from typing import Any

import numpy as np

from planner.doubts import warnings
from planner.measurement import (
    Arrivals,
    ClassFigures,
    Measurement,
    RunContext,
    Saturation,
    Spread,
)
from planner.records import LOST, OK, UNFINISHED, UNSENT, Floats, Records
from planner.statistics import effective_size, nearest_rank, quantile_interval
from planner.window import Backlog, Missed, backlog, in_window, last_seen_s, missed, settled_at


def measure(records: Records, context: RunContext) -> Measurement:
    """Count, cut the warm-up, take percentiles."""
    end_s = min(context.stopped_at_s, context.window_s)
    warmup_s = context.warmup_s if context.warmup_s is not None else settled_at(records, end_s)
    window = records.where(in_window(records, warmup_s))
    over = judged(window, records, context)
    ok = window.where(window.ok)
    facts = context.model_dump(
        include=set(RunContext.model_fields)
    )  # of a run that is judged again
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
    end_s = last_seen_s(records, context.stopped_at_s)
    ttft_s, tpot_s = context.slo.ttft_p99_ms / 1000, context.slo.tpot_p99_ms / 1000
    if (shares := class_limits(window, context)) is None:
        return missed(window, ttft_s, tpot_s, end_s)
    return missed(window, shares[0] * ttft_s, shares[1] * tpot_s, end_s)


def class_limits(window: Records, context: RunContext) -> tuple[Floats, Floats] | None:
    """For each row its class's limits of TTFT and TPOT over the run's; None where all are the run's."""
    if not context.class_slo:
        return None
    names, place = np.unique(window.class_name.astype(str), return_inverse=True)
    slos = [context.class_slo.get(name, context.slo) for name in names.tolist()]
    ttft = np.array([s.ttft_p99_ms / context.slo.ttft_p99_ms for s in slos])
    tpot = np.array([s.tpot_p99_ms / context.slo.tpot_p99_ms for s in slos])
    return ttft[place], tpot[place]


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
