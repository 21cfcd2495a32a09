"""The traffic of a run: one schedule for each PDUser class, merged into one. Needs no Locust.

With k classes, arrival i of class j has the number i * k + j, so numbers are unique and the same
on every worker; the rate is shared out by ``weight``.
"""

import hashlib
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pd_users.options import DEFAULT_WORKLOAD, RunOptions
from pd_users.wire import Columns
from workloads.arrivals import Arrival, Sample, Schedule
from workloads.errors import ConfigError
from workloads.traces import Trace, load_trace
from workloads.workload import Workload, load_workload

Source = Workload | Trace
Limits = tuple[float | None, float | None]  # of TTFT and TPOT, ms


@dataclass(frozen=True, slots=True)
class Share:
    """What one PDUser class asks for."""

    workload: str | None
    weight: float


def load(options: RunOptions, name: str | None) -> Source:
    """The trace or the workload that the options (or a class) name. Raises ConfigError."""
    if options.trace and name is None:
        return load_trace(
            options.trace,
            speed=options.trace_speed,
            limit=options.trace_limit,
            format=options.trace_format,
            skip_bad_rows=options.skip_bad_rows,
            jitter_s=options.trace_jitter_s,
        )
    return load_workload(name or options.workload or DEFAULT_WORKLOAD)


_NONE: Columns = {
    "index": np.zeros(0, "<i8"),
    "due_s": np.zeros(0),
    "planned_input_tokens": np.zeros(0, "<i4"),
    "planned_output_tokens": np.zeros(0, "<i4"),
    "class_name": np.zeros(0, dtype=object),
}


def _limits(workloads: Sequence[Source]) -> dict[str, Limits]:
    """The SLOs of classes that have their own: in the workload, or as one of several workloads."""
    found: dict[str, Limits] = {}
    for w in workloads:
        whole = (w.ttft_p99_ms, w.tpot_p99_ms) if len(workloads) > 1 else (None, None)
        for c in w.classes if isinstance(w, Workload) else ():
            found[c.name] = (c.ttft_p99_ms or whole[0], c.tpot_p99_ms or whole[1])
    return {name: limits for name, limits in found.items() if limits != (None, None)}


class Traffic:
    """Arrivals of all classes, in order of their due moment."""

    def __init__(self, workloads: Sequence[Source], schedules: Sequence[Schedule]) -> None:
        self._schedules = schedules
        self._k = len(schedules)
        self.name = " + ".join(w.name for w in workloads)
        joined = "|".join(w.digest for w in workloads)
        self.digest = hashlib.sha256(joined.encode()).hexdigest()[:16]
        self.limits = _limits(workloads)

    def stripe(self, place: int, places: int, from_s: float = 0.0) -> Iterator[Arrival]:
        """Every ``places``-th arrival of each class, due from ``from_s`` on."""
        parts = [
            self._numbered(j, s.stripe(place, places, from_s))
            for j, s in enumerate(self._schedules)
        ]
        return parts[0] if self._k == 1 else heapq.merge(*parts, key=lambda a: (a.due_s, a.index))

    def _numbered(self, j: int, arrivals: Iterator[Arrival]) -> Iterator[Arrival]:
        if self._k == 1:
            return arrivals
        return (replace(a, index=a.index * self._k + j) for a in arrivals)

    def user_of(self, arrival: Arrival) -> int:
        """Which PDUser class an arrival belongs to."""
        return arrival.index % self._k

    def follow_up(self, arrival: Arrival, done_s: float) -> Arrival | None:
        """The next turn of a conversation, due after its think time; None when there is none."""
        j = self.user_of(arrival)
        plain = replace(arrival, index=arrival.index // self._k)
        turn = self._schedules[j].follow_up(plain, done_s)
        return None if turn is None else replace(turn, index=turn.index * self._k + j)

    def due_until(self, until_s: float) -> Columns:
        """The planned columns of all arrivals that fall due by ``until_s`` (first turns only)."""
        parts = [
            {
                "index": (block.start + np.arange(len(block))) * self._k + j,
                "due_s": block.due_s,
                "planned_input_tokens": block.input_tokens.astype("<i4"),
                "planned_output_tokens": block.output_tokens.astype("<i4"),
                "class_name": np.array(schedule.class_names, dtype=object)[block.class_code],
            }
            for j, schedule in enumerate(self._schedules)
            for block in schedule.between(0.0, np.nextafter(until_s, np.inf))
        ]
        if not parts:
            return {name: column[:0] for name, column in _NONE.items()}
        columns = {name: np.concatenate([p[name] for p in parts]) for name in _NONE}
        order = np.lexsort((columns["index"], columns["due_s"]))
        return {name: column[order] for name, column in columns.items()}

    def sample(self, n: int) -> Sample:
        """About ``n`` requests as a long run would have them, of all classes."""
        whole = max(n // self._k, 1)
        parts = [s.sample(whole) for s in self._schedules]
        return Sample(
            *(np.concatenate([getattr(p, name) for p in parts]) for name in Sample.__slots__)
        )


def build(
    options: RunOptions, shares: Sequence[Share], rate_rps: float | None, window_s: float
) -> Traffic:
    """The traffic for these classes. Raises ConfigError."""
    total = sum(s.weight for s in shares)
    workloads = [load(options, s.workload) for s in shares]
    schedules = []
    for j, (share, workload) in enumerate(zip(shares, workloads, strict=True)):
        whole_rps = rate_rps if rate_rps is not None else workload.rate_rps
        part_rps = whole_rps * share.weight / total if whole_rps is not None else None
        schedules.append(
            workload.schedule(
                seed=options.seed * 1_000_003 + j if j else options.seed,
                window_s=window_s,
                rate_rps=part_rps,
            )
        )
    return Traffic(workloads, schedules)


__all__ = ["ConfigError", "Share", "Traffic", "build", "load"]
