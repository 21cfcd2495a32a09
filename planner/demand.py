"""What a plan must carry: a long stretch of requests, from the averages of a plan or from given columns."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from planner.config import Plan
from planner.errors import PlanError
from planner.models import Traffic
from planner.prefill import effective_input_tokens
from planner.records import Floats

REQUESTS = 50_000  # the P99 of a queue at 70 % is then known to 2 to 3 %
LAW = 2000  # quantiles that stand for a law of lengths


@dataclass(frozen=True, slots=True)
class Demand:
    """``traffic`` comes at ``rate_rps``; the averages are those of the traffic."""

    traffic: Traffic
    rate_rps: float
    input_tokens: float  # effective
    output_tokens: float
    words: str

    def more(self, share: float) -> "Demand":
        """The same requests at a rate that is ``share`` higher."""
        return Demand(
            self.traffic.faster(1 + share),
            self.rate_rps * (1 + share),
            self.input_tokens,
            self.output_tokens,
            self.words,
        )


def of_columns(
    due_s: Any, effective_tokens: Any, output_tokens: Any, rate_rps: float, words: str
) -> Demand:
    """Requests as they come, in order of time, at ``rate_rps`` on average, whatever theirs is."""
    moments, inputs, outputs = (
        np.asarray(c, float) for c in (due_s, effective_tokens, output_tokens)
    )
    traffic = Traffic(moments, inputs, outputs)
    if len(traffic) < 2:
        raise PlanError(f"{words}: found {len(traffic)} requests, at least 2 are needed to size.")
    return Demand(
        traffic.faster(rate_rps / traffic.rate_rps),
        rate_rps,
        float(traffic.input_tokens.mean()),
        float(traffic.output_tokens.mean()),
        words,
    )


def of_plan(plan: Plan, n: int = REQUESTS, seed: int = 0) -> Demand:
    """From averages: gaps and prompt lengths of the cv the plan gives, else Poisson and fixed lengths.

    The hit rate is the same share of each prompt. Raises PlanError for what is missing.
    """
    w = plan.workload
    if w is None:
        raise PlanError("workload: missing, needed with avg_input_tokens and avg_output_tokens.")
    if plan.slo.target_qps is None:
        raise PlanError("slo.target_qps: missing, needed to size.")
    tokens = effective_input_tokens(w.avg_input_tokens, w.prefix_cache_hit_rate)
    rng = np.random.default_rng(seed)
    shape = w.arrival_cv**-2
    at_s = np.cumsum(rng.gamma(shape, 1 / (shape * plan.slo.target_qps), n))
    inputs = tokens * rng.permutation(np.resize(_lognormal(w.input_cv), n))
    traffic = Traffic(at_s, inputs, np.full(n, w.avg_output_tokens))
    gaps = "Poisson arrivals" if w.arrival_cv == 1 else f"arrivals of cv {w.arrival_cv:g}"
    lengths = f"lengths of cv {w.input_cv:g}" if w.input_cv else "prompts all of one length"
    words = f"{gaps}, {lengths} (from the plan's averages; --workload has better)"
    traffic = traffic.faster(plan.slo.target_qps / traffic.rate_rps)
    return Demand(traffic, plan.slo.target_qps, tokens, w.avg_output_tokens, words)


def _lognormal(cv: float) -> Floats:
    """Quantiles of a law with mean 1, so that there is no noise in it."""
    if not cv:
        return np.ones(1)
    sigma2 = np.log1p(cv * cv)
    z = np.array([NormalDist().inv_cdf((k + 0.5) / LAW) for k in range(LAW)])
    law = np.exp(np.sqrt(sigma2) * z)
    return np.asarray(law / law.mean())
