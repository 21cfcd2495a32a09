"""One run, as the leading process sees it: deal, watch, drain, conclude. Once.

Locust tells the end of a run in many ways (its own stop, the web button, a signal, the last worker
lost), some of them twice; all end in ``finish``, which does its work once and lets every later
caller wait for it.
"""

from locust.runners import LocalRunner

import logging
import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import AsyncResult, Event

from pd_users import VERSION
from pd_users.deal import CUT_LEAD_S, LOST_S, Deal, Table
from pd_users.errors import TargetError
from pd_users.metrics import Collector
from pd_users.seats import Room, Seat
from pd_users.spec import RunSpec

START_LEAD_S = 0.3  # from the last "begun" to the start: a message has long arrived by then
BEGIN_TIMEOUT_S = 60.0  # for the slowest worker to load its workload or trace
SYNC_ROUNDS = 5

log = logging.getLogger(__name__)


class Run:
    """One run, from the first deal to the conclusion."""

    def __init__(
        self,
        conductor: Room,
        spec: RunSpec,
        conclude: Callable[["Run"], None],
        end: Callable[[], None],
    ) -> None:
        self.spec = spec
        self.window_s = spec.window_s  # that of the spec, or the part of it that is wanted so far
        self.collector = Collector(spec.options.seed)
        self.partial_reason = ""
        self.start_clock_s = float("inf")
        self.started_at = ""
        self.stopped_at_s = float("inf")
        self.notes: list[str] = []
        self.is_on = False
        self.participants: set[str] = set()
        self._conductor = conductor
        self._conclude = conclude
        self._end = end
        self._table = Table(())
        self._finished: AsyncResult | None = None
        self._hurry = Event()

    def now(self) -> float:
        """Seconds since the start of the run; negative before."""
        return time.monotonic() - self.start_clock_s

    # -- beginning ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Deal to every worker that is there and fix the common start. Raises TargetError."""
        seats = self._usable()
        for seat in seats:
            seat.begun, seat.refused, seat.drained, seat.leaving = False, "", False, False
            self._ping(seat)
        if len(seats) > self.spec.slots:
            self.notes.append(
                f"{len(seats)} workers share -u {self.spec.slots}: each gets one slot, {len(seats)} in all"
            )
            log.warning("%s.", self.notes[-1])
        for client_id, deal in self._table.propose(
            [s.client_id for s in seats], self.spec.slots, 0.0
        ):
            self._offer(client_id, deal)
        self._wait(lambda: all(s.begun or s.refused for s in seats), BEGIN_TIMEOUT_S)
        if refused := [s for s in seats if s.refused]:
            raise TargetError(f"Worker {refused[0].client_id}: {refused[0].refused}")
        if not all(s.begun for s in seats):
            raise TargetError(f"A worker did not load the workload within {BEGIN_TIMEOUT_S:.0f} s.")
        self.start_clock_s = time.monotonic() + START_LEAD_S
        self.started_at = time.strftime(
            "%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + START_LEAD_S)
        )
        for seat in seats:
            self._start(seat)
        self.is_on = True

    def _usable(self) -> list[Seat]:
        """The workers to begin with, waited for a while. Raises TargetError."""
        deadline = time.monotonic() + 10
        while True:
            seats = [s for s in self._conductor.seated() if s.version == VERSION]
            if seats:
                return seats
            if time.monotonic() > deadline:
                raise TargetError(
                    "No worker that this master can use is connected; start some first."
                )
            gevent.sleep(0.05)

    def _ping(self, seat: Seat) -> None:
        seat.skew_s = 0.0
        for _ in range(SYNC_ROUNDS):
            data = {"run_id": self.spec.run_id, "master_clock_s": time.monotonic()}
            self._conductor.send("pd_sync", data, seat.client_id)
            gevent.sleep(0.002)

    def _offer(self, client_id: str, deal: Deal) -> None:
        data = {"spec": self.spec.to_message(), "deal": _plain(deal), "place": deal.place}
        self._conductor.send("pd_begin", data, client_id)

    def _start(self, seat: Seat) -> None:
        self.participants.add(seat.client_id)
        start_clock_s = self.start_clock_s + seat.offset_s
        data = {"run_id": self.spec.run_id, "start_clock_s": start_clock_s}
        self._conductor.send("pd_start", data, seat.client_id)

    def _wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() >= deadline:
                return False
            gevent.sleep(0.01)
        return True

    # -- while it runs -----------------------------------------------------------------------

    def take_in(self, seat: Seat) -> None:
        """A worker that joined late: it gets the run, then a place from the next deal on."""
        if seat.refused:
            return
        self._ping(seat)
        # A place that no arrival has: it sends nothing until the next deal gives it a real one.
        self._offer(seat.client_id, Deal(0, 0, 1, 1, self.spec.window_s))
        self._wait(lambda: seat.begun or bool(seat.refused), BEGIN_TIMEOUT_S)
        if seat.begun and self.is_on:
            self._start(seat)
            self.deal_anew(f"worker {seat.client_id} joined")

    def look_after(self) -> None:
        """Deal anew without a worker that has been silent for too long."""
        if isinstance(self._conductor.environment.runner, LocalRunner):
            return
        now = time.monotonic()
        seats = self._conductor.seats
        silent = [m for m in self._table.members if now - seats[m].heard_s > LOST_S]
        if silent and len(silent) < len(self._table.members):
            self.deal_anew(f"worker {', '.join(silent)} was lost")

    def deal_anew(self, why: str) -> None:
        """Propose a new deal to every worker that is there; ``agreed`` commits it."""
        now = time.monotonic()
        members = [
            s.client_id
            for s in self._conductor.seated()
            if s.begun and not s.drained and now - s.heard_s <= LOST_S
        ]
        if not members or not self.is_on or self._finished is not None:
            return
        from_s = self.now() + CUT_LEAD_S
        self.notes.append(f"at {self.now():.1f} s {why}; dealt anew from {from_s:.1f} s")
        log.info("Dealing anew: %s.", why)
        for client_id, deal in self._table.propose(members, self.spec.slots, from_s):
            data = {"run_id": self.spec.run_id, "deal": _plain(deal)}
            self._conductor.send("pd_deal", data, client_id)

    def agreed(self, client_id: str, epoch: int) -> None:
        """A worker said yes; when all have, the deal holds."""
        if self._table.agree(client_id, epoch):
            for member in self._table.members:
                data = {"run_id": self.spec.run_id, "epoch": epoch}
                self._conductor.send("pd_commit", data, member)

    def take_records(self, report: dict[str, Any]) -> None:
        """A worker's rows; a run that can only fail is stopped here."""
        if report["rows"] is None:
            return
        batch = self.collector.add(report)
        if not self.spec.options.keep_going and self._finished is None:
            self._alarm(batch["outcome"].tolist())

    def _alarm(self, outcomes: list[str]) -> None:
        """Stop when the key expires, or when the first 20 requests all fail in the same way."""
        counts = self.collector.outcomes
        if "auth" in outcomes and counts["ok"]:
            self.stop_soon("the target refused the key in the middle of the run (auth)")
        elif self.collector.reported >= 20 and len(counts) == 1 and not counts["ok"]:
            name = next(iter(counts))
            if name not in ("unsent", "unfinished"):
                self.stop_soon(f"the first {self.collector.reported} requests all failed: {name}")

    def stop_soon(self, why: str) -> None:
        """End the run from here on, as if the user had stopped it."""
        self.partial_reason = self.partial_reason or why
        log.error("Stopping: %s.", why)
        gevent.spawn(self._end)

    def locust_errors(self) -> list[Any]:
        """Locust's own error report: one entry for each kind of failure, over all workers."""
        return list(self._conductor.environment.stats.errors.values())

    def seats(self) -> list[Seat]:
        """The workers that took part."""
        return [self._conductor.seats[p] for p in sorted(self.participants)]

    def in_flight(self) -> int | None:
        """Requests in flight over all workers, as last reported."""
        counts = [self._conductor.seats[m].in_flight for m in self._table.members]
        return sum(counts) if self.is_on else 0

    # -- the end -----------------------------------------------------------------------------

    @property
    def is_finishing(self) -> bool:
        """Whether the end has begun, and is not over."""
        return self._finished is not None and not self._finished.ready()

    def hurry(self) -> None:
        """A second signal: do not wait for what is in flight any longer."""
        self._hurry.set()

    def finish(self, timeout_s: float, partial_reason: str = "") -> None:
        """Drain all workers, conclude, and return when that is done, whoever asked first."""
        if self._finished is not None:
            self._finished.get()
            return
        self._finished = AsyncResult()
        try:
            self.partial_reason = self.partial_reason or partial_reason
            self.stopped_at_s = min(max(self.now(), 0.0), self.spec.window_s)
            if self.window_s < self.spec.window_s:  # the workers would have gone on
                self.window_s = max(self.window_s, self.stopped_at_s)
            self._drain(timeout_s)
            self.is_on = False
            self._conclude(self)
        finally:
            self.is_on = False
            self._finished.set(None)

    def _drain(self, timeout_s: float) -> None:
        seats = [s for s in self._conductor.seats.values() if s.client_id in self.participants]
        deadline = time.monotonic() + timeout_s + 5
        hurried = False
        ordered: set[str] = set()
        while time.monotonic() < deadline:
            # Also those that were away when the end came, and are back.
            for seat in seats:
                if seat.client_id not in ordered and self._conductor.is_there(seat):
                    self._order_drain(seat, timeout_s)
                    ordered.add(seat.client_id)
            if all(s.drained or self._is_gone(s) for s in seats):
                return
            if self._hurry.is_set() and not hurried:
                hurried, timeout_s, deadline = True, 0.0, time.monotonic() + 3
                ordered.clear()
            gevent.sleep(0.02)
        log.error("Not every worker handed in its last records in time.")

    def _order_drain(self, seat: Seat, timeout_s: float) -> None:
        data = {
            "run_id": self.spec.run_id,
            "stop_at_s": self.stopped_at_s,
            "timeout_s": timeout_s,
        }
        self._conductor.send("pd_drain", data, seat.client_id)

    def _is_gone(self, seat: Seat) -> bool:
        """Silent for so long that nothing will come any more; Locust says "missing" earlier."""
        if isinstance(self._conductor.environment.runner, LocalRunner):
            return False
        return time.monotonic() - seat.heard_s > LOST_S


def _plain(deal: Deal) -> dict[str, Any]:
    return {name: getattr(deal, name) for name in Deal.__slots__}
