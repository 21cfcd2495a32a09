"""Which side is at fault: what the run, the plan and the servers' own metrics say, put together."""

from dataclasses import asdict, dataclass, field
from typing import Any

from planner.calibrate import (
    DEFAULT_CHUNK_TOKENS,
    DecodeModel,
    PrefillModel,
    fit_decode,
    fit_envelope,
    fit_queue,
)
from planner.config import Plan
from planner.measurement import Measurement, Size
from planner.predict import (
    DECODE_LIMIT,
    Traffic,
    decode_state,
    floor_ttft_p99_s,
    prefill_ttft_p99_s,
)
from planner.records import Records
from planner.window import in_window

BUSY = 0.55  # of the cap: below, no slot is short, whatever the model says
FULL = 0.9  # of the cap, in the servers' own gauges
TRANSFER_SHARE = 0.3  # of the TTFT SLO
UNKNOWN_CAP = 100_000
DEFAULT_ROUTING = "round-robin"


@dataclass
class Picture:
    """The calibrated models, the traffic, and who is full."""

    size: Size
    cap: int
    routing: str
    routing_known: bool
    prefill: PrefillModel
    decode: DecodeModel
    traffic: Traffic
    decode_bound: bool
    utilisation_decode: float
    transfer: str = ""
    spare: str = ""
    reasons: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        return {
            "prefill_model": asdict(self.prefill),
            "decode_model": asdict(self.decode),
            "decode_bound": self.decode_bound,
            "decode_utilisation": self.utilisation_decode,
            "routing": self.routing,
        }


def picture(plan: Plan | None, m: Measurement, records: Records, window: Records) -> Picture:
    """Put it together for a run whose deployment is known.

    The models are fitted on all that was sent, the warm-up included: at the start queues are empty
    and batches small, which shows what a prefill and a step take by themselves.
    """
    assert m.deployment is not None
    size, ok = m.deployment, window.where(window.ok)
    cap = size.max_running_requests or UNKNOWN_CAP
    known = plan.routing.prefill if plan else None
    routing = known or DEFAULT_ROUTING
    sent = records.where(in_window(records, 0.0))
    decode = fit_decode(sent.where(sent.ok), size.decode_instances)
    traffic = Traffic(
        window.due_s,
        window.effective_tokens,
        float(window.planned_output_tokens.mean()),
        m.rate_rps.get("due") or m.rate_planned_rps,
    )
    state = decode_state(decode, traffic, size.decode_instances, cap)
    bound, why = _decode_bound(m, decode, cap, state.utilisation, state.slot_wait_p99_s)
    chunk = float(plan.chunk_tokens) if plan and plan.chunk_tokens else DEFAULT_CHUNK_TOKENS
    setup_s = plan.iteration_overhead_ms / 1000 if plan else 0.0
    envelope = fit_envelope(sent.where(sent.ok), chunk, setup_s)
    prefill = envelope if bound else fit_queue(sent, envelope, size.prefill_instances, routing)
    see = Picture(
        size, cap, routing, known is not None, prefill, decode, traffic, bound, state.utilisation
    )
    load = prefill.utilisation(traffic.due_s, traffic.input_tokens, size.prefill_instances)
    see.reasons = [why, f"P is offered {100 * load:.0f} % of what it can do ({prefill.source})."]
    see.transfer = _transfer(m, ok, prefill, load)
    see.spare = _spare(m, see)
    return see


def _decode_bound(
    m: Measurement, decode: DecodeModel, cap: int, utilisation: float, wait_s: float
) -> tuple[bool, str]:
    """Whether requests wait for a slot on D: by its own gauges, else by the batch and the model."""
    told = _gauges(m)
    if told is not None:
        running, queued = told
        full = running >= FULL * cap and queued > 0
        text = f"D's own metrics: {running:.1f} of {cap} running, {queued:.1f} waiting for a slot."
        return full, text
    share = decode.busy_batch / cap
    long_wait = wait_s > 0.25 * m.slo.ttft_p99_ms / 1000
    full = share >= BUSY and (utilisation > DECODE_LIMIT or long_wait)
    text = (
        f"D: {decode.busy_batch:.1f} requests decode on each at busy times (cap {cap}), and demand is "
        f"{100 * utilisation:.0f} % of what it can do at the cap ({decode.source})."
    )
    return full, text if cap < UNKNOWN_CAP else "D: the cap is not known."


def _gauges(m: Measurement) -> tuple[float, float] | None:
    """Mean running and waiting of the fullest D, from /metrics; None without."""
    decodes = [d for d in (m.server or {}).get("decode", []) if "running_mean" in d]
    if not decodes:
        return None
    fullest = max(decodes, key=lambda d: float(d["running_mean"]))
    waiting = fullest.get("prealloc_mean", 0.0) + fullest.get("queued_mean", 0.0)
    return float(fullest["running_mean"]), float(waiting)


def _transfer(m: Measurement, ok: Records, prefill: PrefillModel, load: float) -> str:
    """A sentence when what is neither queue nor compute takes too much of the TTFT."""
    overhead_ms = 1000 * prefill.overhead_s
    if overhead_ms > TRANSFER_SHARE * m.slo.ttft_p99_ms and load < 0.6 and len(ok):
        return (
            f"{overhead_ms:.0f} ms of every TTFT are neither queue nor prefill (network, KV transfer, bootstrap) "
            f"and P is used to {100 * load:.0f} % only: mend the transfer, more instances do not help."
        )
    return ""


def _spare(m: Measurement, see: Picture) -> str:
    """A suggestion to take one instance away, where the model says that it would still do."""
    ttft_s, tpot_s = m.slo.ttft_p99_ms / 1000, m.slo.tpot_p99_ms / 1000
    p, d = see.size.prefill_instances, see.size.decode_instances
    out = []
    if p > 1 and floor_ttft_p99_s(see.prefill, see.traffic) < 0.8 * ttft_s:
        fewer = prefill_ttft_p99_s(see.prefill, see.traffic, p - 1, see.routing)
        if fewer <= 0.8 * ttft_s:
            out.append(f"{p - 1} P (predicted TTFT P99 {1000 * fewer:.0f} ms)")
    if d > 1 and see.cap < UNKNOWN_CAP and see.decode.alpha_s > 0:
        state = decode_state(see.decode, see.traffic, d - 1, see.cap)
        if state.utilisation <= 0.75 and state.tpot_p99_s <= 0.95 * tpot_s:
            out.append(f"{d - 1} D (predicted TPOT P99 {1000 * state.tpot_p99_s:.1f} ms)")
    return f"Room to scale down, to be confirmed by a run: {' or '.join(out)}." if out else ""
