"""Where records gather: on a worker until the next report, on the master until the end of the run.

Locust's rows (TTFT, TPOT, ITL beside the request's own) are for the eye: its percentiles are
rounded to two digits. The planner gets the exact records.
"""

from locust.env import Environment

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.ma  # np.unique would import it in the first report, 70 ms on the event loop
from numpy.typing import NDArray

from pd_users import wire
from pd_users.itl import GapSketch, count_gaps
from pd_users.records import OK, UNFINISHED, UNSENT, RequestRecord

MAX_RECORDS = 5_000_000  # beyond, the master keeps a uniform sample and exact counts
THIN_PARTS = 4  # old batches thinned with each new one, after the share was halved


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
    """The master's end: every record of the run; of a very long one a uniform sample, exact counts.

    Batches are kept as they came: deflated, some 45 bytes a request. While the run is on, its
    figures come from the sketches.
    """

    def __init__(self, seed: int = 0, limit: int = MAX_RECORDS) -> None:
        self._parts: deque[_Part] = deque()
        self._rng = np.random.default_rng(seed)
        self._limit = limit
        self._share = 1.0  # of the rows that are kept
        # By number: has it been reported? Later turns of conversations have numbers from 2^32 on,
        # so there is one row of flags for each multiple of 2^32.
        self._seen: dict[int, NDArray[np.bool_]] = {}
        self.kept = 0  # rows; settled by ``columns``
        self.gaps = GapSketch()
        self.ttft = GapSketch()  # of all successes, also where the records are a sample
        self.tpot = GapSketch()
        self.lag = GapSketch()  # of all that were sent
        self.reported = 0  # rows, without the duplicates
        self.duplicates = 0
        self.outcomes: Counter[str] = Counter()
        self.ok_tokens = 0  # output tokens of all successes
        self._shared = np.zeros(2, np.int64)

    def add(self, report: dict[str, Any]) -> wire.Columns:
        """Take in one worker's report; its columns, for whoever watches the run."""
        blob = report["rows"]
        whole = wire.unpack(blob)
        batch = self._new(whole)
        self.gaps.add(dict(report["gaps"]))
        self._shared += np.array(report.get("shared", (0, 0)), np.int64)
        self.reported += len(batch["index"])
        self.outcomes.update(batch["outcome"].tolist())
        self._sketch(batch)
        self._keep(_Part(len(batch["index"]), blob if batch is whole else wire.pack_columns(batch)))
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

    def _sketch(self, batch: wire.Columns) -> None:
        self.lag.add_s(batch["sent_s"] - batch["due_s"])
        ok = _rows(batch, batch["outcome"] == OK)
        self.ok_tokens += int(ok["output_tokens"].sum())
        self.ttft.add_s(ok["first_token_s"] - ok["due_s"])
        spread = ok["output_tokens"] - ok["n_first"]
        span_s = (ok["last_token_s"] - ok["first_token_s"])[spread > 0]
        self.tpot.add_s(span_s / spread[spread > 0])

    def _keep(self, part: "_Part") -> None:
        """Every row is kept with the same chance, whenever it came.

        Over the limit the share halves. What is kept already is thinned bit by bit: all at once
        would hold the event loop for so long that workers believe the master gone.
        """
        self._parts.append(self._thin(part))
        self.kept += self._parts[-1].n
        for _ in range(min(THIN_PARTS, len(self._parts))):
            if self._parts[0].share == self._share:
                break
            old = self._parts.popleft()
            self._parts.append(self._thin(old))
            self.kept += self._parts[-1].n - old.n
        if self.kept > self._limit and self._parts[0].share == self._share:
            self._share /= 2

    def _thin(self, part: "_Part") -> "_Part":
        """Down to the share that holds now."""
        if part.share == self._share:
            return part
        kept = self._rng.random(part.n) < self._share / part.share
        rows = _rows(wire.unpack(part.blob), kept)
        return _Part(int(kept.sum()), wire.pack_columns(rows), self._share)

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
        """The rows that are kept, unpacked anew at each call."""
        parts = [self._thin(part) for part in self._parts]
        self._parts, self.kept = deque(parts), sum(part.n for part in parts)
        return wire.concatenate([wire.unpack(part.blob) for part in parts])


@dataclass(frozen=True, slots=True)
class _Part:
    """A batch as it is kept, deflated; and the share of its rows that was."""

    n: int
    blob: bytes
    share: float = 1.0


def _rows(columns: wire.Columns, flags: NDArray[np.bool_]) -> wire.Columns:
    return {name: column[flags] for name, column in columns.items()}
