"""The master's (or the local process's) end of the messages: who is there, and what they say."""

from locust.env import Environment
from locust.rpc import Message
from locust.runners import STATE_MISSING, LocalRunner

import logging
import time
from typing import Any

import gevent

from pd_users import VERSION
from pd_users.run import Run
from pd_users.seats import Seat
from pd_users.worker import machine_id

log = logging.getLogger(__name__)


class Conductor:
    """All seats, and the run that is on; one object a process."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._runner: Any = environment.runner
        self.seats: dict[str, Seat] = {}
        self.run: Run | None = None
        runner: Any = environment.runner
        for name, listener in (
            ("pd_hello", self._on_hello),
            ("pd_synced", self._on_synced),
            ("pd_begun", self._on_begun),
            ("pd_refused", self._on_refused),
            ("pd_dealt", self._on_dealt),
            ("pd_fenced", self._on_fenced),
            ("pd_leaving", self._on_leaving),
            ("pd_records", self._on_records),
            ("pd_drained", self._on_drained),
        ):
            runner.register_message(name, listener)
        environment.events.heartbeat_sent.add_listener(self._on_heartbeat)
        gevent.spawn(self._watch)

    # -- who is there ----------------------------------------------------------------------

    def is_there(self, seat: Seat) -> bool:
        """Whether the worker is connected and was heard lately."""
        runner: Any = self.environment.runner
        if isinstance(runner, LocalRunner):
            return True
        client = runner.clients.get(seat.client_id)
        return client is not None and client.state != STATE_MISSING

    def seated(self) -> list[Seat]:
        """The workers that can be dealt to."""
        return [s for s in self.seats.values() if self.is_there(s) and not s.leaving]

    def send(self, name: str, data: dict[str, Any], client_id: str) -> None:
        """A message to one worker."""
        self._runner.send_message(name, data, client_id=client_id)

    def _on_hello(self, msg: Message, **_kw: Any) -> None:
        seat = Seat(msg.node_id, msg.data["version"], msg.data["machine"], time.monotonic())
        if msg.node_id in self.seats:
            return
        self.seats[msg.node_id] = seat
        self.send("pd_welcome", {}, msg.node_id)
        if seat.version != VERSION:
            seat.refused = f"version {seat.version}, the master is {VERSION}"
            log.error("Worker %s is refused: %s.", msg.node_id, seat.refused)
        if self.run is not None and self.run.is_on:
            gevent.spawn(self.run.take_in, seat)

    def _on_heartbeat(self, client_id: str, **_kw: Any) -> None:
        if seat := self.seats.get(client_id):
            seat.heard_s = time.monotonic()

    def _watch(self) -> None:
        """Look after the workers four times a second: a killed one fires no event."""
        while True:
            gevent.sleep(0.25)
            if self.run is not None and self.run.is_on:
                self.run.look_after()

    # -- messages of the run that is on ------------------------------------------------------

    def _in_run(self, msg: Message) -> "tuple[Run, Seat] | None":
        seat, run = self.seats.get(msg.node_id), self.run
        if seat is None or run is None or msg.data["run_id"] != run.spec.run_id:
            return None
        seat.heard_s = time.monotonic()
        return run, seat

    def _on_synced(self, msg: Message, **_kw: Any) -> None:
        now = time.monotonic()
        seat = self.seats.get(msg.node_id)
        if seat is not None:
            rtt_s = now - msg.data["master_clock_s"]
            same = seat.machine == machine_id()
            if same or seat.skew_s == 0.0 or rtt_s / 2 < seat.skew_s:
                seat.skew_s = 0.0 if same else rtt_s / 2
                middle_s = msg.data["master_clock_s"] + rtt_s / 2
                seat.offset_s = 0.0 if same else msg.data["worker_clock_s"] - middle_s

    def _on_begun(self, msg: Message, **_kw: Any) -> None:
        if found := self._in_run(msg):
            found[1].begun = True

    def _on_refused(self, msg: Message, **_kw: Any) -> None:
        if found := self._in_run(msg):
            found[1].refused = msg.data["why"]
            log.error("Worker %s is refused: %s", msg.node_id, msg.data["why"])

    def _on_dealt(self, msg: Message, **_kw: Any) -> None:
        if found := self._in_run(msg):
            found[0].agreed(msg.node_id, msg.data["epoch"])

    def _on_fenced(self, msg: Message, **_kw: Any) -> None:
        if found := self._in_run(msg):
            found[0].deal_anew(f"worker {msg.node_id} had lost touch and is back")

    def _on_leaving(self, msg: Message, **_kw: Any) -> None:
        if found := self._in_run(msg):
            found[1].leaving = True
            found[0].deal_anew(f"worker {msg.node_id} leaves")

    def _on_records(self, msg: Message, **_kw: Any) -> None:
        if found := self._in_run(msg):
            found[1].in_flight = msg.data["in_flight"]
            found[0].take_records(msg.data)

    def _on_drained(self, msg: Message, **_kw: Any) -> None:
        if found := self._in_run(msg):
            found[1].drained = True
            found[1].health = msg.data["health"]
