"""After a run: what to do. The order of the rules is that of the decision table (docs/planning.md).

First whether the run can say anything (``validity``: it adds up, the target answered, the client kept up,
enough was seen), then whether both SLOs hold, then what to do about one that does not (``rules``).
"""

import json
import math
from dataclasses import replace
from typing import Any

from planner.attribution import Picture, picture
from planner.change import Change, as_size
from planner.config import Plan
from planner.history import did_not_hold, held
from planner.measure import judged
from planner.measurement import Measurement, Size, Spread
from planner.models import Layout
from planner.predict import headroom_rps
from planner.records import Records
from planner.rules import change
from planner.smaller import back_to, spare
from planner.validity import FAIL, UNCLEAR, Check, check_limit, not_sure, too_little, unfit
from planner.verdict import EXIT_CODES, Decision, Proposal, decided, shown
from planner.window import in_window

__all__ = ["EXIT_CODES", "Decision", "Proposal", "decide", "unsettled"]

NO_SIZE = ("infeasible", "fix-transfer")  # verdicts that propose no other deployment


def decide(
    plan: Plan | None, measurement: Measurement, records: Records, confidence: str = "likely"
) -> Decision:
    """The verdict on a run. Pure: the same run and plan give the same verdict at any time."""
    m = measurement
    doubt = unfit(m) or too_little(m)
    if doubt is not None:
        return doubt
    checks = _checks(m, records, confidence)
    facts = [
        _fact("TTFT", m.ttft_ms, m.slo.ttft_p99_ms, checks["TTFT"]),
        _fact("TPOT", m.tpot_ms, m.slo.tpot_p99_ms, checks["TPOT"]),
    ]
    outcomes = {check.outcome for check in checks.values()}
    if FAIL not in outcomes and UNCLEAR in outcomes:
        return _not_settled(plan, m, records, checks, not_sure(m, checks, confidence, facts))
    if m.deployment is None:
        return _unknown_deployment(m, FAIL in outcomes, confidence, facts)
    see = picture(plan, m, records)
    if FAIL not in outcomes:
        return _hold(plan, m, see, confidence, facts)
    todo = change(m, see, checks["TTFT"].outcome == FAIL, checks["TPOT"].outcome == FAIL)
    return _act(m, see, back_to(plan, m, todo, see.gpus), confidence, facts)


def unsettled(
    measurement: Measurement, records: Records, confidence: str = "likely"
) -> Decision | None:
    """Why a run settles nothing yet; None when ``decide`` would come to a verdict on the cluster.

    Only the statistics of ``decide``, no model: quick enough to be asked while a run is on.
    """
    doubt = unfit(measurement) or too_little(measurement)
    if doubt is not None:
        return doubt
    checks = _checks(measurement, records, confidence)
    outcomes = {check.outcome for check in checks.values()}
    if FAIL not in outcomes and UNCLEAR in outcomes:
        return not_sure(measurement, checks, confidence, [])
    return None


def _checks(m: Measurement, records: Records, confidence: str) -> dict[str, Check]:
    window = records.where(in_window(records, m.warmup_s or 0.0))
    over = judged(window, records, m)
    return {
        "TTFT": check_limit(over.ttft, over.ttft_open, m.ttft_ms, confidence),
        "TPOT": check_limit(over.tpot, over.tpot_open, m.tpot_ms, confidence),
    }


def _fact(name: str, spread: Spread, slo_ms: float, check: Check) -> str:
    if spread.p99 is None:
        return f"{name}: no samples."
    high = "?" if spread.ci_high is None else f"{spread.ci_high:.1f}"
    low = "?" if spread.ci_low is None else f"{spread.ci_low:.1f}"
    return (
        f"{name} P99 {spread.p99:.1f} ms [{low}, {high}] against {slo_ms:g} ms; "
        f"{100 * (spread.violation_rate or 0.0):.2f} % of requests over it "
        f"[{100 * check.low:.2f}, {100 * check.high:.2f}], 1 % is allowed; "
        f"{spread.n} samples worth {spread.n_eff:.0f}."
    )


def _unknown_deployment(
    m: Measurement, failed: bool, confidence: str, facts: list[str]
) -> Decision:
    if not failed:
        return decided("hold", "4 both met", facts, confidence=confidence)
    text = "An SLO is missed, but how many P and D run is not known: give a plan with the key deployment."
    return decided("inconclusive", "0 deployment unknown", [*facts, text])


