"""Prefill: a queue. The TTFT limit caps what one instance may be given (arXiv 2603.04716)."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from planner.config import Plan
from planner.errors import PlanError
from planner.models import PrefillModel, Traffic
from planner.play_prefill import prefill_s
from planner.queueing_play import assign, simulate_sojourns
from planner.records import Floats

LEVERS = (
    "levers: higher TP or faster prefill, shorter prompts, a better prefix hit rate, "
    "a looser TTFT SLO"
)
LN_100 = math.log(100)
MOST = 512  # instances
PLAYS = 800_000  # requests times instances of a play in chunks
SETTLE = 0.05  # of a play, until its queues are filled


def effective_input_tokens(input_tokens: float, hit_rate: float) -> int:
    """Prompt tokens that are not served from the prefix cache; half up, as the template does."""
    return max(int(input_tokens * (1 - hit_rate) + 0.5), 1)


def throughput_under_ttft_tps(
    max_tps: float, input_tokens: float, ttft_s: float, overhead_s: float, times: float = 1.0
) -> float:
    """Eq. 13 of the paper: the throughput at which the *mean* M/M/1 sojourn is the TTFT limit.

    A mean model: at the utilisation it allows, the simulated P99 is 2 to 5 times the limit. With
    ``times`` = ln 100 it is the P99 that is at the limit.
    """
    left_s = ttft_s - overhead_s
    tps = max_tps - times * input_tokens / left_s if left_s > 0 else 0.0
    if tps > 0:
        return tps
    alone_ms = 1000 * input_tokens / max_tps
    told = (
        f"less than one prefill of {input_tokens:g} tokens at {max_tps:g} tokens/s"
        if times == 1
        else f"less than the P99 of an exponential service time ({times * alone_ms:.0f} ms), which M/M/1 assumes,"
    )
    raise PlanError(
        f"slo.ttft_p99_ms: {1000 * ttft_s:g} ms is {told} plus {1000 * overhead_s:g} ms overhead; not reachable by "
        f"adding P: one request needs {alone_ms:.0f} ms alone, so no number of instances helps."
    )


def prefill_model(plan: Plan) -> PrefillModel:
    """From the plan's figures; without ``chunk_tokens`` prompts are computed one at a time.

    With it the maximal throughput is that of full chunks, whose overhead it includes.
    """
    max_tps = plan.prefill.max_prefill_throughput_tokens_per_s
    if max_tps is None:
        raise PlanError("prefill.max_prefill_throughput_tokens_per_s: missing, needed to size.")
    slope_s, setup_s = 1 / max_tps, plan.iteration_overhead_ms / 1000
    chunk = math.inf if plan.chunk_tokens is None else float(plan.chunk_tokens)
    if chunk < math.inf:
        slope_s -= setup_s / chunk
    if slope_s <= 0:
        raise PlanError(
            f"iteration_overhead_ms: found {plan.iteration_overhead_ms:g}, but a chunk of {chunk:g} tokens at "
            f"{max_tps:g} tokens/s takes {1000 * chunk / max_tps:.1f} ms in all (microseconds?)."
        )
    return PrefillModel(slope_s, plan.overhead_ms / 1000, setup_s, chunk_tokens=chunk)


def floor_s(model: PrefillModel, traffic: Traffic) -> float:
    """P99 TTFT with nobody before one: what no number of P goes below."""
    return float(np.quantile(model.service_s(traffic.input_tokens), 0.99)) + model.overhead_s


def times_s(model: PrefillModel, traffic: Traffic, instances: int, routing: str) -> Floats:
    """From arrival to KV on D, played: in chunks, or one at a time where the model has none.

    In chunks and with many P only of the first requests.
    """
    if model.chunk_tokens < math.inf:
        # Many P hardly remember what was, so that fewer requests tell as much.
        few = traffic.first(max(PLAYS // instances, 10_000))
        return prefill_s(model, few, instances, routing)
    services = model.service_s(traffic.input_tokens)
    number = assign(traffic.at_s, services, instances, routing)
    return simulate_sojourns(traffic.at_s, services, number, instances) + model.overhead_s


def p99_of(model: PrefillModel, traffic: Traffic, routing: str) -> Callable[[int], float]:
    """P99 TTFT by number of P, for the same requests each time; inf beyond capacity."""
    work_s = model.work_s(traffic.input_tokens)
    if model.chunk_tokens == math.inf:
        work_s += model.setup_s

    @cache
    def p99_s(instances: int) -> float:
        if work_s * traffic.rate_rps >= instances:
            return math.inf
        played = times_s(model, traffic, instances, routing)
        return float(np.quantile(played[int(SETTLE * len(played)) :], 0.99))

    return p99_s


def fewest(p99_s: Callable[[int], float], limit_s: float) -> int | None:
    """The smallest number whose P99 is within the limit; None: none up to 512."""
    holds = next((k for k in range(1, MOST + 1) if p99_s(k) < math.inf), MOST)
    fails, step = holds - 1, 1
    while p99_s(holds) > limit_s:
        if holds >= MOST:
            return None
        fails, holds, step = holds, min(holds + step, MOST), 2 * step
    while holds - fails > 1:
        middle = (fails + holds) // 2
        if p99_s(middle) <= limit_s:
            holds = middle
        else:
            fails = middle
    return holds
