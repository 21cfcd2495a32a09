"""Prefill: a queue. The TTFT limit caps what one instance may be given (arXiv 2603.04716)."""

from planner.errors import PlanError


def effective_input_tokens(input_tokens: float, hit_rate: float) -> int:
    """Prompt tokens that are not served from the prefix cache; half up, as the template does."""
    return max(int(input_tokens * (1 - hit_rate) + 0.5), 1)


def throughput_under_ttft_tps(
    max_tps: float, input_tokens: float, ttft_s: float, overhead_s: float
) -> float:
    """Eq. 13 of the paper: the throughput at which the *mean* M/M/1 sojourn is the TTFT limit.

    A mean model: at the utilisation it allows, the simulated P99 is 2 to 5 times the limit.
    """
    left_s = ttft_s - overhead_s
    tps = max_tps - input_tokens / left_s if left_s > 0 else 0.0
    if tps <= 0:
        raise PlanError(
            f"slo.ttft_p99_ms: {1000 * ttft_s:g} ms is less than one prefill of {input_tokens:g} tokens at "
            f"{max_tps:g} tokens/s plus {1000 * overhead_s:g} ms overhead; no number of instances helps."
        )
    return tps
