"""After a run: what to do. The order of the rules is that of the decision table (docs/planning.md).

First whether the run can say anything (it adds up, the target answered, the client kept up, enough was
seen), then whether both SLOs hold, then, for one that does not, which side is at fault: TTFT over its
SLO is not by itself a lack of P, since a full D keeps requests waiting as well.
"""

import math
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from planner.attribution import Picture, picture
from planner.config import Plan
from planner.measurement import Measurement, Size, Spread, judged
from planner.predict import (
    DECODE_LIMIT,
    decode_state,
    floor_ttft_p99_s,
    prefill_ttft_p99_s,
    smallest_decode,
    smallest_prefill,
)
from planner.records import Flags, Records
from planner.statistics import batch_interval, rate_interval
from planner.window import in_window

EXIT_CODES = {
    "hold": 0,
    "add-prefill": 10,
    "add-decode": 11,
    "add-both": 12,
    "lower-max-running-requests": 13,
    "raise-max-running-requests": 14,
    "fix-transfer": 15,
    "change-routing": 16,
    "infeasible": 17,
    "inconclusive": 20,
    "client-limited": 21,
    "target-errors": 22,
}
ALLOWED = 0.01  # of arrivals may miss a P99 limit
MIN_MEASURED = 299  # with none of them over the limit, 95 % sure
MAX_ERRORS = 0.01
MAX_LAG_SHARE = 0.10  # of the TTFT SLO
MAX_CPU_PERCENT = 90.0
MAX_LOST = 0.01


class Proposal(Size):
    """A deployment, and what it is expected to do."""

    predicted_ttft_p99_ms: float | None = None
    predicted_tpot_p99_ms: float | None = None


class Decision(BaseModel):
    """The verdict and its reasons."""

    model_config = ConfigDict(extra="ignore")

    verdict: str
    exit_code: int
    rule: str
    confidence: str = ""  # likely, confirmed, or '' where nothing was concluded
    reasons: list[str] = Field(default_factory=list)
    deployment: Size | None = None
    proposal: Proposal | None = None
    next_command: str = ""
    attribution: dict[str, Any] = Field(default_factory=dict)

    def headline(self) -> str:
        """The verdict in one plain line."""
        now, then = self.deployment, self.proposal
        if self.verdict == "hold":
            return f"hold: both SLOs are met ({self.confidence})"
        if now is None or then is None:
            return self.verdict
        return f"{self.verdict}: {_sizes(now)} -> {_sizes(then)}"


def _sizes(size: Size) -> str:
    cap = f", max_running_requests {size.max_running_requests}" if size.max_running_requests else ""
    return f"{size.prefill_instances}P{size.decode_instances}D{cap}"


def decide(
    plan: Plan | None, measurement: Measurement, records: Records, confidence: str = "likely"
) -> Decision:
    """The verdict on a run. Pure: the same run and plan give the same verdict at any time."""
    m = measurement
    doubt = _unfit(m) or _too_little(m, records)
    if doubt is not None:
        return doubt
    window = records.where(in_window(records, m.warmup_s or 0.0))
    over = judged(window, records, m)
    tests = {
        "TTFT": _judge(over.ttft, m.ttft_ms, confidence),
        "TPOT": _judge(over.tpot, m.tpot_ms, confidence),
    }
    facts = [
        _fact("TTFT", m.ttft_ms, m.slo.ttft_p99_ms),
        _fact("TPOT", m.tpot_ms, m.slo.tpot_p99_ms),
    ]
    if "fail" not in tests.values() and "unclear" in tests.values():
        return _not_sure(m, tests, confidence, facts)
    size = m.deployment
    if size is None and "fail" in tests.values():
        return _decision(
            "inconclusive",
            "0 deployment unknown",
            [
                *facts,
                "An SLO is missed, but how many P and D run is not known: give a plan with deployment.",
            ],
        )
    see = picture(plan, m, records, window) if size is not None else None
    if "fail" not in tests.values():
        return _hold(m, see, confidence, facts)
    assert see is not None
    return _act(m, see, (tests["TTFT"] == "fail", tests["TPOT"] == "fail"), confidence, facts)


# -- can the run say anything -------------------------------------------------------------------------


def _decision(verdict: str, rule: str, reasons: list[str], **more: Any) -> Decision:
    return Decision(
        verdict=verdict, exit_code=EXIT_CODES[verdict], rule=rule, reasons=reasons, **more
    )


