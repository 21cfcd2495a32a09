"""What to do about an SLO that is missed: the decision table; rules 1, 7 and 8 in beyond_counts.py.

TTFT over its limit is not by itself a lack of P, since a full D keeps requests waiting as well. So the
question is put to the calibrated model twice: would enough P be enough with the D there are, and would
enough D be enough with the P there are?
"""

from dataclasses import dataclass, replace

from planner.attribution import Picture, decode_full
from planner.beyond_counts import beyond_counts, slow_steps
from planner.change import LEVERS_TTFT, Change, hidden
from planner.measurement import Measurement
from planner.models import Layout
from planner.predict import (
    MAX_INSTANCES,
    beside,
    better_decode,
    enough,
    smallest_decode,
    smallest_prefill,
)

SURELY = 1.05  # times a limit: from there on the model may add to a side that was not strained
ROUTING_SURELY = 0.95  # times the usual limit: a routing that is changed in vain costs a round
WASTE = 1.5  # times the P that least-load needs: routing comes before such a purchase
BOTH_SHORT = "5 and 6 both sides short"


def change(m: Measurement, see: Picture, ttft: bool, tpot: bool) -> Change:
    """For a run that misses ``ttft``, ``tpot`` or both."""
    found = beyond_counts(m, see, ttft, tpot)
    if found is None and tpot and not ttft:
        found = slow_steps(m, see)
    return found or _short(m, see, ttft, tpot)


# -- 5, 6, 9: which side is short ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sides:
    """What each side would need if the other were no bottleneck; None: no number is enough."""

    prefill: int | None
    decode: Layout | None
    prefill_short: bool
    decode_short: bool


def _sides(m: Measurement, see: Picture, tpot: bool) -> _Sides:
    f, now, limits = see.forecast, see.now, see.limits
    p = smallest_prefill(f, now.routing_prefill, limits.ttft_s)
    if p is None:  # within the SLO, though not with the usual margin
        p = smallest_prefill(f, now.routing_prefill, limits.ttft_slo_s)
    # What P does by itself is hardly seen where nearly all wait for D.
    limit_s = limits.ttft_slo_s if hidden(m, see) else limits.ttft_s
    prefill_short = p is None or f.prefill_p99_s(now.prefill, now.routing_prefill) > limit_s
    with_p = replace(now, prefill=max(p or 0, now.prefill))
    there = f.p99s(with_p)
    # Enough P may bring D to its limit; a D that the run did not strain needs a clear case.
    strained = tpot or _strained(m, see)
    ttft_limit = limits.ttft_s if strained else SURELY * limits.ttft_slo_s
    tpot_limit = limits.tpot_slo_s if strained else SURELY * limits.tpot_slo_s
    decode_short = tpot or there.ttft_s > ttft_limit or there.tpot_s > tpot_limit
    for_decode = beside(f, with_p, limits)
    return _Sides(p, better_decode(f, with_p, for_decode), prefill_short, decode_short)


def _strained(m: Measurement, see: Picture) -> bool:
    """Whether D was near its cap: by its own word, else by the batch."""
    told = decode_full(m.signals, see.size.max_running_requests)
    if told is not None:
        return told
    return see.kv_bound or see.forecast.decode.seen_batch >= 0.75 * see.now.cap


def _short(m: Measurement, see: Picture, ttft: bool, tpot: bool) -> Change:
    sides = _sides(m, see, tpot)
    saturated = "3 saturated, " if m.saturation.saturated else ""
    if not sides.prefill_short and not sides.decode_short:
        return _unexplained(m, see, saturated)
    if sides.prefill_short and sides.decode_short:
        return _both(m, see, sides, saturated + ("9 both missed" if ttft and tpot else BOTH_SHORT))
    if sides.decode_short:
        return _decode_only(see, sides, saturated, tpot)
    return _prefill_only(m, see, sides, saturated)


def _prefill_only(m: Measurement, see: Picture, sides: _Sides, saturated: str) -> Change:
    f, now = see.forecast, see.now
    if (found := _routing(m, see, sides)) is not None:
        return found
    p = sides.prefill
    if p is None:
        why = f"No number of P is predicted to bring TTFT P99 under its SLO. {LEVERS_TTFT}"
        return Change("infeasible", "1 floor", now, why)
    there = replace(now, prefill=max(p, now.prefill + 1))
    why = (
        f"P is the bottleneck: at {now.prefill} P its part of the TTFT alone is predicted at "
        f"{_ms(f.prefill_p99_s(now.prefill, now.routing_prefill))}, D has room. {there.prefill} P is the fewest "
        "within 0.9 of the SLO."
    )
    return Change("add-prefill", f"{saturated}6 P bound", there, why)


