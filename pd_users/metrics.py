"""Where records gather: on a worker until the next report, on the master until the end of the run.

Locust's rows (TTFT, TPOT, ITL beside the request's own) are for the eye: its percentiles are
rounded to two digits. The planner gets the exact records.
"""

from locust.env import Environment

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.ma
from numpy.typing import NDArray

from pd_users import wire
from pd_users.itl import GapSketch, count_gaps
from pd_users.records import OK, UNFINISHED, UNSENT, RequestRecord

MAX_RECORDS = 5_000_000  # beyond, the master keeps a uniform sample and exact counts


class RequestError(Exception):
    """A failure by name, as Locust's failure table shows it."""


class Recorder:
    """The worker's end: Locust rows at once, records and gap counts in the next report."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._rows: list[RequestRecord] = []
        self._gaps: Counter[int] = Counter()
        self._shared = np.zeros(
            2, np.int64
        )  # tokens shared on purpose, prompt tokens; of successes

    def add(
        self,
        record: RequestRecord,
        gaps_s: Sequence[float] = (),
        evidence: str = "",
        shared_tokens: int = 0,
    ) -> None:
        """Take in one finished request."""
        self._rows.append(record)
        if record.outcome == OK:
            self._shared += (shared_tokens, record.planned_input_tokens)
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
            return {"rows": None, "gaps": [], "shared": [0, 0]}
        rows, self._rows = self._rows, []
        gaps, self._gaps = self._gaps, Counter()
        shared, self._shared = self._shared.tolist(), np.zeros(2, np.int64)
        return {"rows": wire.pack(rows), "gaps": list(gaps.items()), "shared": shared}


class Collector:
    """The master's end: every record of the run; of a very long one a uniform sample, exact counts."""

    def __init__(self, seed: int = 0, limit: int = MAX_RECORDS) -> None:
        self._batches: list[wire.Columns] = []
        self._rng = np.random.default_rng(seed)
        self._limit = limit
        self._share = 1.0  # of the rows that are kept
        # By number: has it been reported? Later turns of conversations have numbers from 2^32 on,
        # so there is one row of flags for each multiple of 2^32.
        self._seen: dict[int, NDArray[np.bool_]] = {}
        self._kept = 0
        self.gaps = GapSketch()
        self.ttft = GapSketch()  # of all successes, also where the records are a sample
        self.tpot = GapSketch()
        self.reported = 0  # rows, without the duplicates
        self.duplicates = 0
        self.outcomes: Counter[str] = Counter()
        self._shared = np.zeros(2, np.int64)

    def add(self, report: dict[str, Any]) -> wire.Columns:
        """Take in one worker's report; its columns, for whoever watches the run."""
        batch = self._new(wire.unpack(report["rows"]))
        self.gaps.add(dict(report["gaps"]))
        self._shared += np.array(report.get("shared", (0, 0)), np.int64)
        self.reported += len(batch["index"])
        self.outcomes.update(batch["outcome"].tolist())
        self._sketch(_rows(batch, batch["outcome"] == OK))
        self._keep(batch)
        return batch

    def _new(self, batch: wire.Columns) -> wire.Columns:
        """Without the rows of arrivals that were reported before: of two the first stands."""
        index = batch["index"]
        _, first = np.unique(index, return_index=True)
        fresh = np.zeros(len(index), np.bool_)
        fresh[first] = ~self.is_reported(index[first])
        for turn in np.unique(index >> 32).tolist():
            low = index[index >> 32 == turn] & 0xFFFFFFFF
            flags, top = self._seen.get(turn, np.zeros(1 << 10, np.bool_)), int(low.max()) + 1
            if top > len(flags):
                flags = np.concatenate([flags, np.zeros(2 * top - len(flags), np.bool_)])
            flags[low] = True
            self._seen[turn] = flags
        self.duplicates += int(len(index) - fresh.sum())
        return batch if fresh.all() else _rows(batch, fresh)

    def _sketch(self, ok: wire.Columns) -> None:
        spread = ok["output_tokens"] - ok["n_first"]
        span_s = (ok["last_token_s"] - ok["first_token_s"])[spread > 0]
        for sketch, seconds in (
            (self.ttft, ok["first_token_s"] - ok["due_s"]),
            (self.tpot, span_s / spread[spread > 0]),
        ):
            counts: Counter[int] = Counter()
            count_gaps(seconds[np.isfinite(seconds)].tolist(), counts)
            sketch.add(counts)

    def _keep(self, batch: wire.Columns) -> None:
        """Every row is kept with the same chance, whenever it came."""
        if self._share < 1:
            batch = _rows(batch, self._rng.random(len(batch["index"])) < self._share)
        self._batches.append(batch)
        self._kept += len(batch["index"])
        while self._kept > self._limit:
            whole = self.columns()
            self._batches = [_rows(whole, self._rng.random(self._kept) < 0.5)]
            self._kept = len(self._batches[0]["index"])
            self._share /= 2

    @property
    def shared_rate(self) -> float | None:
        """Share of the prompt tokens of all successes that earlier requests or pools had, too."""
        shared, whole = self._shared.tolist()
        return shared / whole if whole else None

    @property
    def sampled_share(self) -> float:
        """The share of rows that was kept; 1: all of them."""
        return self._share

    def is_reported(self, index: NDArray[Any]) -> NDArray[np.bool_]:
        """Which arrivals have come back."""
        reported = np.zeros(len(index), np.bool_)
        for turn in np.unique(index >> 32).tolist():
            if (flags := self._seen.get(turn)) is not None:
                mine = np.flatnonzero(index >> 32 == turn)
                low = index[mine] & 0xFFFFFFFF
                known = low < len(flags)
                reported[mine[known]] = flags[low[known]]
        return reported

    def columns(self) -> wire.Columns:
        """The rows that are kept."""
        self._batches = [wire.concatenate(self._batches)] if self._batches else []
        return self._batches[0] if self._batches else wire.concatenate([])


def _rows(columns: wire.Columns, flags: NDArray[np.bool_]) -> wire.Columns:
    return {name: column[flags] for name, column in columns.items()}
