"""Before a run: how many P and how many D a plan asks for. instances = ceil(demand / capacity)."""

import math
from dataclasses import dataclass

from planner.config import Plan, RatioSection
from planner.decode import throughput_at_tpot_tps
from planner.errors import PlanError
from planner.prefill import effective_input_tokens, throughput_under_ttft_tps

METHODS = ("throughput", "paper")
THROUGHPUT_HEADROOM = 0.2


@dataclass(frozen=True, slots=True)
class Sizing:
    """The answer of one method; fractions are before rounding up."""

    method: str
    prefill: int
    decode: int
    prefill_exact: float
    decode_exact: float
    prefill_tps: float
    decode_tps: float
    headroom: float
    reasons: tuple[str, ...]

    @property
    def ratio(self) -> str:
        """``3:4``."""
        return f"{self.prefill}:{self.decode}"


def size(plan: Plan, method: str, headroom: float | None = None) -> Sizing:
    """Instances by ``throughput`` (demand / capacity) or ``paper`` (M/M/1 mean, eq. 13).

    Headroom is applied once, on demand: as given, else as the plan says, else none. Raises PlanError.
    """
    if method not in METHODS:
        raise PlanError(f"--method: found {method!r}, allowed are {', '.join(METHODS)}.")
    if plan.workload is None:
        raise PlanError("workload: missing, needed with avg_input_tokens and avg_output_tokens.")
    if plan.slo.target_qps is None:
        raise PlanError("slo.target_qps: missing, needed to size.")
    share = headroom if headroom is not None else plan.headroom or 0.0
    rate = plan.slo.target_qps * (1 + share)
    effective = _effective(plan)
    max_tps = plan.prefill.max_prefill_throughput_tokens_per_s
    if max_tps is None:
        raise PlanError("prefill.max_prefill_throughput_tokens_per_s: missing, needed to size.")
    prefill_tps = max_tps
    if method == "paper":
        ttft_s, overhead_s = plan.slo.ttft_p99_ms / 1000, plan.overhead_ms / 1000
        prefill_tps = throughput_under_ttft_tps(max_tps, effective, ttft_s, overhead_s)
    decode_tps = _decode_tps(plan)
    p = rate * effective / prefill_tps
    d = rate * plan.workload.avg_output_tokens / decode_tps
    reasons = (
        f"P: {rate:g} req/s x {effective} effective input tokens / {prefill_tps:.0f} tokens/s = {p:.2f}",
        f"D: {rate:g} req/s x {plan.workload.avg_output_tokens:g} output tokens / {decode_tps:.0f} tokens/s = {d:.2f}",
    )
    return Sizing(method, _up(p), _up(d), p, d, prefill_tps, decode_tps, share, reasons)


def _up(exact: float) -> int:
    return max(math.ceil(exact - 1e-9), 1)


def _effective(plan: Plan) -> int:
    """From the workload section, which wins over a figure that was filled in before."""
    assert plan.workload is not None
    return effective_input_tokens(
        plan.workload.avg_input_tokens, plan.workload.prefix_cache_hit_rate
    )


def _decode_tps(plan: Plan) -> float:
    if plan.decode.curve is not None:
        return throughput_at_tpot_tps(plan.decode.curve, plan.slo.tpot_p99_ms)[1]
    if plan.decode.throughput_at_slo_tokens_per_s is not None:
        return plan.decode.throughput_at_slo_tokens_per_s
    raise PlanError(
        "decode.throughput_at_slo_tokens_per_s: missing, needed to size (or decode.curve)."
    )


def filled(plan: Plan, sizing: Sizing) -> Plan:
    """The plan with effective_input_tokens, required_instances and ratio filled in."""
    prefill = plan.prefill.model_copy(
        update={"effective_input_tokens": _effective(plan), "required_instances": sizing.prefill}
    )
    decode = plan.decode.model_copy(update={"required_instances": sizing.decode})
    ratio = RatioSection(prefill_to_decode=sizing.ratio)
    return plan.model_copy(update={"prefill": prefill, "decode": decode, "ratio": ratio})
