"""Where the TTFT of a run was spent, and who is short: the calibrated models and the servers' own word.

TTFT = client lag + wait for a slot of D + wait for P + prefill + transfer + wait for a step of D. The model
gives every part; what the servers measure takes its place.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from planner.calibrate import UNKNOWN_CAP, Calibration, calibrate
from planner.config import Plan
from planner.fit_prefill import PLAYED_WHOLE, beginning
from planner.measure import class_limits
from planner.measurement import Measurement, Size
from planner.models import Layout, Traffic
from planner.pipeline import play
from planner.predict import TTFT_MARGIN, Forecast, Limits
from planner.records import Floats, Records
from planner.signals import ServerSignals
from planner.statistics import nearest_rank
from planner.verdict import Part
from planner.window import in_window

SATURATED_MARGIN = 0.85
FULL = 0.9  # of the cap, or of the KV memory, in the servers' own gauges
STAGES = (
    "client lag",
    "wait for a D slot",
    "wait for P",
    "prefill",
    "KV transfer",
    "wait for a D step",
)


@dataclass
class Picture:
    """The calibrated models, the traffic, the limits, and what was seen."""

    size: Size
    now: Layout
    calibration: Calibration
    forecast: Forecast
    limits: Limits
    split: list[Part]
    kv_bound: bool = False
    gpus: tuple[int, int] = (1, 1)
    routing_told: bool = False
    reasons: list[str] = field(default_factory=list)

    @property
    def cap_known(self) -> bool:
        """Whether the cap of D was told."""
        return self.now.cap < UNKNOWN_CAP

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        c = self.calibration
        return {
            "prefill_model": asdict(c.prefill),
            "decode_model": asdict(c.decode),
            "layout": asdict(c.layout),
            "fit_error": None if np.isnan(c.error) else c.error,
            "not_told": list(c.untold),
            "kv_bound": self.kv_bound,
        }


def picture(plan: Plan | None, m: Measurement, records: Records) -> Picture:
    """Put it together for a run whose deployment is known."""
    assert m.deployment is not None
    calibration = calibrate(plan, m, records)
    warmup_s = m.warmup_s or 0.0
    window = records.where(records.due_s >= warmup_s)
    see = Picture(
        m.deployment,
        calibration.layout,
        calibration,
        Forecast.of(calibration, window, limits=class_limits(window, m)),
        _limits(m),
        ttft_split(m, calibration, records),
        kv_bound=calibration.kv_bound or _kv_short(m.signals),
        gpus=(plan.prefill.gpus, plan.decode.gpus) if plan else (1, 1),
        routing_told="routing" not in calibration.untold,
    )
    see.reasons = _evidence(m, see)
    return see


def _limits(m: Measurement) -> Limits:
    """A saturated run shows less of a prefill by itself, so what is sized from it gets more room."""
    share = SATURATED_MARGIN if m.saturation.saturated else TTFT_MARGIN
    return Limits(m.slo.ttft_p99_ms / 1000, m.slo.tpot_p99_ms / 1000, share)


def _kv_short(told: ServerSignals | None) -> bool:
    """D has no KV memory left: it says so, or it had to put requests out."""
    if told is None:
        return False
    usage = told.worst("decode", "token_usage_p99") or 0.0
    return usage > 0.97 or told.total("decode", "retractions") > 0


# -- where the TTFT was spent --------------------------------------------------------------------------


def ttft_split(m: Measurement, calibration: Calibration, records: Records) -> list[Part]:
    """Each stage's part, from a play of the run's first requests, corrected by what was measured."""
    sent = records.where(in_window(records, 0.0) & np.isfinite(records.sent_s))
    if m.ttft_ms.n == 0 or not len(sent):
        return []
    begun = beginning(sent, PLAYED_WHOLE)
    stages = _stages(calibration, begun.traffic)
    total = np.sum(list(stages.values()), axis=0)
    slow = total >= nearest_rank(total, 0.99)
    seen_ms = 1000 * float((records.ttft_s[records.ok]).mean())
    lag_ms = 1000 * float(np.nanmean(records.lag_s[records.ok]))
    means = {stage: 1000 * float(times.mean()) for stage, times in stages.items()}
    told = _measured(m)
    sources = {stage: "measured" if stage in told else "modelled" for stage in means}
    means.update(told)
    rest = max(seen_ms - lag_ms - sum(told.values()), 0.0)
    modelled = sum(v for stage, v in means.items() if stage not in told)
    scale = rest / modelled if modelled > 0 else 0.0
    parts = [Part(stage=STAGES[0], mean_ms=lag_ms, tail_ms=lag_ms, share=0.0, source="measured")]
    for stage, mean_ms in means.items():
        tail_ms = 1000 * float(stages[stage][slow].mean())
        shown_ms = mean_ms if stage in told else scale * mean_ms
        parts.append(
            Part(stage=stage, mean_ms=shown_ms, tail_ms=tail_ms, share=0.0, source=sources[stage])
        )
    whole = max(sum(part.mean_ms for part in parts), 1e-9)
    return [_rounded(part, whole) for part in parts]


def _rounded(part: Part, whole_ms: float) -> Part:
    return part.model_copy(
        update={
            "mean_ms": round(part.mean_ms, 2),
            "tail_ms": round(part.tail_ms, 2),
            "share": round(part.mean_ms / whole_ms, 4),
        }
    )


def _stages(calibration: Calibration, traffic: Traffic) -> dict[str, Floats]:
    model, layout = calibration.prefill, calibration.layout
    played = play(model, calibration.decode, layout, traffic)
    service = model.service_s(traffic.input_tokens)
    queue = np.maximum(played.prefill_s - service - model.overhead_s, 0.0)
    join = np.full(len(traffic), 0.5 * calibration.decode.step_s(calibration.decode.seen_batch / 2))
    beyond = np.maximum(played.ttft_s - played.prefill_s - join, 0.0)
    if model.utilisation(traffic, layout.prefill) > calibration.decode.utilisation(traffic, layout):
        queue, beyond = queue + beyond, 0.0 * beyond  # slots are short since P holds them
    overhead = np.full(len(traffic), model.overhead_s)
    return dict(zip(STAGES[1:], (beyond, queue, service, overhead, join), strict=True))


def _measured(m: Measurement) -> dict[str, float]:
    """Mean ms of the stages that the servers tell, by their histograms or by Little's law."""
    told = m.signals
    rate = m.rate_rps.get("sent") or 0.0
    if told is None or rate <= 0:
        return {}
    out = {}
    for stage, role, name in (
        (STAGES[2], "prefill", "queue_ms_mean"),
        (STAGES[3], "prefill", "prefill_ms_mean"),
        (STAGES[4], "prefill", "kv_transfer_ms_mean"),
        (STAGES[4], "decode", "kv_transfer_ms_mean"),
    ):
        value = told.mean(role, name)
        if value is not None and stage not in out:
            out[stage] = value
    if any(d.prealloc_mean is not None for d in told.decode) and decode_full(told, None):
        waiting = told.total("decode", "prealloc_mean") + told.total("decode", "queued_mean")
        out[STAGES[1]] = 1000 * waiting / rate
    return out