def _routing(m: Measurement, see: Picture, sides: _Sides) -> Change | None:
    """Rule 6, first half: least-load with the P there are, or with far fewer than random needs."""
    f, now, limits = see.forecast, see.now, see.limits
    if now.routing_prefill == "least-load" or not see.routing_told:
        return None
    better = replace(now, routing_prefill="least-load")
    seconds = f.p99s(better).ttft_s
    if now.prefill > 1 and seconds <= ROUTING_SURELY * limits.ttft_s:
        why = (
            f"P has {now.routing_prefill} routing. With least-load the same {now.prefill} P are predicted at "
            f"{1000 * seconds:.0f} ms: change the routing first."
        )
        return Change("change-routing", "6 routing", better, why)
    fewer = smallest_prefill(f, "least-load", limits.ttft_s, now.prefill)
    if fewer is None or (sides.prefill or 2 * MAX_INSTANCES) < WASTE * fewer:
        return None
    why = (
        f"{sides.prefill or 'No number of'} P would do with {now.routing_prefill} routing, {fewer} with least-load: "
        "change the routing, and add P."
    )
    return Change("change-routing", "6 routing", replace(better, prefill=fewer), why)


def _decode_only(see: Picture, sides: _Sides, saturated: str, tpot: bool) -> Change:
    """Rule 5: a larger cap where TPOT leaves room for one, else more D. Rule 9: P alone would do."""
    f, now = see.forecast, see.now
    there = sides.decode or replace(now, decode=now.decode + 1)
    there = replace(there, prefill=now.prefill, routing_prefill=now.routing_prefill)
    if there.decode <= now.decode and there.cap > now.cap and not see.kv_bound:
        why = (
            f"D is full at its cap of {now.cap} while TPOT leaves room: a step at {there.cap} takes "
            f"{1000 * f.decode.step_s(there.cap):.1f} ms. Requests wait for a slot, which shows up as TTFT."
        )
        larger = replace(there, decode=now.decode)
        return Change(
            "raise-max-running-requests", f"{saturated}5 D full, room in TPOT", larger, why
        )
    there = replace(there, decode=max(there.decode, now.decode + 1))
    if see.kv_bound:
        there = replace(there, cap=see.size.max_running_requests or now.cap)
    why = (
        f"D is full: at {now.decode} D requests wait for a slot there, which shows up as TTFT, while P alone would "
        f"meet it ({_ms(f.prefill_p99_s(now.prefill, now.routing_prefill))}). {there.decode} D have room."
    )
    if see.kv_bound:
        why += " KV memory holds its batch below the cap, so a larger cap would not help."
    rule = "9 both missed, D at fault" if tpot else "5 D full"
    return Change("add-decode", f"{saturated}{rule}", there, why)


def _both(m: Measurement, see: Picture, sides: _Sides, rule: str) -> Change:
    now = see.now
    routed = _routing(m, see, sides)
    base = replace(now, routing_prefill="least-load") if routed else now
    there = enough(
        see.forecast, base, see.limits, (now.prefill if routed else now.prefill + 1, now.decode)
    )
    if there is None:
        why = f"No number of P is predicted to bring TTFT P99 under 0.9 of its SLO. {LEVERS_TTFT}"
        return Change("infeasible", "1 floor", now, why)
    if there.decode == now.decode:
        why = "P is short, and D is full at its cap while TPOT leaves room for a larger one."
        verdict = "add-prefill" if there.prefill > now.prefill else "change-routing"
        return Change(verdict, rule, there, why)
    why = "Neither side would do with more of the other: add both first, tune the cap after."
    verdict = "add-both" if there.prefill > now.prefill else "add-decode"
    return Change(verdict, rule, there, why + (f" {routed.why}" if routed else ""))


def _unexplained(m: Measurement, see: Picture, saturated: str) -> Change:
    """The model holds the deployment to be enough, the run does not: size by how far it is off."""
    f, now, limits = see.forecast, see.now, see.limits
    off = max((m.ttft_ms.p99 or 0.0) / 1000 / max(f.p99s(now).ttft_s, 1e-9), 1.0)
    tighter = replace(limits, ttft_share=limits.ttft_share / min(off, 2.0))
    if _strained(m, see):
        there = smallest_decode(f, now, tighter, now.decode + 1)
        there = there or replace(now, decode=now.decode + 1)
        why = f"TTFT is {off:.2f} times what the model expects, and D is near its cap: add D and measure again."
        return Change("add-decode", f"{saturated}5 D near its cap", there, why)
    p = smallest_prefill(f, now.routing_prefill, tighter.ttft_s, now.prefill + 1) or now.prefill + 1
    why = f"TTFT is {off:.2f} times what the model expects, and D has room: {p} P allow for that factor."
    return Change("add-prefill", f"{saturated}6 P bound", replace(now, prefill=p), why)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1e6 else "no end of it (over capacity)"
