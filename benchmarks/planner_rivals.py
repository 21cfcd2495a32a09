"""How others would size the same cluster, written from their descriptions, and the planner itself.

Each is asked after a run and answers with the next deployment, the same one (stay), or None (nothing
helps). Those that size from an engine's figures get the true ones: better than any user has them.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.planner_scenarios import Scenario
from emulator.model import Deployment
from planner.config import Plan
from planner.decision import Decision, decide
from planner.history import entry
from planner.records import Records

Answer = tuple[Deployment | None, Decision | None]
Rival = Callable[[Scenario, Deployment, Records, list[Decision]], Answer]


def ours(s: Scenario, now: Deployment, records: Records, past: list[Decision]) -> Answer:
    """The planner of this project, from the records alone."""
    told = {
        "routing": {"prefill": now.routing_prefill, "decode": now.routing_decode},
        "chunk_tokens": s.engine.chunk_tokens,
        "engine": "sglang" if now.admission == "early" else "vllm",
    }
    plan = Plan.model_validate(
        {
            "slo": {"ttft_p99_ms": s.slo_ms[0], "tpot_p99_ms": s.slo_ms[1]},
            "history": [entry(decision) for decision in past],
            **(told if s.told else {}),
        }
    )
    decision = decide(plan, s.measured(records, now), records)
    if decision.verdict == "infeasible":
        return None, decision
    then = decision.proposal
    if then is None:
        return now, decision
    changed = replace(
        now,
        prefill_instances=then.prefill_instances,
        decode_instances=then.decode_instances,
        max_running_requests=then.max_running_requests or now.max_running_requests,
    )
    if then.routing_prefill is not None:
        changed = replace(changed, routing_prefill=then.routing_prefill)
    return changed, decision


def article(s: Scenario, now: Deployment, records: Records, past: list[Decision]) -> Answer:
    """instances = demand / capacity, 20 % headroom on demand, rounded up; the cap is the SLO's batch."""
    del records, past
    return _sized(s, now, 1.2 * s.rate_rps, _prefill_rps(s)), None


def paper(s: Scenario, now: Deployment, records: Records, past: list[Decision]) -> Answer:
    """arXiv 2603.04716: M/M/1 mean on P (eq. 13), the measured batch on D; rounded up."""
    del records, past
    mu = _prefill_rps(s)
    overhead_s = s.engine.transfer_s(int(s.lengths[0].mean()))
    each = mu - 1 / max(s.slo_ms[0] / 1000 - overhead_s, 1e-9)
    return _sized(s, now, s.rate_rps, max(each, 0.02 * mu)), None


def dynamo(s: Scenario, now: Deployment, records: Records, past: list[Decision]) -> Answer:
    """Dynamo's throughput rule: means, P at 100 % utilisation in the best batch within the TTFT."""
    del records, past
    size = float(s.lengths[0].mean()) * (1 - _hit(s))
    per = s.engine.prefill_piece_s(0, int(size))
    fits = [b for b in range(1, 65) if s.engine.prefill_a + b * per <= s.slo_ms[0] / 1000]
    b = max(fits, default=1)
    return _sized(s, now, s.rate_rps, b / (s.engine.prefill_a + b * per)), None


def naive(s: Scenario, now: Deployment, records: Records, past: list[Decision]) -> Answer:
    """TTFT over: one more P; TPOT over: one more D."""
    del past
    ttft, tpot = _p99s(records)
    return replace(
        now,
        prefill_instances=now.prefill_instances + (ttft > s.slo_ms[0]),
        decode_instances=now.decode_instances + (tpot > s.slo_ms[1]),
    ), None


def linear(s: Scenario, now: Deployment, records: Records, past: list[Decision]) -> Answer:
    """Latencies in proportion to 1 / instances (xpyd-plan), with as many as that asks for."""
    del past
    ttft, tpot = _p99s(records)
    return replace(
        now,
        prefill_instances=_up(min(now.prefill_instances * ttft / s.slo_ms[0], 64)),
        decode_instances=_up(min(now.decode_instances * tpot / s.slo_ms[1], 64)),
    ), None


RIVALS: dict[str, tuple[Rival, int]] = {  # and how many rounds each may take
    "this planner": (ours, 3),
    "demand / capacity + 20 %": (article, 1),
    "M/M/1 mean (paper)": (paper, 1),
    "Dynamo's throughput rule": (dynamo, 1),
    "TTFT -> +P, TPOT -> +D": (naive, 3),
    "linear in 1 / instances": (linear, 3),
}


def _sized(s: Scenario, now: Deployment, rate_rps: float, each_rps: float) -> Deployment:
    d_rps = s.batch / (float(s.lengths[1].mean()) * s.slo_ms[1] / 1000)
    return replace(
        now,
        prefill_instances=_up(min(rate_rps / each_rps, 64)),
        decode_instances=_up(min(rate_rps / d_rps, 64)),
        max_running_requests=s.batch,
    )


def _hit(s: Scenario) -> float:
    return s.hit[1] if s.hit[0] != "none" else 0.0


def _prefill_rps(s: Scenario) -> float:
    """The most prompts that one P can take: a saturating bench, prompts packed into chunks."""
    inputs = s.lengths[0] * (1 - _hit(s))
    e = s.engine
    work = [e.prefill_piece_s(0, int(n)) for n in np.quantile(inputs, np.linspace(0.01, 0.99, 50))]
    return 1 / (float(np.mean(work)) + e.prefill_a * float(inputs.mean()) / e.chunk_tokens)


def _p99s(records: Records) -> tuple[float, float]:
    r = records.where(records.due_s >= records.due_s[-1] / 10)
    tpot = r.tpot_s[np.isfinite(r.tpot_s)]
    return 1000 * float(np.quantile(r.ttft_s, 0.99)), 1000 * float(np.quantile(tpot, 0.99))


def _up(exact: float) -> int:
    return max(math.ceil(exact - 1e-9), 1)