def decode_full(told: ServerSignals | None, cap: int | None) -> bool | None:
    """Whether D says that it is full: running at its cap or out of KV, while others wait. None: no word."""
    running = [d for d in told.decode if d.running_p99 is not None] if told else []
    if told is None or not running:
        return None
    for d in running:
        top = cap or d.cap
        at_cap = bool(top) and (d.running_p99 or 0.0) >= FULL * float(top or 0)
        no_memory = (d.token_usage_p99 or 0.0) >= FULL
        waiting = (d.prealloc_mean or 0.0) + (d.queued_mean or 0.0)
        if (at_cap or no_memory) and waiting > 0.1:
            return True
    return False


# -- in words --------------------------------------------------------------------------------------------


def _evidence(m: Measurement, see: Picture) -> list[str]:
    f, now, c = see.forecast, see.now, see.calibration
    out = []
    if m.saturation.saturated:
        out.append(
            f"More comes in than goes out: {100 * m.saturation.completed_share:.0f} % of the arrivals completed in "
            "the window, so its P99s depend on its length; sizes follow from the offered rate of "
            f"{m.rate_rps.get('due', 0.0):.2f} req/s."
        )
    load = f.prefill.utilisation(f.traffic, now.prefill)
    out.append(f"P is offered {100 * load:.0f} % of what it can do ({f.prefill.source}).")
    out.append(_of_decode(m, see))
    if see.split:
        main = max(see.split, key=lambda p: p.mean_ms)
        out.append(
            f"The mean TTFT is {100 * main.share:.0f} % {main.stage} ({main.mean_ms:.0f} ms, {main.source})."
        )
    if c.untold and now.prefill > 1 and "routing" in c.untold:
        out.append(
            f"Nobody told the routing to P; the run looks like {now.routing_prefill} (set routing in the plan)."
        )
    return [*out, *c.notes]


def _of_decode(m: Measurement, see: Picture) -> str:
    f, now = see.forecast, see.now
    if f.decode.alpha_s <= 0 and f.decode.beta_s <= 0:
        return "Nothing is known of D: no answer had a second token."
    if not see.cap_known:
        return f"D: up to {f.decode.seen_batch:.0f} requests decode on each; the cap is not known."
    told, full = m.signals, decode_full(m.signals, see.size.max_running_requests)
    load = 100 * f.decode_utilisation(now)
    if told is not None and full is not None:
        running = told.worst("decode", "running_mean") or 0.0
        waiting = told.total("decode", "prealloc_mean") + told.total("decode", "queued_mean")
        return (
            f"D's own metrics: {running:.1f} of {now.cap} running on the fullest, {waiting:.1f} waiting for a slot; "
            f"demand is {load:.0f} % of what D can do at the cap."
        )
    kv = " (KV memory holds it there)" if see.kv_bound else ""
    return (
        f"D: up to {f.decode.seen_batch:.0f} requests decode on each (cap {now.cap}{kv}), and demand is "
        f"{load:.0f} % of what it can do at the cap."
    )
