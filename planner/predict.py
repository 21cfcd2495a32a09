"""What a deployment would do with the traffic of the run: predicted P99s, and the sizes that suffice."""

import math
from dataclasses import dataclass

import numpy as np

from planner.calibrate import DecodeModel, PrefillModel
from planner.queueing import ps_occupancy
from planner.records import Floats
from planner.statistics import nearest_rank

TTFT_MARGIN = 0.9  # a planned P99 stays under this share of the SLO
DECODE_LIMIT = 0.8  # of the throughput at the cap, or at the largest batch within the SLO
MAX_INSTANCES = 512
FORECAST = 20_000  # arrivals in a forecast
MAX_PRESENT = 4096


@dataclass(frozen=True, slots=True)
class Traffic:
    """Offered traffic in a form that can be played at length."""

    due_s: Floats
    input_tokens: Floats
    output_mean: float
    rate_rps: float

    def forecast(self, seed: int = 0) -> tuple[Floats, Floats]:
        """A long run of the same kind: gaps and lengths drawn anew from those that were seen."""
        rng = np.random.default_rng(seed)
        gaps = np.diff(self.due_s) if len(self.due_s) > 1 else np.array([1 / self.rate_rps])
        return (
            np.cumsum(rng.choice(gaps, FORECAST)),
            rng.choice(self.input_tokens, FORECAST),
        )


def prefill_ttft_p99_s(
    model: PrefillModel, traffic: Traffic, instances: int, routing: str
) -> float:
    """P99 of the P part over a long run."""
    due_s, tokens = traffic.forecast()
    if model.utilisation(due_s, tokens, instances) >= 1:
        return math.inf
    return nearest_rank(model.ttft(due_s, tokens, instances, routing), 0.99)


def floor_ttft_p99_s(model: PrefillModel, traffic: Traffic) -> float:
    """What no number of P can go below: an empty instance for every request."""
    return model.overhead_s + model.slope_s * nearest_rank(traffic.input_tokens, 0.99)


def smallest_prefill(
    model: PrefillModel, traffic: Traffic, routing: str, ttft_slo_s: float, at_least: int = 1
) -> int | None:
    """Fewest instances whose predicted P99 is within 0.9 of the limit; None: none is."""
    if floor_ttft_p99_s(model, traffic) > TTFT_MARGIN * ttft_slo_s:
        return None
    due_s, tokens = traffic.forecast()
    k = max(at_least, math.ceil(model.utilisation(due_s, tokens, 1)))
    while k <= MAX_INSTANCES:
        if prefill_ttft_p99_s(model, traffic, k, routing) <= TTFT_MARGIN * ttft_slo_s:
            return k
        k += 1
    return None


@dataclass(frozen=True, slots=True)
class DecodeState:
    """One decode instance under its share of the traffic."""

    utilisation: float  # demand over throughput at the cap
    tpot_p99_s: float
    slot_wait_p99_s: float


def decode_state(
    model: DecodeModel, traffic: Traffic, instances: int, cap: int, held_s: float = 0.0
) -> DecodeState:
    """Processor sharing with a cap; ``held_s`` is how long a slot is held before decode begins."""
    rate = traffic.rate_rps / instances
    step = model.step_s(cap)
    if step <= 0:
        return DecodeState(0.0, 0.0, 0.0)  # no TPOT was seen: nothing is known of D
    hold = traffic.output_mean * step + held_s
    utilisation = rate * hold / cap
    if utilisation >= 0.999:
        return DecodeState(utilisation, step, math.inf)
    present = np.arange(1, min(max(4 * cap, 64), MAX_PRESENT) + 1)
    batch = np.minimum(present, cap)
    times = model.alpha_s + model.beta_s * batch + held_s / traffic.output_mean
    chance = ps_occupancy(rate, traffic.output_mean, batch / times)
    served = chance[1:] * batch
    cumulated = np.cumsum(served) / served.sum()
    busy = float(batch[min(int(np.searchsorted(cumulated, 0.99)), len(batch) - 1)])
    return DecodeState(utilisation, model.step_s(busy), _slot_wait(chance, cap, hold / cap))


def _slot_wait(chance: Floats, cap: int, gap_s: float) -> float:
    """P99 of the wait for a slot: one departure each ``gap_s`` on average for each one before."""
    tail = chance[cap:]
    waiting = float(tail.sum())
    if waiting <= 0.01:
        return 0.0
    ahead = np.cumsum(tail) / waiting
    k = int(np.searchsorted(ahead, 1 - 0.01 / waiting)) + 1
    return k * gap_s


def smallest_decode(
    model: DecodeModel, traffic: Traffic, cap: int, tpot_slo_s: float, at_least: int = 1
) -> int | None:
    """Fewest instances with demand within 0.8 of the throughput at the cap and P99 TPOT in its limit."""
    if model.step_s(1) > tpot_slo_s:
        return None
    for d in range(at_least, MAX_INSTANCES + 1):
        state = decode_state(model, traffic, d, cap)
        if state.utilisation <= DECODE_LIMIT and state.tpot_p99_s <= tpot_slo_s:
            return d
    return None
