"""The load of a scenario: closed loops of one process, every answer kept as a record."""

from locust.env import Environment

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import count

from gevent.event import Event
from gevent.pool import Group

from pd_users.errors import TargetError
from pd_users.metrics import Recorder
from pd_users.prepare import Prepared
from pd_users.records import OK, UNFINISHED, RequestRecord
from pd_users.sender import Sender
from pd_users.target import ChatRequest
from planner.records import Records
from workloads.arrivals import Arrival

TICK_S = 0.05
HOPELESS = 5  # failures in a row, after which a scenario ends


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a scenario; ``request`` sends the very same text again."""

    input_tokens: int
    output_tokens: int
    request: ChatRequest | None = None


class FailingError(TargetError):
    """The target fails request after request."""


class Load:
    """Sends for a scenario, keeps every record, knows the time that is left."""

    def __init__(self, environment: Environment, prepared: Prepared, limit_s: float) -> None:
        self.limit_s = limit_s
        self.rows: list[RequestRecord] = []
        self.stopped = Event()  # by a signal
        self._sender = Sender(environment, prepared.spec, 0)
        self._recorder = Recorder(environment)
        self._start_s = time.monotonic()
        self._numbers = count()
        self._failures: list[str] = []
        self._shared: dict[tuple[int, int], ChatRequest] = {}

    def now(self) -> float:
        """Seconds since the scenario began."""
        return time.monotonic() - self._start_s

    @property
    def over(self) -> bool:
        """Whether the time is up, or somebody wants it to end."""
        return self.stopped.is_set() or self.now() >= self.limit_s

    def shared(self, input_tokens: int, output_tokens: int) -> ChatRequest:
        """The request with this text: the same one each time, so that P has it in its cache."""
        arrival = Arrival(0, 0.0, "shared", input_tokens, output_tokens)
        key = input_tokens, output_tokens
        if key not in self._shared:
            self._shared[key] = self._sender.build(arrival)
        return self._shared[key]

    def send(self, phase: str, ask: Ask) -> RequestRecord:
        """One request, to its end. Raises FailingError after a few failures in a row."""
        arrival = self._arrival(phase, ask)
        record = self._sender.perform(arrival, self._start_s, self._recorder, ask.request)
        self._recorder.take()  # the rows are kept here
        self.rows.append(record)
        if record.outcome == OK:
            self._failures.clear()
        elif record.outcome != UNFINISHED:
            self._failures.append(record.outcome)
        self.check()
        return record

    def check(self) -> None:
        """Raises FailingError when it is hopeless."""
        if len(self._failures) >= HOPELESS:
            raise FailingError(
                f"The last {len(self._failures)} requests failed: {self._failures[-1]}."
            )

    def _arrival(self, phase: str, ask: Ask) -> Arrival:
        return Arrival(
            index=next(self._numbers),
            due_s=self.now(),
            class_name=phase,
            input_tokens=ask.input_tokens,
            output_tokens=ask.output_tokens,
        )

    def closed_loop(
        self, phase: str, slots: int, asks: Callable[[int, int], Ask], done: Callable[[], bool]
    ) -> None:
        """``slots`` requests at any time until ``done`` says so; the rest is then cut off.

        ``asks`` is given the slot and how many it has sent. Raises FailingError.
        """
        group, ended = Group(), Event()

        def one(slot: int) -> None:
            for turn in count():
                if ended.is_set():  # a killed request ends as a record, and this goes on
                    return
                try:
                    self.send(phase, asks(slot, turn))
                except FailingError:
                    return

        for slot in range(slots):
            group.spawn(one, slot)
        try:
            while not done() and len(group):
                self.check()
                self.stopped.wait(TICK_S)
        finally:
            ended.set()
            group.kill()
        self.check()

    def records(self) -> Records:
        """All of them, in order of when they went out."""
        rows = sorted(self.rows, key=lambda r: r.index)
        names = [f.name for f in fields(Records)]
        return Records.from_columns({n: [getattr(r, n) for r in rows] for n in names})

    def close(self) -> None:
        """Close every connection."""
        self._sender.close()
