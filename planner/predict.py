"""What a deployment would do with the traffic of a run: its P99s, and the smallest sizes that suffice.

All sizes are compared under the same arrivals (common random numbers): a long run of the same kind,
whose gaps and lengths are drawn in blocks from those that were seen, so that bursts stay bursts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from planner.calibrate import Calibration
from planner.models import DecodeModel, Layout, PrefillModel, Traffic
from planner.pipeline import finish
from planner.play_decode import play_decode
from planner.play_prefill import prefill_s
from planner.records import Floats, Records
from planner.statistics import nearest_rank

TTFT_MARGIN = 0.9  # a planned P99 stays under this share of the SLO
TPOT_MARGIN = 0.97
ADDED = 1.03  # times the TTFT that P makes by itself: D may add as much
NEAR_SLO = 0.97  # of the TTFT SLO, and no more than this in all
DECODE_LIMIT = 0.85  # demand over capacity of D at the largest batch within the SLO
TRUST = 2.0  # times the largest batch seen: how far t(b) is believed
FORECAST = 10_000  # requests
BLOCK = 50
MAX_INSTANCES = 512
SETTLE = 0.05  # of a forecast, until its queues are filled


@dataclass(frozen=True, slots=True)
class Limits:
    """The SLOs, and how close to them a planned deployment may come."""

    ttft_slo_s: float
    tpot_slo_s: float
    ttft_share: float = TTFT_MARGIN
    tpot_share: float = TPOT_MARGIN
    decode_share: float = DECODE_LIMIT

    @property
    def ttft_s(self) -> float:
        """The limit of a predicted P99 TTFT."""
        return self.ttft_share * self.ttft_slo_s

    @property
    def tpot_s(self) -> float:
        """The limit of a predicted P99 TPOT."""
        return self.tpot_share * self.tpot_slo_s


@dataclass(frozen=True, slots=True)
class P99s:
    """Predicted for one layout; utilisations are demand over capacity."""

    ttft_s: float
    tpot_s: float
    slot_wait_s: float
    prefill_utilisation: float
    decode_utilisation: float

    def within(self, limits: Limits) -> bool:
        """Whether both stay in their limits."""
        return self.ttft_s <= limits.ttft_s and (self.tpot_s <= limits.tpot_s)


def drawn_again(
    window: Records, n: int, seed: int = 0, limits: tuple[Floats, Floats] | None = None
) -> Traffic:
    """A long run of the same kind, from all arrivals of the window, sent or not.

    ``limits``: of each arrival's class over the run's.
    """
    gaps = np.diff(window.due_s, prepend=window.due_s[:1])
    rng = np.random.default_rng(seed)
    blocks = np.array_split(np.arange(len(gaps)), max(len(gaps) // BLOCK, 1))
    turns = -(-n // len(gaps))  # in each every block comes once, so that means stay what they were
    order = [blocks[k] for _ in range(turns) for k in rng.permutation(len(blocks))]
    picks = np.concatenate(order)[:n]
    return Traffic(
        np.cumsum(np.maximum(gaps[picks], 0.0)),
        window.effective_tokens[picks],
        window.answer_tokens[picks],
        (limits[0][picks], limits[1][picks]) if limits else None,
    )


@dataclass
class Forecast:
    """Plays deployments under one traffic, each once.

    Where classes have limits of their own, a P99 is that of the times in proportion to them: it is
    within the run's limit when 99 % of all requests are within their own.
    """

    prefill: PrefillModel
    decode: DecodeModel
    traffic: Traffic
    _times: dict[tuple[int, str], Floats] = field(default_factory=dict)
    _p99s: dict[Layout, P99s] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        calibration: Calibration,
        window: Records,
        n: int = FORECAST,
        limits: tuple[Floats, Floats] | None = None,
    ) -> "Forecast":
        """For the traffic of a run."""
        return cls(calibration.prefill, calibration.decode, drawn_again(window, n, 0, limits))

    def faster(self, factor: float) -> "Forecast":
        """The same at another rate."""
        return Forecast(self.prefill, self.decode, self.traffic.faster(factor))

    def prefill_times_s(self, instances: int, routing: str) -> Floats:
        """From arrival to KV on D."""
        key = (instances, routing if instances > 1 else "")
        if key not in self._times:
            self._times[key] = prefill_s(self.prefill, self.traffic, instances, routing)
        return self._times[key]

    def prefill_p99_s(self, instances: int, routing: str) -> float:
        """P99 TTFT with no wait for D but a step; inf beyond P's capacity."""
        if self.prefill.utilisation(self.traffic, instances) >= 1:
            return math.inf
        return self.ttft_p99_s(self.prefill_times_s(instances, routing)) + self.join_s

    @property
    def join_s(self) -> float:
        """The wait for a step of D, at a middling batch."""
        return self.decode.step_s(0.5 * self.decode.seen_batch)

    def floor_s(self) -> float:
        """What no number of P goes below: P99 with nobody before one."""
        service = self.prefill.service_s(self.traffic.input_tokens)
        return self.ttft_p99_s(service) + self.prefill.overhead_s + 0.5 * self.join_s

    def p99s(self, layout: Layout) -> P99s:
        """Of the whole pipeline."""
        if layout not in self._p99s:
            self._p99s[layout] = self._play(layout)
        return self._p99s[layout]

    def _play(self, layout: Layout) -> P99s:
        before_s = self.prefill_times_s(layout.prefill, layout.routing_prefill)
        busy = self.prefill.utilisation(self.traffic, layout.prefill)
        load = self.decode_utilisation(layout)
        seen = play_decode(self.decode, layout, self.traffic, before_s)
        if max(busy, load) < 1:
            seen = finish(self.prefill, self.decode, layout, self.traffic, seen)
        endless = busy >= 1 or load >= 1
        return P99s(
            math.inf if endless else self.ttft_p99_s(seen.ttft_s),
            self.tpot_p99_s(seen.tpot_s),
            math.inf if load >= 1 else self.ttft_p99_s(seen.slot_wait_s),
            busy,
            load,
        )

    def decode_utilisation(self, layout: Layout) -> float:
        """Demand over capacity at the cap."""
        return self.decode.utilisation(self.traffic, layout)

    def tpot_p99_s(self, times_s: Floats) -> float:
        """Of times per output token, in proportion to each one's limit; 0: there is none."""
        if self.traffic.limits is not None:
            times_s = times_s / self.traffic.limits[1]
        seen = times_s[np.isfinite(times_s)]
        return nearest_rank(seen, 0.99) if len(seen) else 0.0

    def ttft_p99_s(self, times_s: Floats) -> float:
        """Of times to first token, in proportion to each one's limit."""
        if self.traffic.limits is not None:
            times_s = times_s / self.traffic.limits[0]
        return nearest_rank(times_s[int(SETTLE * len(times_s)) :], 0.99)


