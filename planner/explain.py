"""A decision at length: what was looked at, in the order of the decision table, and what came of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.calibrate import UNKNOWN_CAP
from planner.measurement import Measurement, Spread
from planner.report import arrivals_line, banners, lengths_line, plain_words, prediction_line
from planner.run_files import load_decision
from planner.verdict import Decision, shown

TABLE = {
    "0": "the run can be trusted: it adds up, the target answered, the client kept up",
    "1": "one request alone on an empty cluster is within the SLOs",
    "2": "enough was measured to tell",
    "3": "what comes in also goes out",
    "4": "both SLOs are met",
    "5": "TTFT over, because D has no slot: a larger cap, or more D, never P",
    "6": "TTFT over, because P is short: better routing, or more P",
    "7": "TTFT over, because of the transfer between P and D",
    "8": "TPOT over: smaller batches where D has slack, else more D",
    "9": "both over: D alone when P by itself would do, else both in one step",
}


def explain(run: str | Path) -> str:
    """The decision in a run.json, at length."""
    return explained(*load_decision(run))


def explained(m: Measurement, decision: Decision) -> str:
    """The same for what is at hand."""
    return "\n".join(_lines(m, decision)) + "\n"


def _lines(m: Measurement, decision: Decision) -> Iterator[str]:
    yield f"{decision.headline()}  (rule {decision.rule})"
    yield plain_words(decision)
    yield from banners(m)
    yield ""
    yield "What was measured"
    yield f"  {arrivals_line(m)}"
    if line := lengths_line(m):
        yield f"  {line}"
    for name, spread, slo_ms in (
        ("TTFT", m.ttft_ms, m.slo.ttft_p99_ms),
        ("TPOT", m.tpot_ms, m.slo.tpot_p99_ms),
    ):
        yield from (f"  {line}" for line in _spread(name, spread, slo_ms))
    yield ""
    yield "What the verdict rests on"
    yield from (f"  {k}. {reason}" for k, reason in enumerate(decision.reasons, start=1))
    yield from (f"  ! {warning}" for warning in m.warnings)
    if decision.ttft_split:
        yield ""
        yield "Where the TTFT is spent (mean; slowest 1 %)"
        for part in decision.ttft_split:
            yield (
                f"  {part.stage:<18} {part.mean_ms:9.1f} ms {100 * part.share:5.1f} %   "
                f"{part.tail_ms:9.1f} ms   {part.source}"
            )
    if "prefill_model" in decision.attribution:
        yield ""
        yield "The engine, as this run shows it"
        yield from (f"  {line}" for line in _models(decision.attribution))
    yield ""
    yield "The decision table, in its order"
    reached = decision.rule.split()[0]
    for number, text in TABLE.items():
        yield f"  {'>' if number == reached else ' '} {number}  {text}"
    yield ""
    yield from _next(decision)


def _spread(name: str, s: Spread, slo_ms: float) -> Iterator[str]:
    if s.p99 is None:
        yield f"{name}: no samples"
        return
    low, high = (("?" if v is None else f"{v:.1f}") for v in (s.ci_low, s.ci_high))
    yield (
        f"{name}: P50 {s.p50:.1f}, P90 {s.p90:.1f}, P99 {s.p99:.1f} ms, SLO {slo_ms:g} ms. The P99 is between "
        f"{low} and {high} ms with 95 % confidence:"
    )
    yield (
        f"  {s.n} samples, worth {s.n_eff:.0f} independent ones, since neighbours in a queue are alike; "
        f"{100 * (s.violation_rate or 0):.2f} % of the arrivals were over the SLO."
    )


def _models(told: dict[str, Any]) -> Iterator[str]:
    p, d, layout = told["prefill_model"], told["decode_model"], told["layout"]
    yield (
        f"prefill of L tokens: {1000 * p['setup_s']:.1f} ms + {1e6 * p['slope_s']:.2f} us * L + "
        f"{1e9 * p['square_s']:.3f} ns * L^2, and {1000 * p['overhead_s']:.1f} ms that P is not busy ({p['source']})"
    )
    yield (
        f"decode step at batch b: {1000 * d['alpha_s']:.2f} ms + {1000 * d['beta_s']:.3f} ms * b + "
        f"{1e6 * d['bend_s']:.3f} us * b^2, seen up to b = {d['seen_batch']:.0f} ({d['source']})"
    )
    cap = "not known" if layout["cap"] >= UNKNOWN_CAP else layout["cap"]
    yield (
        f"played as {layout['prefill']}P{layout['decode']}D, cap {cap}, routing to P {layout['routing_prefill']}, "
        f"{layout['admission']} admission"
    )
    if told.get("not_told"):
        yield f"not told, so taken from the run or as usual: {', '.join(told['not_told'])}"
    if told.get("fit_error") is not None:
        yield f"the model gives the quantiles of TTFT to {100 * told['fit_error']:.1f} % on average"


def _next(decision: Decision) -> Iterator[str]:
    if line := prediction_line(decision):
        yield line
    if decision.proposal is not None and decision.proposal.gpus:
        yield f"GPUs there: {decision.proposal.gpus}"
    if decision.headroom_rps:
        yield f"The present deployment is expected to hold up to {decision.headroom_rps:.2f} req/s."
    if decision.next_command:
        yield f"Next: {decision.next_command}"
    elif decision.deployment is not None:
        yield f"Stay at {shown(decision.deployment)}."