def _unfit(m: Measurement) -> Decision | None:
    """Rule 0: the run does not add up, the target failed, or the client did not keep up."""
    a = m.arrivals
    failed = sum(a.failed.values())
    if not a.adds_up:
        return _decision(
            "inconclusive", "0 accounting", [f"The run does not add up: {a.model_dump_json()}."]
        )
    if a.succeeded == 0 and failed == 0:
        return _decision("inconclusive", "0 nothing completed", ["No request completed."])
    if failed > MAX_ERRORS * a.due:
        names = ", ".join(f"{count} x {name}" for name, count in a.failed.items())
        share = f"{failed} of {a.due} requests failed ({100 * failed / a.due:.1f} %): {names}."
        return _decision(
            "target-errors", "0 errors", [share, "No scaling advice: see to these first."]
        )
    slow = _client_limits(m)
    return _decision("client-limited", "0 client", slow) if slow else None


def _client_limits(m: Measurement) -> list[str]:
    a, found = m.arrivals, []
    limit_ms = MAX_LAG_SHARE * m.slo.ttft_p99_ms
    if m.lag_ms.p99 is not None and m.lag_ms.p99 > limit_ms:
        found.append(
            f"Requests went out late: lag P99 {m.lag_ms.p99:.1f} ms, allowed {limit_ms:.0f} ms (10 % of the "
            "TTFT SLO). Use more workers, or a larger -u."
        )
    if m.client.get("cpu_percent_max", 0.0) > MAX_CPU_PERCENT:
        found.append(
            f"A worker used {m.client['cpu_percent_max']:.0f} % of its core. Use more workers."
        )
    if a.unsent > MAX_LOST * a.due:
        found.append(
            f"{a.unsent} of {a.due} arrivals found no free slot (-u {m.max_concurrency}). Raise -u."
        )
    if a.lost > MAX_LOST * a.due:
        found.append(f"{a.lost} of {a.due} arrivals were lost with a worker. Run again.")
    return found


def _too_little(m: Measurement, records: Records) -> Decision | None:
    if m.measured >= MIN_MEASURED:
        return None
    rate = max(m.rate_rps.get("due", 0.0), 1e-9)
    more_s = (
        math.ceil((MIN_MEASURED - m.measured) / rate)
        if m.measured
        else math.ceil(MIN_MEASURED / max(m.rate_planned_rps, 1e-9))
    )
    text = (
        f"{m.measured} requests were measured; a P99 needs {MIN_MEASURED} at the least. "
        f"Run about {more_s} s longer."
    )
    return _decision("inconclusive", "2 too few samples", [text])


# -- do the SLOs hold ---------------------------------------------------------------------------------


def _judge(violated: Flags, spread: Spread, confidence: str) -> str:
    """pass, fail or unclear: is the share over the limit at most 1 %?"""
    if spread.n == 0 and not violated.any():
        return "pass"  # outputs of one token have no TPOT
    if confidence == "confirmed":
        share = float(violated.mean())
        low, high = rate_interval(share * spread.n_eff, spread.n_eff)
    else:
        low, high = batch_interval(violated)
    return "pass" if high <= ALLOWED else "fail" if low > ALLOWED else "unclear"


def _fact(name: str, spread: Spread, slo_ms: float) -> str:
    if spread.p99 is None:
        return f"{name}: no sample."
    high = "?" if spread.ci_high is None else f"{spread.ci_high:.1f}"
    low = "?" if spread.ci_low is None else f"{spread.ci_low:.1f}"
    rate = 100 * (spread.violation_rate or 0.0)
    return (
        f"{name} P99 {spread.p99:.1f} ms [{low}, {high}] against {slo_ms:g} ms; {rate:.2f} % of requests over it "
        f"(allowed 1 %), {spread.n} samples worth {spread.n_eff:.0f}."
    )


def _not_sure(m: Measurement, tests: dict[str, str], confidence: str, facts: list[str]) -> Decision:
    which = " and ".join(name for name, test in tests.items() if test == "unclear")
    spreads = {"TTFT": m.ttft_ms, "TPOT": m.tpot_ms}
    worth = min(s.n_eff for n, s in spreads.items() if tests[n] == "unclear" and s.n) or 1.0
    rate = max(m.rate_rps.get("due", 0.0), 1e-9)
    needed = max(473 - worth, worth)  # one violation allowed, or as much again
    more_s = math.ceil(needed / worth * m.measured / rate)
    text = f"Whether {which} holds is not {confidence} yet. Run about {more_s} s longer."
    return _decision("inconclusive", "2 not settled", [*facts, text], deployment=m.deployment)


