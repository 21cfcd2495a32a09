"""The part of a run that counts: after the warm-up, on workers that lived; and what went wrong in it."""

from dataclasses import dataclass

import numpy as np

from planner.records import LOST, UNFINISHED, UNSENT, Flags, Floats, Records
from planner.statistics import growth, mser5

MAX_WARMUP_SHARE = 0.2  # of the window: what has not settled by then is no warm-up
LIVES = 3  # a batch is full after about three lives of a request
COMPLETED_SHARE = 0.97  # below, with a backlog that grows, the cluster is saturated


def in_window(records: Records, warmup_s: float) -> Flags:
    """Due after the warm-up, and on a worker that lived to send it."""
    away = (records.outcome == UNSENT) | (records.outcome == LOST)
    return np.asarray((records.due_s >= warmup_s) & ~away)


def last_seen_s(records: Records, stopped_at_s: float) -> float:
    """Until when answers were looked at: the stop, or the last answer in the drain after it."""
    done = records.done_s[np.isfinite(records.done_s)]
    return max(stopped_at_s, float(done.max()) if len(done) else 0.0)


def settled_at(records: Records, end_s: float) -> float:
    """Where the run has settled: three times a request's life, and MSER-5 on the requests in flight."""
    ok = records.where(records.ok)
    if not len(ok):
        return 0.0
    life_s = LIVES * float(np.median(ok.done_s - ok.sent_s))
    times = np.arange(0.0, end_s, max(end_s / 200, 0.05))
    cut = mser5(in_flight(ok, times)) if len(times) else 0
    settled_s = float(times[min(cut, len(times) - 1)]) if len(times) else 0.0
    return round(min(max(life_s, settled_s), MAX_WARMUP_SHARE * end_s), 3)


def in_flight(records: Records, times: Floats) -> Floats:
    """How many of these requests were out at each moment; one that never came back is out for good."""
    begun = np.searchsorted(np.sort(records.sent_s[np.isfinite(records.sent_s)]), times, "right")
    ended = np.searchsorted(np.sort(records.done_s[np.isfinite(records.done_s)]), times, "right")
    return np.asarray(begun - ended, np.float64)


@dataclass(frozen=True, slots=True)
class Missed:
    """Which arrivals of a window missed a limit. ``open`` ones were cut off before it could be told."""

    ttft: Flags
    tpot: Flags
    ttft_open: Flags
    tpot_open: Flags


def missed(
    window: Records, ttft_slo_s: Floats | float, tpot_slo_s: Floats | float, end_s: float
) -> Missed:
    """A failure misses both limits; what was unfinished past a limit misses that one.

    An unfinished request that was still within a limit is neither met nor missed: a pass must hold
    with all of these counted as missed, a fail with none.
    """
    ok, failed = window.ok, window.failed
    unfinished = window.outcome == UNFINISHED
    begun = np.isfinite(window.first_token_s)
    with np.errstate(invalid="ignore"):
        waited_s = np.where(begun, window.ttft_s, end_s - window.due_s)
        ttft = failed | (waited_s > ttft_slo_s)
        allowed_s = window.planned_output_tokens * tpot_slo_s
        dragging = unfinished & begun & (end_s - window.first_token_s > allowed_s)
        tpot = failed | (ok & (window.tpot_s > tpot_slo_s)) | dragging
    return Missed(
        np.asarray(ttft & (ok | unfinished | failed)),
        np.asarray(tpot),
        np.asarray(unfinished & ~begun & ~ttft),
        np.asarray(unfinished & ~tpot),
    )


@dataclass(frozen=True, slots=True)
class Backlog:
    """Whether more comes in than goes out."""

    completed_share: float  # successes that ended in the window, over arrivals in it
    in_flight_mean: float
    in_flight_rise: float
    saturated: bool


def backlog(records: Records, warmup_s: float, end_s: float) -> Backlog:
    """Judged over the sending window after the warm-up; the rise is tested at 99 %."""
    window = records.where(in_window(records, warmup_s))
    times = np.linspace(warmup_s, end_s, 200, endpoint=False)
    sent = records.where(np.isfinite(records.sent_s))
    if len(window) < 20 or end_s <= warmup_s:
        return Backlog(1.0, 0.0, 0.0, saturated=False)
    level = in_flight(sent, times)
    done = sent.ok & (sent.done_s >= warmup_s) & (sent.done_s < end_s)
    share = float(done.sum()) / len(window)
    trend = growth(level)
    timed_out = float(np.isin(window.outcome.astype(str), ("timeout", "stalled")).mean())
    grows = trend.at_least > 0 or timed_out > 1 - COMPLETED_SHARE
    return Backlog(
        share, float(level.mean()), trend.rise, saturated=share < COMPLETED_SHARE and grows
    )
