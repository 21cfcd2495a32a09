"""Before a run: how many P and how many D a plan asks for, by four methods.

throughput  demand / capacity, to which the 20 % headroom belongs; no queue at all
paper       M/M/1 whose mean is the TTFT limit (arXiv 2603.04716, eq. 13), rounded up
mm1-p99     M/M/1 whose P99 is the TTFT limit
p99         the queue of P, played, with the routing and arrivals there are; slack on D
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from planner.calibrate import ADMISSIONS
from planner.config import Plan, RatioSection
from planner.decode import Tabulated, slots_at_slo, throughput_at_tpot_tps
from planner.demand import Demand, of_plan
from planner.errors import PlanError
from planner.models import Layout
from planner.play_decode import play_decode
from planner.prefill import (
    LEVERS,
    LN_100,
    effective_input_tokens,
    fewest,
    floor_s,
    p99_of,
    prefill_model,
    throughput_under_ttft_tps,
    times_s,
)

METHODS = ("throughput", "paper", "mm1-p99", "p99")
DEFAULT_METHOD = "p99"
THROUGHPUT_HEADROOM = 0.2
TTFT_SHARE = 0.9  # of the SLO, for the P99 of a plan
DECODE_SHARE = 0.8  # of the SLO batch
MORE_DECODE = 8  # D beyond those that the load asks for
PLAYED = 20_000  # requests
BEST, WORST, USUAL = "least-load", "random", "round-robin"


@dataclass(frozen=True, slots=True)
class Sizing:
    """The answer of one method; fractions are before rounding up, nan where there is none."""

    method: str
    prefill: int
    decode: int
    prefill_exact: float
    decode_exact: float
    prefill_tps: float  # what one instance is given at most
    decode_tps: float
    headroom: float
    reasons: tuple[str, ...]

    @property
    def ratio(self) -> str:
        """``3:4``."""
        return f"{self.prefill}:{self.decode}"

    def gpus(self, plan: Plan) -> int:
        """In all; an instance of P and one of D may differ."""
        return self.prefill * plan.prefill.gpus + self.decode * plan.decode.gpus


def size(
    plan: Plan, method: str, headroom: float | None = None, demand: Demand | None = None
) -> Sizing:
    """Instances by one of ``METHODS``, for ``demand`` or else the plan's averages.

    Headroom is applied once, on demand: as given, else as the plan says, else none. Raises PlanError.
    """
    if method not in METHODS:
        raise PlanError(f"--method: found {method!r}, allowed are {', '.join(METHODS)}.")
    share = headroom if headroom is not None else plan.headroom or 0.0
    offered = (demand if demand is not None else of_plan(plan)).more(share)
    return (
        _by_p99(plan, offered, share) if method == "p99" else _by_rate(plan, method, offered, share)
    )


def _by_rate(plan: Plan, method: str, d: Demand, share: float) -> Sizing:
    """ceil(demand / what an instance may be given)."""
    max_tps = plan.prefill.max_prefill_throughput_tokens_per_s
    if max_tps is None:
        raise PlanError("prefill.max_prefill_throughput_tokens_per_s: missing, needed to size.")
    prefill_tps = max_tps
    if method != "throughput":
        ttft_s, overhead_s = plan.slo.ttft_p99_ms / 1000, plan.overhead_ms / 1000
        times = LN_100 if method == "mm1-p99" else 1.0
        prefill_tps = throughput_under_ttft_tps(max_tps, d.input_tokens, ttft_s, overhead_s, times)
    decode_tps = slots_at_slo(plan).tps
    if plan.decode.curve is not None and method == "paper":
        decode_tps = throughput_at_tpot_tps(plan.decode.curve, plan.slo.tpot_p99_ms)[1]
    p = d.rate_rps * d.input_tokens / prefill_tps
    n = d.rate_rps * d.output_tokens / decode_tps
    taken = {"paper": " (the SLO is taken for a mean)", "mm1-p99": " (P99 of M/M/1)"}.get(
        method, ""
    )
    reasons = (
        f"P: {d.rate_rps:g} req/s x {d.input_tokens:g} effective input tokens / {prefill_tps:.0f} tokens/s"
        f"{taken} = {p:.2f}",
        f"D: {d.rate_rps:g} req/s x {d.output_tokens:g} output tokens / {decode_tps:.0f} tokens/s = {n:.2f}",
    )
    return Sizing(method, _up(p), _up(n), p, n, prefill_tps, decode_tps, share, reasons)


def _up(exact: float) -> int:
    return max(math.ceil(exact - 1e-9), 1)


# -- p99 -----------------------------------------------------------------------------------------------


def _by_p99(plan: Plan, d: Demand, share: float) -> Sizing:
    model, slo_s = prefill_model(plan), plan.slo.ttft_p99_ms / 1000
    if (lowest_s := floor_s(model, d.traffic)) > slo_s:
        raise PlanError(
            f"slo.ttft_p99_ms: infeasible, an empty P needs {1000 * lowest_s:.0f} ms at P99 (prefill and overhead), "
            f"the SLO is {1000 * slo_s:g} ms: no number of P helps; {LEVERS}."
        )
    routing = plan.routing.prefill or USUAL
    p99_s = p99_of(model, d.traffic, routing)
    p = fewest(p99_s, TTFT_SHARE * slo_s)
    if p is None:
        raise PlanError(
            f"slo.ttft_p99_ms: infeasible, no number of P keeps P99 TTFT within {1000 * TTFT_SHARE * slo_s:g} ms "
            f"({TTFT_SHARE:g} of the SLO) by {routing} routing; {LEVERS}, or {BEST} routing."
        )
    told = f"P: {p} by {routing} routing have P99 TTFT {1000 * p99_s(p):.0f} ms, limit {1000 * TTFT_SHARE * slo_s:g}"
    if p > 1:
        less_s = p99_s(p - 1)
        told += (
            f"; {p - 1} {f'have {1000 * less_s:.0f}' if less_s < math.inf else 'are over capacity'}"
        )
    given_tps = d.rate_rps * d.input_tokens / p
    slots = slots_at_slo(plan)
    exact = d.rate_rps * d.output_tokens / (DECODE_SHARE * slots.tps)
    at = f" at batch {slots.batch}" if slots.batch else ""
    why = (
        f"D: {d.rate_rps:g} req/s x {d.output_tokens:g} output tokens / ({DECODE_SHARE:g} x {slots.tps:.0f} "
        f"tokens/s{at}) = {exact:.2f}"
    )
    count, more = _up(exact), slots.notes
    if slots.model is not None and slots.batch is not None:
        admission = ADMISSIONS.get(plan.engine or "", "early")
        here = Layout(p, count, slots.batch, routing, plan.routing.decode or USUAL, admission)
        count, seen = _waits_fit(plan, d, slots.model, here, slo_s - p99_s(p))
        more = (*seen, *more)
    return Sizing("p99", p, count, math.nan, exact, given_tps, slots.tps, share, (told, why, *more))


def _waits_fit(
    plan: Plan, d: Demand, steps: Tabulated, here: Layout, slack_s: float
) -> tuple[int, tuple[str, ...]]:
    """Few slots make requests wait even at 80 %: as many D more as make the P99 wait fit into ``slack_s``."""
    traffic = d.traffic.first(PLAYED)
    before_s = times_s(prefill_model(plan), traffic, here.prefill, here.routing_prefill)
    traffic = traffic.first(len(before_s))
    count, seen = here.decode, []
    for extra in range(MORE_DECODE):
        layout = replace(here, decode=here.decode + extra)
        played = play_decode(steps, layout, traffic, before_s)
        wait_s = float(np.quantile(played.slot_wait_s, 0.99))
        if wait_s <= slack_s:
            count = layout.decode
            break
    else:
        layout = here
        played = play_decode(steps, layout, traffic, before_s)
        seen.append(
            f"no {MORE_DECODE} D more bring the P99 wait for one of {here.cap} slots into what TTFT leaves "
            f"({1000 * slack_s:.0f} ms): raise the cap, or the TPOT SLO"
        )
    if count > here.decode:
        seen.append(
            f"D: {count}, so that the P99 wait for a slot ({1000 * wait_s:.0f} ms) fits into what TTFT leaves "
            f"({1000 * slack_s:.0f} ms)"
        )
    alone = steps.loaded(d.rate_rps / count, d.output_tokens, here.cap)
    ttft_ms, tpot_ms = (
        1000 * float(np.nanquantile(x, 0.99)) for x in (played.ttft_s, played.tpot_s)
    )
    seen.append(
        f"there, played with D's slots: P99 TTFT {ttft_ms:.0f} ms, P99 TPOT {tpot_ms:.1f} ms (by formula mean "
        f"{1000 * alone.mean_step:.1f}, P99 step {1000 * alone.step_quantile:.1f} ms, {100 * alone.waits:.1f} % wait)"
    )
    return count, tuple(seen)


def by_routing(plan: Plan, demand: Demand) -> dict[str, int | None]:
    """Fewest P with the best and with the worst routing; None: no number is enough."""
    model, limit_s = prefill_model(plan), TTFT_SHARE * plan.slo.ttft_p99_ms / 1000
    offered = demand.more(plan.headroom or 0.0)
    return {r: fewest(p99_of(model, offered.traffic, r), limit_s) for r in (BEST, WORST)}


def filled(plan: Plan, sizing: Sizing) -> Plan:
    """The plan with effective_input_tokens, required_instances and ratio filled in."""
    update: dict[str, int] = {"required_instances": sizing.prefill}
    if plan.workload is not None:  # which wins over a figure that was filled in before
        w = plan.workload
        update["effective_input_tokens"] = effective_input_tokens(
            w.avg_input_tokens, w.prefix_cache_hit_rate
        )
    prefill = plan.prefill.model_copy(update=update)
    decode = plan.decode.model_copy(update={"required_instances": sizing.decode})
    ratio = RatioSection(prefill_to_decode=sizing.ratio)
    return plan.model_copy(update={"prefill": prefill, "decode": decode, "ratio": ratio})