def _hold(m: Measurement, see: Picture | None, confidence: str, facts: list[str]) -> Decision:
    reasons = [*facts]
    if see is not None and see.spare:
        reasons.append(see.spare)
    return _decision("hold", "4 both met", reasons, confidence=confidence, deployment=m.deployment)


# -- what to do -----------------------------------------------------------------------------------------


@dataclass
class _Change:
    verdict: str
    rule: str
    size: Size
    why: str


def _act(
    m: Measurement, see: Picture, failed: tuple[bool, bool], confidence: str, facts: list[str]
) -> Decision:
    change = _infeasible(m, see) or _change(m, see, *failed)
    proposal = None
    if change.verdict not in ("infeasible", "fix-transfer"):
        proposal = _predicted(see, change.size)
    return _decision(
        change.verdict,
        change.rule,
        [*facts, *see.reasons, change.why],
        confidence=confidence,
        deployment=m.deployment,
        proposal=proposal,
        next_command=_next(m, proposal),
        attribution=see.as_dict(),
    )


def _infeasible(m: Measurement, see: Picture) -> _Change | None:
    floor_ms = 1000 * floor_ttft_p99_s(see.prefill, see.traffic)
    if floor_ms > m.slo.ttft_p99_ms and not see.decode_bound:
        why = (
            f"Even an empty P needs {floor_ms:.0f} ms at P99 ({see.prefill.source}): no count helps. Levers: "
            "higher TP or faster prefill, shorter prompts, a better prefix hit rate, a looser TTFT SLO."
        )
        return _Change("infeasible", "1 floor", see.size, why)
    if 1000 * see.decode.step_s(1) > m.slo.tpot_p99_ms and see.decode.alpha_s > 0:
        why = (
            f"A decode step of batch 1 takes {1000 * see.decode.step_s(1):.1f} ms: no count helps. Levers: higher "
            "TP, speculative decoding, a smaller model, a looser TPOT SLO."
        )
        return _Change("infeasible", "1 floor", see.size, why)
    return None


def _change(m: Measurement, see: Picture, ttft: bool, tpot: bool) -> _Change:
    if tpot and not ttft:
        return _lower_or_add_decode(m, see)
    if ttft and not tpot:
        return _more_decode(m, see) if see.decode_bound else _more_prefill(m, see)
    grown = _grown(m, see)
    if grown.prefill_instances == see.size.prefill_instances:
        return _Change(
            "add-decode", "9 both missed, D at fault", grown, "P alone would meet the TTFT SLO."
        )
    return _Change(
        "add-both",
        "9 both missed",
        grown,
        "Neither side alone would do; add first, tune the cap after.",
    )


def _grown(m: Measurement, see: Picture) -> Size:
    """Both sides from the model, with the largest cap that the TPOT SLO allows."""
    tpot_s, ttft_s = m.slo.tpot_p99_ms / 1000, m.slo.ttft_p99_ms / 1000
    cap = min(see.cap, max(see.decode.largest_batch(tpot_s), 1))
    d = smallest_decode(see.decode, see.traffic, cap, tpot_s, see.size.decode_instances)
    p = smallest_prefill(see.prefill, see.traffic, see.routing, ttft_s, see.size.prefill_instances)
    return Size(
        prefill_instances=p or see.size.prefill_instances + 1,
        decode_instances=max(d or 0, see.size.decode_instances + 1),
        max_running_requests=cap if see.size.max_running_requests else None,
    )


def _more_prefill(m: Measurement, see: Picture) -> _Change:
    ttft_s, now = m.slo.ttft_p99_ms / 1000, see.size
    if see.transfer:
        return _Change("fix-transfer", "7 transfer", now, see.transfer)
    if see.routing != "least-load" and see.routing_known:
        better = prefill_ttft_p99_s(see.prefill, see.traffic, now.prefill_instances, "least-load")
        if now.prefill_instances > 1 and better <= 0.9 * ttft_s:
            size = now.model_copy()
            why = f"With least-load routing the same {now.prefill_instances} P are predicted at {1000 * better:.0f} ms."
            return _Change("change-routing", "6 routing", size, why)
    p = smallest_prefill(see.prefill, see.traffic, see.routing, ttft_s, now.prefill_instances + 1)
    if p is None:
        why = "No number of P up to 512 is predicted to meet 0.9 of the TTFT SLO: prompts are too long for it."
        return _Change("infeasible", "1 floor", now, why)
    why = f"P is the bottleneck: {p} P is the fewest whose predicted TTFT P99 is within 0.9 of the SLO."
    return _Change("add-prefill", "6 P bound", now.model_copy(update={"prefill_instances": p}), why)