# -- sizes that suffice ------------------------------------------------------------------------------


def smallest_prefill(f: Forecast, routing: str, limit_s: float, at_least: int = 1) -> int | None:
    """Fewest P whose P99 is within the limit when D is no bottleneck; None: none is."""
    if f.floor_s() > limit_s:
        return None
    first = max(at_least, math.ceil(f.prefill.utilisation(f.traffic, 1)))
    for k in _climb(first):
        if f.prefill_p99_s(k, routing) <= limit_s:
            return k
    return None


def _climb(first: int) -> Iterator[int]:
    """One by one, then in larger steps, where one more hardly matters."""
    k = first
    while k <= MAX_INSTANCES:
        yield k
        k += max(1, (k - first) // 8)


def largest_cap(f: Forecast, limits: Limits) -> int:
    """The largest batch that the TPOT SLO allows, as far as t(b) is known; 0: none."""
    known = max(round(TRUST * f.decode.seen_batch), 1)
    return f.decode.largest_batch(limits.tpot_share * limits.tpot_slo_s, known)


def beside(f: Forecast, layout: Layout, limits: Limits, at_most: float = NEAR_SLO) -> Limits:
    """Limits for D: what D adds to the TTFT matters, not what this P makes of it by itself."""
    alone_s = f.prefill_p99_s(layout.prefill, layout.routing_prefill)
    share = max(limits.ttft_share, ADDED * alone_s / limits.ttft_slo_s)
    return replace(limits, ttft_share=min(share, max(at_most, limits.ttft_share)))


def smallest_decode(
    f: Forecast, layout: Layout, limits: Limits, at_least: int = 1
) -> Layout | None:
    """Fewest D, at this cap, with both P99s in their limits and slack; None: no number is enough."""
    limit = min(layout.cap, max(f.decode.largest_batch(limits.tpot_slo_s), 1))
    one = f.decode_utilisation(replace(layout, decode=1, cap=limit))
    first = max(at_least, math.ceil(one / limits.decode_share - 1e-9))
    for d in range(first, min(first + 12, MAX_INSTANCES)):
        there = replace(layout, decode=d)
        if f.p99s(there).within(limits):
            return there
    return None


def better_decode(f: Forecast, now: Layout, limits: Limits, at_least: int = 1) -> Layout | None:
    """Fewest D over the caps that come into question: the present one, and the largest within the SLO.

    Of two that need as many the larger cap, which keeps nobody waiting, unless it is only near.
    """
    caps = {largest_cap(f, limits), now.cap} - {0}
    found = [smallest_decode(f, replace(now, cap=cap), limits, at_least) for cap in caps]
    usable = [there for there in found if there is not None]
    return min(usable, key=lambda t: (t.decode, t.cap != now.cap, -t.cap), default=None)


def enough(
    f: Forecast, now: Layout, limits: Limits, at_least: tuple[int, int] = (1, 1)
) -> Layout | None:
    """Fewest P, then fewest D beside them, with both P99s in their limits; None: none is."""
    p = smallest_prefill(f, now.routing_prefill, limits.ttft_s, at_least[0])
    for more in range(3):
        if p is None:
            return None
        there = better_decode(f, replace(now, prefill=p + more), limits, at_least[1])
        if there is not None:
            return there
    return None


def headroom_rps(f: Forecast, layout: Layout, limits: Limits, n: int = 4000) -> float:
    """The highest rate at which a layout is predicted to hold both SLOs, within 4 %; 0: not even half of it."""
    bare = replace(limits, ttft_share=1.0, tpot_share=1.0)
    short = Forecast(f.prefill, f.decode, f.traffic.first(n))
    low, high = 0.5, 4.0
    if not short.faster(low).p99s(layout).within(bare):
        return 0.0
    while high > 1.04 * low:
        middle = math.sqrt(low * high)
        if short.faster(middle).p99s(layout).within(bare):
            low = middle
        else:
            high = middle
    return low * f.traffic.rate_rps
