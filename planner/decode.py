"""Decode: a measured curve. The TPOT limit caps the batch, and the batch gives the throughput."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.config import Plan
from planner.errors import PlanError
from planner.models import DecodeModel
from planner.queueing import SharedSlots, shared_slots

Curve = Sequence[tuple[float, float]]
UNITS = 1.2  # times the TPOT SLO: beyond it batch and throughput contradict it


def throughput_at_tpot_tps(curve: Curve, tpot_ms: float) -> tuple[float, float]:
    """Largest batch whose TPOT is within the limit, and the tokens/s at that limit.

    The throughput is a parabola through the points' throughput over TPOT, as in the paper's script
    (linear interpolation with fewer than four points). Beyond the last point of the curve nothing is
    known, so the batch stays there.
    """
    batches, tpots = (np.array(c, float) for c in zip(*curve, strict=True))
    if tpot_ms < tpots[0]:
        raise PlanError(
            f"slo.tpot_p99_ms: {tpot_ms:g} ms is less than the curve's first point ({tpots[0]:g} ms "
            f"at batch {batches[0]:g}); no number of instances helps."
        )
    batch = float(np.interp(tpot_ms, tpots, batches))
    at_ms = min(tpot_ms, float(tpots[-1]))
    tps = 1000 * batches / tpots
    if len(curve) < 4:
        return batch, float(np.interp(at_ms, tpots, tps))
    return batch, float(np.polyval(np.polyfit(tpots, tps, 2), at_ms))


@dataclass(frozen=True, slots=True)
class Slots:
    """One D at the largest batch it may have, and its steps, where a curve tells them."""

    batch: int | None
    tps: float
    model: "Tabulated | None"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tabulated(DecodeModel):
    """A decode step by a measured curve, linear between its points and before the first."""

    points: tuple[tuple[float, float], ...] = ()

    def step_s(self, batch: float) -> float:
        """One step at this batch; beyond the last point as at it."""
        (b0, t0), (b1, t1) = self.points[:2]
        if batch < b0:
            return max(t0 - (b0 - batch) * (t1 - t0) / (b1 - b0), 0.05 * t0) / 1000
        batches, tpots = zip(*self.points, strict=True)
        return float(np.interp(batch, batches, tpots)) / 1000

    def loaded(self, rate_rps: float, output_tokens: float, slots: int) -> SharedSlots:
        """One D at a rate of its own, by formula."""
        steps_s = np.array([self.step_s(b) for b in range(1, slots + 1)])
        return shared_slots(rate_rps, output_tokens, steps_s)


def slots_at_slo(plan: Plan) -> Slots:
    """The batch within the TPOT SLO and under the plan's caps, and its tokens/s. Raises PlanError."""
    caps = (
        plan.decode.max_batch_size_at_slo,
        plan.deployment.max_running_requests if plan.deployment else None,
    )
    cap = min((c for c in caps if c is not None), default=None)
    if plan.decode.curve is None:
        return _of_one_point(plan, cap)
    last = plan.decode.curve[-1]
    at_slo = int(throughput_at_tpot_tps(plan.decode.curve, plan.slo.tpot_p99_ms)[0] + 1e-9)
    batch = max(min(at_slo, cap if cap is not None else at_slo), 1)
    notes = []
    if caps[1] is not None and caps[1] > last[0] and last[1] < plan.slo.tpot_p99_ms:
        notes.append(
            f"deployment.max_running_requests: {caps[1]} is above decode.curve, which ends at batch {last[0]:g}; "
            f"beyond it nothing is known, so D is sized at {batch}: measure the curve further, or lower the cap"
        )
    model = Tabulated(0.0, 0.0, points=tuple(plan.decode.curve))
    return Slots(batch, batch / model.step_s(batch), model, tuple(notes))


def _of_one_point(plan: Plan, cap: int | None) -> Slots:
    tps, batch = plan.decode.throughput_at_slo_tokens_per_s, plan.decode.max_batch_size_at_slo
    if tps is None:
        raise PlanError(
            "decode.throughput_at_slo_tokens_per_s: missing, needed to size (or decode.curve)."
        )
    if batch is not None and 1000 * batch / tps > UNITS * plan.slo.tpot_p99_ms:
        raise PlanError(
            f"decode.throughput_at_slo_tokens_per_s: {batch} requests at {tps:g} tokens/s are "
            f"{1000 * batch / tps:.0f} ms a token, but slo.tpot_p99_ms is {plan.slo.tpot_p99_ms:g} (tokens/s of one "
            "request, where those of the whole instance are asked for?)."
        )
    if batch is not None and cap is not None and cap < batch:
        return Slots(cap, tps * cap / batch, None)  # a smaller batch has shorter steps, not longer
    return Slots(batch, tps, None)