def _more_decode(m: Measurement, see: Picture) -> _Change:
    """Rule 5: D is full. A larger cap where the TPOT SLO leaves room for one, else more D."""
    tpot_s, now = m.slo.tpot_p99_ms / 1000, see.size
    largest = see.decode.largest_batch(0.95 * tpot_s)
    trusted = min(largest, 2 * see.cap)  # the curve is not known far beyond what was seen
    grown = _grown(m, see)
    p_short = grown.prefill_instances > now.prefill_instances
    if trusted > 1.1 * see.cap and see.decode.beta_s > 0 and not p_short:
        state = decode_state(see.decode, see.traffic, now.decode_instances, trusted)
        if state.utilisation <= DECODE_LIMIT:
            size = now.model_copy(update={"max_running_requests": trusted})
            step_ms = 1000 * see.decode.step_s(trusted)
            why = (
                "D is full at its cap while the TPOT SLO leaves room: a step at "
                f"{trusted} takes {step_ms:.1f} ms."
            )
            return _Change("raise-max-running-requests", "5 D full, room in TPOT", size, why)
    if p_short:
        why = "D is full, and P alone would miss the TTFT SLO too."
        return _Change("add-both", "5 D full, P short", grown, why)
    size = grown.model_copy(update={"max_running_requests": now.max_running_requests})
    why = (
        "D is full: requests wait for a slot there, which shows up as TTFT. "
        f"{grown.decode_instances} D bring demand to 0.8 of capacity."
    )
    return _Change("add-decode", "5 D full", size, why)


def _lower_or_add_decode(m: Measurement, see: Picture) -> _Change:
    """Rule 8: the batch is too large for the TPOT SLO."""
    tpot_s, ttft_s, now = m.slo.tpot_p99_ms / 1000, m.slo.ttft_p99_ms / 1000, see.size
    cap = max(see.decode.largest_batch(tpot_s), 1)
    state = decode_state(see.decode, see.traffic, now.decode_instances, cap)
    slack_s = ttft_s - (m.ttft_ms.p99 or 0.0) / 1000
    if state.utilisation <= DECODE_LIMIT and state.slot_wait_p99_s <= slack_s and cap < see.cap:
        size = now.model_copy(update={"max_running_requests": cap})
        why = (
            f"At a cap of {cap} a step takes {1000 * see.decode.step_s(cap):.1f} ms and D is used to "
            f"{100 * state.utilisation:.0f} %, which leaves slack."
        )
        return _Change("lower-max-running-requests", "8 batch too large", size, why)
    d = smallest_decode(see.decode, see.traffic, cap, tpot_s, now.decode_instances + 1)
    size = now.model_copy(
        update={
            "decode_instances": d or now.decode_instances + 1,
            "max_running_requests": min(cap, see.cap),
        }
    )
    why = (
        f"A cap of {cap} would keep TPOT, but D would be used to {100 * state.utilisation:.0f} %: "
        "requests would wait for slots instead. Add D."
    )
    return _Change("add-decode", "8 no slack for a lower cap", size, why)


def _predicted(see: Picture, size: Size) -> Proposal:
    cap = size.max_running_requests or see.cap
    state = decode_state(see.decode, see.traffic, size.decode_instances, cap)
    ttft_s = prefill_ttft_p99_s(see.prefill, see.traffic, size.prefill_instances, see.routing)
    ttft_s += state.slot_wait_p99_s
    return Proposal(
        **size.model_dump(),
        predicted_ttft_p99_ms=round(1000 * ttft_s, 1) if math.isfinite(ttft_s) else None,
        predicted_tpot_p99_ms=round(1000 * state.tpot_p99_s, 2),
    )


def _next(m: Measurement, proposal: Proposal | None) -> str:
    if proposal is None:
        return ""
    keys = {"prefill_instances", "decode_instances", "max_running_requests"}
    body = proposal.model_dump_json(include=keys, exclude_none=True)
    if m.emulated:
        return f"curl -X PUT {m.target.rstrip('/')}/deployment -d '{body}', then the same run again"
    return f"Set the deployment to {body}, then the same run again with another --seed"
