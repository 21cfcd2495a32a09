"""Where records gather: on a worker until the next report, on the master until the end of the run.

Locust's rows (TTFT, TPOT, ITL beside the request's own) are for the eye: its percentiles are
rounded to two digits. The planner gets the exact records.
"""

from locust.env import Environment

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from pd_users import wire
from pd_users.itl import GapSketch, count_gaps
from pd_users.records import OK, UNFINISHED, UNSENT, RequestRecord


class RequestError(Exception):
    """A failure by name, as Locust's failure table shows it."""


class Recorder:
    """The worker's end: Locust rows at once, records and gap counts in the next report."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._rows: list[RequestRecord] = []
        self._gaps: Counter[int] = Counter()

    def add(self, record: RequestRecord, gaps_s: Sequence[float] = (), evidence: str = "") -> None:
        """Take in one finished request."""
        self._rows.append(record)
        count_gaps(gaps_s, self._gaps)
        if record.outcome not in (UNSENT, UNFINISHED):
            self._show(record, gaps_s, evidence)

    def _show(self, record: RequestRecord, gaps_s: Sequence[float], evidence: str) -> None:
        """The rows a Locust user expects, past the request event, which would count thrice."""
        failed = None if record.outcome == OK else RequestError(f"{record.outcome}: {evidence}")
        self._environment.events.request.fire(
            request_type="POST",
            name=record.class_name,
            response_time=(record.done_s - record.sent_s) * 1000,
            response_length=max(record.output_tokens, 0),
            exception=failed,
            context={},
        )
        if failed is not None:
            return
        entries: Any = self._environment.stats.entries
        entries[(record.class_name, "TTFT")].log(record.ttft_s * 1000, 0)
        if np.isfinite(record.tpot_s):
            entries[(record.class_name, "TPOT")].log(record.tpot_s * 1000, 0)
        if len(gaps_s):
            entries[(record.class_name, "ITL")].log(float(np.mean(gaps_s)) * 1000, 0)

    def take(self) -> dict[str, Any]:
        """What has not been reported yet, ready for the wire; ``rows`` is None without news."""
        if not self._rows:
            return {"rows": None, "gaps": []}
        rows, self._rows = self._rows, []
        gaps, self._gaps = self._gaps, Counter()
        return {"rows": wire.pack(rows), "gaps": list(gaps.items())}


class Collector:
    """The master's end: every record of the run."""

    def __init__(self, seed: int = 0) -> None:
        self._batches: list[wire.Columns] = []
        self._rng = np.random.default_rng(seed)
        self.gaps = GapSketch()
        self.seen = 0
        self.outcomes: Counter[str] = Counter()

    def add(self, report: dict[str, Any]) -> wire.Columns:
        """Take in one worker's report; its columns, for whoever watches the run."""
        batch = wire.unpack(report["rows"])
        self._batches.append(batch)
        self.gaps.add(dict(report["gaps"]))
        self.seen += len(batch["index"])
        self.outcomes.update(batch["outcome"].tolist())
        return batch

    def columns(self) -> wire.Columns:
        """All records so far."""
        self._batches = [wire.concatenate(self._batches)] if self._batches else []
        return self._batches[0] if self._batches else wire.concatenate([])