def _hold(
    plan: Plan | None, m: Measurement, see: Picture, confidence: str, facts: list[str]
) -> Decision:
    rate = headroom_rps(see.forecast, see.now, see.limits)
    reasons = [
        *facts,
        f"The deployment is expected to hold up to {rate:.1f} req/s ({rate / see.forecast.traffic.rate_rps:.2f} times "
        "the rate of this run).",
        *see.calibration.notes,
    ]
    less = spare(m, see)
    proposal = _proposal(see, less) if less else None
    if proposal is not None and did_not_hold(plan, proposal):
        proposal = None
    if proposal is not None:
        reasons.append(f"Room to scale down, to be confirmed by a run: {shown(proposal)}.")
    return decided(
        "hold",
        "4 both met",
        reasons,
        confidence=confidence,
        deployment=m.deployment,
        proposal=proposal,
        next_command=_next(m, proposal),
        headroom_rps=round(rate, 3),
        ttft_split=see.split,
        attribution=see.as_dict(),
    )


def _not_settled(
    plan: Plan | None, m: Measurement, records: Records, checks: dict[str, Check], doubt: Decision
) -> Decision:
    """Where to go meanwhile: back to what held, or, when a longer run would hardly tell, to what has a margin."""
    back = held(plan, m.deployment)
    if back is not None:
        why = f"{shown(back)} held in a round before: go back there, or run this one longer."
        proposal = Proposal(**back.model_dump())
    else:
        over = {name for name, check in checks.items() if check.likely_over}
        measured_s = m.measured / max(m.rate_rps.get("due", 0.0), 1e-9)
        soon = doubt.seconds_more is not None and doubt.seconds_more <= measured_s
        if not over or soon or m.deployment is None:
            return doubt
        see = picture(plan, m, records)
        todo = change(m, see, "TTFT" in over, "TPOT" in over)
        if todo.verdict in NO_SIZE:
            return doubt
        proposal = _proposal(see, todo.layout)
        why = (
            f"It is likelier over its limit than not; with the usual margin it takes {shown(proposal)} "
            f"({todo.verdict})."
        )
    told = {"proposal": proposal, "next_command": _next(m, proposal)}
    return doubt.model_copy(update={"reasons": [*doubt.reasons, why], **told})


def _act(m: Measurement, see: Picture, todo: Change, confidence: str, facts: list[str]) -> Decision:
    proposal = None if todo.verdict in NO_SIZE else _proposal(see, todo.layout)
    return decided(
        todo.verdict,
        todo.rule,
        [*facts, *see.reasons, todo.why],
        confidence=confidence,
        deployment=m.deployment,
        proposal=proposal,
        next_command=_next(m, proposal),
        ttft_split=see.split,
        attribution=see.as_dict(),
    )


def _proposal(see: Picture, layout: Layout) -> Proposal:
    there = see.forecast.p99s(layout)
    if layout.cap == see.now.cap and see.size.max_running_requests:
        layout = replace(
            layout, cap=see.size.max_running_requests
        )  # not the one that KV memory sets
    size = as_size(layout, see.size)
    routing = layout.routing_prefill if layout.routing_prefill != see.now.routing_prefill else None
    return Proposal(
        **size.model_dump(),
        routing_prefill=routing,
        predicted_ttft_p99_ms=_ms(there.ttft_s, 1),
        predicted_tpot_p99_ms=_ms(there.tpot_s, 2),
        gpus=layout.prefill * see.gpus[0] + layout.decode * see.gpus[1],
    )


def _ms(seconds: float, digits: int) -> float | None:
    return round(1000 * seconds, digits) if math.isfinite(seconds) else None


def _next(m: Measurement, proposal: Proposal | None) -> str:
    """What to type to apply it, and what confirms it."""
    if proposal is None:
        return ""
    body: dict[str, Any] = Size.model_validate(proposal.model_dump()).model_dump(exclude_none=True)
    if proposal.routing_prefill:
        body["routing_prefill"] = proposal.routing_prefill
    told = json.dumps(body)
    if m.emulated:
        return f"curl -X PUT {m.target.rstrip('/')}/deployment -d '{told}', then the same run with --seed {m.seed + 1}"
    return f"Set the deployment to {told}, then the same run with --seed {m.seed + 1}"
