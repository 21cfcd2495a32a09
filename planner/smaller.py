"""A smaller deployment: whether one would do, and the way back when it does not.

What is proposed here is confirmed by a run, so it comes close to the limits; a plan's history keeps
what held before.
"""

from dataclasses import replace

from planner.attribution import Picture
from planner.change import Change
from planner.config import Plan
from planner.history import held
from planner.measurement import Measurement, Size
from planner.models import Layout
from planner.predict import NEAR_SLO, beside, better_decode, smallest_prefill
from planner.verdict import shown

SPARE_TTFT, SPARE_TPOT = 0.92, 0.985  # of the SLOs
SPARE_LOAD = 0.95  # of what D can do
KIND = (0.7, 1.3)  # how far a model is corrected by what the run has seen at its own deployment
SAME_TPOT = 1.005  # times what the model has here, where the run holds
WORSE = 1.03  # times the TTFT that P makes now: as many as make it no worse than this, where that is near the SLO
GROWS = ("add-prefill", "add-decode", "add-both")


def spare(m: Measurement, see: Picture) -> Layout | None:
    """A smaller deployment that would still meet both SLOs with slack, each side by itself.

    Where the run was slower, or quicker, than the model has it, the model is corrected by as much.
    """
    f, now = see.forecast, see.now
    if not see.cap_known or f.decode.alpha_s <= 0:
        return None
    here = f.p99s(now)
    kind = min(max((m.ttft_ms.p99 or 0.0) / 1000 / max(here.ttft_s, 1e-9), KIND[0]), KIND[1])
    tpot_share = max(SPARE_TPOT, min(SAME_TPOT * here.tpot_s / see.limits.tpot_slo_s, 1.0))
    careful = replace(
        see.limits,
        ttft_share=SPARE_TTFT / kind,
        tpot_share=tpot_share,
        decode_share=SPARE_LOAD,
    )
    same_s = WORSE * f.prefill_p99_s(now.prefill, now.routing_prefill)
    limit_s = max(careful.ttft_s, min(same_s, NEAR_SLO * careful.ttft_slo_s / kind))
    p = smallest_prefill(f, now.routing_prefill, limit_s)
    fewer = replace(now, prefill=min(p or now.prefill, now.prefill))
    for_decode = beside(f, fewer, careful, 1 / kind)
    there = better_decode(f, fewer, for_decode)
    if there is None or there.decode >= now.decode:
        there = fewer
    if (there.prefill, there.decode) == (now.prefill, now.decode):
        return None
    return there if f.p99s(there).within(for_decode) else None


def back_to(plan: Plan | None, m: Measurement, todo: Change, gpus: tuple[int, int]) -> Change:
    """A smaller deployment that was tried and misses an SLO: what held before, unless less is thought to do."""
    size = held(plan, m.deployment)
    if size is None or todo.verdict not in GROWS:
        return todo
    there = todo.layout
    cost = [p * gpus[0] + d * gpus[1] for p, d in ((there.prefill, there.decode), _counts(size))]
    if cost[0] < cost[1]:
        return todo
    more = (
        size.prefill_instances > _counts(m.deployment)[0],
        size.decode_instances > _counts(m.deployment)[1],
    )
    verdict = GROWS[1 if more == (False, True) else 2 if all(more) else 0]
    cap = size.max_running_requests or there.cap
    layout = replace(there, prefill=size.prefill_instances, decode=size.decode_instances, cap=cap)
    why = f"{todo.why} {shown(size)} held in a round before: go back there."
    return Change(verdict, todo.rule, layout, why)


def _counts(size: Size | None) -> tuple[int, int]:
    return (size.prefill_instances, size.decode_instances) if size else (0, 0)
