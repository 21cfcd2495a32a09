"""Rules 1, 7 and 8 of the decision table: what more of the same P and D would not mend, or not best.

The floor under TTFT and TPOT, the KV transfer, and a batch that is too large.
"""

import math
from dataclasses import replace

from planner.attribution import Picture
from planner.change import LEVERS_TPOT, LEVERS_TTFT, Change, hidden
from planner.measurement import Measurement
from planner.models import Layout
from planner.predict import Limits, better_decode, largest_cap

TRANSFER_SHARE = 0.3  # of the TTFT SLO
FLOOR_HIDDEN = 1.2  # times the SLO, where P was hardly seen by itself
EXPLAINED = 0.1  # mean error of the quantiles of TTFT in a play of the run
NO_STEP = 2.0  # times the TPOT SLO: a first gap that long is more than a step of D


def beyond_counts(m: Measurement, see: Picture, ttft: bool, tpot: bool) -> Change | None:
    """Rules 1 and 7: whether no count of P or D helps, or only D can be judged."""
    f, limits = see.forecast, see.limits
    if ttft and (found := _transfer(m, see)):
        return found
    floor_s = f.floor_s()
    if ttft and floor_s > limits.ttft_slo_s:
        if hidden(m, see) and _vague(see, floor_s):
            return _first_d(see)
        why = (
            f"Even an empty P needs {1000 * floor_s:.0f} ms at P99 ({f.prefill.source}), the SLO is "
            f"{1000 * limits.ttft_slo_s:.0f} ms: no count helps. {LEVERS_TTFT}"
        )
        return Change("infeasible", "1 floor", see.now, why)
    alone_s = f.decode.step_s(1)
    if tpot and alone_s > limits.tpot_slo_s:
        why = (
            f"A decode step of batch 1 takes {1000 * alone_s:.1f} ms, the SLO is "
            f"{1000 * limits.tpot_slo_s:g} ms: no count helps. {LEVERS_TPOT}"
        )
        return Change("infeasible", "1 floor", see.now, why)
    return None


def _first_d(see: Picture) -> Change:
    """As many D as the demand asks for; the next run will show what P is like."""
    f, now = see.forecast, see.now
    one = f.decode_utilisation(replace(now, decode=1))
    there = replace(now, decode=max(math.ceil(one / see.limits.decode_share), now.decode + 1))
    why = (
        f"D is offered {100 * f.decode_utilisation(now):.0f} % of what it can do, and its wait hides what P does: "
        f"{there.decode} D first; the next run judges P."
    )
    return Change("add-decode", "3 saturated, 5 D bound", there, why)


def _transfer(m: Measurement, see: Picture) -> Change | None:
    """Rule 7: what is neither queue nor compute takes most of what is too long."""
    f, slo_ms = see.forecast, m.slo.ttft_p99_ms
    told = m.signals
    by_servers = [
        v
        for role in ("prefill", "decode")
        if told and (v := told.worst(role, "kv_transfer_ms_p99")) is not None
    ]
    transfer_ms = max(by_servers, default=1000 * f.prefill.overhead_s)
    word = "measured" if by_servers else "modelled"
    compute_s = f.floor_s() - f.prefill.overhead_s
    wait_ms = m.ttft_ms.p99 - 1000 * f.floor_s() if m.ttft_ms.p99 else 0.0
    if transfer_ms <= TRANSFER_SHARE * slo_ms or wait_ms > transfer_ms:
        return None
    if 1000 * compute_s > slo_ms:
        return None  # infeasible without any transfer as well
    why = (
        f"{transfer_ms:.0f} ms of the TTFT ({word}) are neither queue nor prefill: network, KV transfer, bootstrap. "
        "That is more than 30 % of the SLO. More instances do not help: mend the transfer (backend, "
        "NICs, placement of P and D)."
    )
    return Change("fix-transfer", "7 transfer", see.now, why)


def _vague(see: Picture, floor_s: float) -> bool:
    """Whether a floor from such a run proves nothing: not far over the SLO, or the run is badly explained."""
    near = floor_s <= FLOOR_HIDDEN * see.limits.ttft_slo_s
    return near or not see.calibration.error <= EXPLAINED


def slow_steps(m: Measurement, see: Picture) -> Change | None:
    """Rule 8, TPOT alone: the first gap, the batch, or too little D."""
    limits, now = see.limits, see.now
    steady, gap = m.steady_tpot_ms.p99, m.first_gap_ms.p99
    limit_ms = m.slo.tpot_p99_ms
    if steady is not None and gap is not None and steady <= limit_ms and gap > NO_STEP * limit_ms:
        why = (
            f"Without the gap between first and second token (P99 {gap:.0f} ms) TPOT is fine ({steady:.1f} ms): "
            "the gap is KV transfer or a wait for it, and the outputs are too short to hide it. Neither D nor the "
            "cap is at fault: mend the transfer."
        )
        return Change("fix-transfer", "8 first gap", now, why)
    cap = largest_cap(see.forecast, replace(limits, tpot_share=1.0))
    if cap < 1:
        return None
    lower = replace(now, cap=min(cap, now.cap))
    seen = see.forecast.p99s(lower)
    load = see.forecast.decode_utilisation(lower)
    step_ms = 1000 * see.forecast.decode.step_s(lower.cap)
    fits = seen.ttft_s <= limits.ttft_s or _waits_little(m, seen.slot_wait_s, limits)
    if lower.cap < now.cap and load <= limits.decode_share and fits:
        why = (
            f"At a cap of {cap} a step takes {step_ms:.1f} ms, and D is used to {100 * load:.0f} %, which leaves "
            "slack (80 %): bursts no longer fill a batch that is too large."
        )
        return Change("lower-max-running-requests", "8 batch too large", lower, why)
    there = _more_decode(see, now, lower.cap)
    why = (
        f"A cap of {lower.cap} keeps TPOT ({step_ms:.1f} ms a step), but at {now.decode} D demand is "
        f"{100 * load:.0f} % of capacity there (limit 80 %): requests would wait for slots instead. "
        f"{there.decode} D have room."
    )
    return Change("add-decode", "8 no slack for a lower cap", there, why)


def _waits_little(m: Measurement, wait_s: float, limits: Limits) -> bool:
    """Whether the wait for a slot fits into what the TTFT leaves."""
    return wait_s <= limits.ttft_slo_s - (m.ttft_ms.p99 or 0.0) / 1000


def _more_decode(see: Picture, now: Layout, cap: int) -> Layout:
    there = better_decode(
        see.forecast, replace(now, cap=min(cap, now.cap)), see.limits, now.decode + 1
    )
    return there or replace(now, decode=now.decode + 1, cap=min(cap, now.cap))
