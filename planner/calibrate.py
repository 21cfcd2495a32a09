"""What the run itself says of the engine: every run calibrates.

Decode first (``fit_decode``), which needs nothing else; then prefill (``fit_prefill``), by itself where no
slot of D can have been short, else together with D. Routing and admission that nobody told are those
under which the run is explained best.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from planner.config import Plan
from planner.fit_decode import fit_decode
from planner.fit_prefill import (
    PLAYED,
    PLAYED_WHOLE,
    Beginning,
    able,
    beginning,
    fit_alone,
    fit_whole,
    quickest,
)
from planner.measurement import Measurement
from planner.models import DEFAULT_CHUNK_TOKENS, DecodeModel, Layout, PrefillModel
from planner.records import Records
from planner.statistics import nearest_rank
from planner.window import in_flight, in_window, last_seen_s

UNKNOWN_CAP = 100_000
NEAR_CAP = 0.7  # of the cap, in flight on each D: from there on a slot may be short
PLATEAU = 0.85  # of the cap: a batch that stays below it while requests wait, KV memory holds there
FEWEST = 30  # answers, for a fit
CLEARLY = 0.8  # times the error of the usual explanation, and
ALIKE = 0.005  # less than that: no difference
MISMATCH = (0.5, 1.5)  # a factor on the plan's figures outside of it is no calibration any more
ADMISSIONS = {"vllm": "sequential", "sglang": "early"}


@dataclass(frozen=True, slots=True)
class Calibration:
    """The models, the layout they were fitted under, and how well they explain the run."""

    prefill: PrefillModel
    decode: DecodeModel
    layout: Layout
    error: float = float("nan")  # mean |log(played / seen)| over the quantiles of TTFT
    untold: tuple[str, ...] = ()  # what was found from the run, or assumed
    kv_bound: bool = False
    notes: list[str] = field(default_factory=list)


def calibrate(plan: Plan | None, m: Measurement, records: Records) -> Calibration:
    """For a run whose deployment is known."""
    assert m.deployment is not None
    sent = records.where(in_window(records, 0.0) & np.isfinite(records.sent_s))
    end_s = last_seen_s(records, m.stopped_at_s)
    ok = sent.where(sent.ok)
    layout = layout_of(plan, m)
    decode = fit_decode(plan, sent, layout.decode, end_s)
    untold = _untold(plan, m)
    chunk = float(plan.chunk_tokens) if plan and plan.chunk_tokens else DEFAULT_CHUNK_TOKENS
    if len(ok) < FEWEST:
        return Calibration(_from_plan(plan, chunk), decode, layout, untold=untold)
    start = able(quickest(ok, chunk), ok, layout.prefill)
    held = _held(sent, end_s) / layout.decode
    if held < NEAR_CAP * layout.cap and held < 2 * max(decode.seen_batch, 1):
        prefill, chosen, error = _alone(start, decode, layout, sent, untold)
    else:
        prefill, chosen, error = _whole(start, decode, layout, sent, untold)
    kv_bound = chosen.cap < layout.cap
    notes = _mismatches(plan, prefill, decode, ok)
    return Calibration(prefill, decode, chosen, error, untold, kv_bound, notes)


# -- what was told -------------------------------------------------------------------------------------


def layout_of(plan: Plan | None, m: Measurement) -> Layout:
    """The deployment of a run, with what the plan and the servers say; the rest as usual."""
    size = m.deployment
    assert size is not None
    told, usual = (plan.routing if plan else None), Layout(1, 1, 1)
    return Layout(
        size.prefill_instances,
        size.decode_instances,
        size.max_running_requests or (m.signals.cap if m.signals else None) or UNKNOWN_CAP,
        (told and told.prefill) or usual.routing_prefill,
        (told and told.decode) or usual.routing_decode,
        ADMISSIONS.get(_engine(plan, m), usual.admission),
    )


def _engine(plan: Plan | None, m: Measurement) -> str:
    return (plan.engine if plan else None) or (m.signals.engine if m.signals else "")


def _untold(plan: Plan | None, m: Measurement) -> tuple[str, ...]:
    routing = () if plan and plan.routing.prefill else ("routing",)
    return routing if _engine(plan, m) in ADMISSIONS else (*routing, "admission")


def _from_plan(plan: Plan | None, chunk: float) -> PrefillModel:
    tps = plan.prefill.max_prefill_throughput_tokens_per_s if plan else None
    if not plan or not tps:
        return PrefillModel(0.0, source="nothing is known of P", chunk_tokens=chunk)
    setup_s, overhead_s = plan.iteration_overhead_ms / 1000, plan.overhead_ms / 1000
    return PrefillModel(1 / tps, overhead_s, setup_s, chunk_tokens=chunk, source="the plan")


# -- prefill ---------------------------------------------------------------------------------------------

Found = tuple[PrefillModel, Layout, float]


def _alone(
    start: PrefillModel,
    decode: DecodeModel,
    layout: Layout,
    sent: Records,
    untold: tuple[str, ...],
) -> Found:
    """No slot of D was short: P explains the run, under the routing that does it best."""
    begun = beginning(sent, PLAYED)
    routings = [layout.routing_prefill]
    if "routing" in untold and layout.prefill > 1:
        routings = ["round-robin", "least-load", "random"]
    join_s = (0.5 if layout.admission == "early" else 1.5) * decode.step_s(0.5 * decode.seen_batch)
    found: list[Found] = []
    for routing in routings:
        there = replace(layout, routing_prefill=routing)
        prefill, error = fit_alone(start, there, begun, join_s)
        found.append((prefill, there, error))
    return _clearest(found)


def _whole(
    start: PrefillModel,
    decode: DecodeModel,
    layout: Layout,
    sent: Records,
    untold: tuple[str, ...],
) -> Found:
    """Slots of D may have been short: both, under the admission, and the cap, that explain it best.

    A batch that never comes near the cap while requests wait is held by something else: KV memory.
    """
    begun = beginning(sent, PLAYED_WHOLE)
    found = _fitted(start, decode, layout, begun)
    if "admission" in untold:
        other = replace(layout, admission="sequential")
        found = _clearest([found, _fitted(start, decode, other, begun)])
    if "routing" in untold and layout.prefill > 1:
        other = replace(found[1], routing_prefill="random")
        found = _clearest([found, _fitted(start, decode, other, begun)])
    if decode.pinned and decode.seen_batch < PLATEAU * layout.cap:
        other = replace(found[1], cap=max(round(decode.seen_batch), 1))
        found = _clearest([found, _fitted(start, decode, other, begun)])
    return found


def _fitted(start: PrefillModel, decode: DecodeModel, layout: Layout, begun: Beginning) -> Found:
    prefill, error = fit_whole(start, decode, layout, begun)
    return prefill, layout, error


def _clearest(found: list[Found]) -> Found:
    """The first, which is the usual, unless another explains the run clearly better."""
    best = min(found, key=lambda f: f[2])
    return best if best[2] < CLEARLY * found[0][2] - ALIKE else found[0]


def _held(sent: Records, end_s: float) -> float:
    """Requests in flight at busy times: no more than these can hold a slot."""
    times = np.linspace(float(sent.sent_s.min()), min(end_s, float(sent.sent_s.max())), 400)
    return nearest_rank(in_flight(sent, times), 0.995)


def _mismatches(
    plan: Plan | None, prefill: PrefillModel, decode: DecodeModel, ok: Records
) -> list[str]:
    """Where the run is far from what the plan says of the engine."""
    out = []
    tps = plan.prefill.max_prefill_throughput_tokens_per_s if plan else None
    if tps:
        factor = prefill.work_s(ok.effective_tokens) * tps / float(ok.effective_tokens.mean())
        if not MISMATCH[0] <= factor <= MISMATCH[1]:
            out.append(
                f"Model mismatch: a prefill takes {factor:.2f} times what "
                f"prefill.max_prefill_throughput_tokens_per_s = {tps:g} says."
            )
    batch = plan.decode.max_batch_size_at_slo if plan else None
    at_slo_tps = plan.decode.throughput_at_slo_tokens_per_s if plan else None
    if batch and at_slo_tps and decode.alpha_s > 0:
        factor = decode.step_s(batch) * at_slo_tps / batch
        if not MISMATCH[0] <= factor <= MISMATCH[1]:
            out.append(
                f"Model mismatch: a decode step at batch {batch} takes {factor:.2f} times what "
                f"decode.throughput_at_slo_tokens_per_s = {at_slo_tps:g} says."
            )
    return out
