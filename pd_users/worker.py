"""The worker's end of a run: takes deals from the master, walks them, reports, drains.

In a local run this and the conductor live in one process and talk through the same messages.
"""

from locust.env import Environment
from locust.rpc import Message
from locust.runners import LocalRunner

import gc
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from pd_users import VERSION
from pd_users.deal import Deal, Fence, Hand
from pd_users.health import Health
from pd_users.metrics import Recorder
from pd_users.schedule import Dispatcher
from pd_users.sender import Sender
from pd_users.spec import RunSpec
from workloads.arrivals import Arrival
from workloads.errors import ConfigError

REPORT_S = 1.0
SIGTERM_DRAIN_S = 5.0
GROUP_S = 1.0  # for the leader to hear of a signal that this worker has heard of

log = logging.getLogger(__name__)


def machine_id() -> str:
    """Equal for processes that share one monotonic clock."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else f"pid-{os.getpid()}"


class Worker:
    """Everything one worker does for the conductor; one object a process, one ``_Part`` a run."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._runner: Any = environment.runner
        self._part: _Part | None = None
        self._leaving = False
        self._drain_ordered = Event()
        runner: Any = environment.runner
        for name, listener in (
            ("pd_welcome", self._on_welcome),
            ("pd_sync", self._on_sync),
            ("pd_begin", self._on_begin),
            ("pd_start", self._on_start),
            ("pd_deal", self._on_deal),
            ("pd_commit", self._on_commit),
            ("pd_drain", self._on_drain),
        ):
            runner.register_message(name, listener)
        environment.events.heartbeat_received.add_listener(self._on_heartbeat)
        self._welcome = Event()
        gevent.spawn(self._say_hello)

    # -- talking ---------------------------------------------------------------------------

    def _send(self, name: str, data: dict[str, Any]) -> None:
        self._runner.send_message(name, data)

    def _say_hello(self) -> None:
        """Tell the master that this worker speaks our messages, until it answers."""
        while not self._welcome.is_set():
            self._send("pd_hello", {"version": VERSION, "machine": machine_id()})
            self._welcome.wait(0.5)

    def _on_welcome(self, **_kw: Any) -> None:
        self._welcome.set()

    def _on_sync(self, msg: Message, **_kw: Any) -> None:
        self._send("pd_synced", {**msg.data, "worker_clock_s": time.monotonic()})

    def _on_heartbeat(self, **_kw: Any) -> None:
        if self._part is not None:
            self._part.hear()

    # -- one run ---------------------------------------------------------------------------

    def _on_begin(self, msg: Message, **_kw: Any) -> None:
        gevent.spawn(self._begin, msg.data)

    def _begin(self, data: dict[str, Any]) -> None:
        """Build the traffic of the run (slow for a long trace) and say whether it can begin."""
        self._drain_ordered.clear()
        if self._part is not None:
            self._part.abandon()
        spec = RunSpec.from_message(data["spec"])
        try:
            sender = Sender(self.environment, spec, data["place"])
            if sender.traffic.digest != spec.digest:
                raise ConfigError(
                    f"workload {spec.workload_name!r} differs on this worker (digest "
                    f"{sender.traffic.digest}, the master has {spec.digest}): copy the same file."
                )
        except ConfigError as error:
            self._send("pd_refused", {"run_id": spec.run_id, "why": str(error)})
            return
        self._part = _Part(self.environment, spec, sender, data, self._send)
        self._send("pd_begun", {"run_id": spec.run_id})

    def _on_start(self, msg: Message, **_kw: Any) -> None:
        if (part := self._of(msg)) is not None:
            part.start(msg.data["start_clock_s"])

    def _on_deal(self, msg: Message, **_kw: Any) -> None:
        part = self._of(msg)
        deal = Deal(**msg.data["deal"])
        if part is not None and part.propose(deal):
            self._send("pd_dealt", {"run_id": part.spec.run_id, "epoch": deal.epoch})

    def _on_commit(self, msg: Message, **_kw: Any) -> None:
        if (part := self._of(msg)) is not None:
            part.commit(msg.data["epoch"])

    def _on_drain(self, msg: Message, **_kw: Any) -> None:
        if (part := self._of(msg)) is not None:
            self._drain_ordered.set()
            gevent.spawn(part.drain, msg.data["stop_at_s"], msg.data["timeout_s"])

    def _of(self, msg: Message) -> "_Part | None":
        part = self._part
        return part if part is not None and part.spec.run_id == msg.data["run_id"] else None

    # -- signals ---------------------------------------------------------------------------

    def on_sigint(self) -> None:
        """Ctrl-C reaches a whole process group: the first one is left to the leader's drain.

        A worker that stands alone (another machine, or no leader any more) leaves on it: it hands
        in what it has, and the leader deals its arrivals to the others.
        """
        if self._leaving:
            if self._part is not None:
                gevent.spawn(self._part.drain, self._part.now(), 0.0)
            return
        self._leaving = True
        gevent.spawn(self._leave_and_quit)

    def _leave_and_quit(self) -> None:
        part = self._part
        # When the whole group got the signal, the leader's order comes in a moment: until then
        # arrivals go on, so that none falls due between this stop and the leader's.
        if not self._drain_ordered.wait(GROUP_S):
            self._leave(part.spec.options.drain_timeout_s if part is not None else 0.0)
        # The leader quits its workers when it ends; one that lives on goes without this one.
        if not self._drain_ordered.wait(2.0):
            self._runner.quit()

    def on_quitting(self, **_kw: Any) -> None:
        """SIGTERM, or the leader's order to quit: nothing that was measured stays behind."""
        self._leave(SIGTERM_DRAIN_S)

    def _leave(self, timeout_s: float) -> None:
        part = self._part
        if part is not None and not part.drained:
            self._send("pd_leaving", {"run_id": part.spec.run_id})
            part.drain(part.now(), timeout_s)


class _Part:
    """One worker's part of one run."""

    def __init__(
        self,
        environment: Environment,
        spec: RunSpec,
        sender: Sender,
        data: dict[str, Any],
        send: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.spec = spec
        self._drained = Event()
        self._send = send
        self._start_clock_s = float("inf")
        self._recorder = Recorder(environment)
        self._health = Health()
        local = isinstance(environment.runner, LocalRunner)
        self._sender = sender
        self._dispatcher = Dispatcher(
            traffic=sender.traffic,
            hand=Hand(Deal(**data["deal"])),
            window_s=spec.window_s,
            now=self.now,
            perform=self._perform,
            unsent=self._unsent,
            get_ready=sender.get_ready,
            fence=None if local else Fence(heard=0.0, ticked=0.0),
            on_fenced=self._ask_for_cards,
        )
        self._asked_at_s = float("-inf")
        self._walk: gevent.Greenlet | None = None
        self._reporter: gevent.Greenlet | None = None
        self._draining = False

    def now(self) -> float:
        """Seconds since the start of the run; negative before."""
        return time.monotonic() - self._start_clock_s

    def _perform(self, arrival: Arrival) -> None:
        self._sender.perform(arrival, self._start_clock_s, self._recorder)

    def _unsent(self, arrival: Arrival) -> None:
        self._recorder.add(self._sender.unsent(arrival))

    def start(self, start_clock_s: float) -> None:
        """The moment of the start is known, on this worker's monotonic clock."""
        self._start_clock_s = start_clock_s
        if self._dispatcher.fence is not None:
            self._dispatcher.fence.lower(self.now())
        self._health.start()
        gc.collect()
        gc.freeze()  # what is there by now stays: the collector need not walk it while streams run
        self._walk = gevent.spawn(self._dispatcher.walk)
        self._reporter = gevent.spawn(self._report_for_ever)

    def hear(self) -> None:
        """The master gave a sign of life."""
        if self._dispatcher.fence is not None:
            self._dispatcher.fence.beat(self.now())

    def propose(self, deal: Deal) -> bool:
        """Pass a proposed deal on."""
        return self._dispatcher.propose(deal)

    def commit(self, epoch: int) -> None:
        """All members have said yes: the proposed deal holds."""
        self._dispatcher.commit(epoch)

    def _ask_for_cards(self) -> None:
        """Fenced: sending has stopped; once the master is heard again, a new deal is asked for."""
        fence = self._dispatcher.fence
        now = self.now()
        if fence is not None and now - fence.heard < 1.0 and now - self._asked_at_s > 1.0:
            self._asked_at_s = now
            self._send("pd_fenced", {"run_id": self.spec.run_id})
        elif now - self._asked_at_s > 30.0:
            self._asked_at_s = now
            log.error("The master has not been heard for 3 s: sending has stopped.")

    def _report_for_ever(self) -> None:
        while True:
            gevent.sleep(REPORT_S)
            self._report()

    def _report(self) -> None:
        in_flight = len(self._dispatcher.in_flight)
        report = {"run_id": self.spec.run_id, "in_flight": in_flight, **self._recorder.take()}
        self._send("pd_records", report)

    def drain(self, stop_at_s: float, timeout_s: float) -> None:
        """Stop sending, wait for what is in flight, hand in the last records and the health.

        Ordered again with a shorter time, it cuts the first wait short; returns when all is done.
        """
        self._dispatcher.stop(stop_at_s)
        if self._draining:
            self._dispatcher.drain(timeout_s)
            self._drained.wait()
            return
        self._draining = True
        if self._walk is not None:
            self._walk.join()
        self._dispatcher.drain(timeout_s)
        self.abandon()
        self._report()
        facts = self._health.summary(self._sender.client_facts())
        self._send("pd_drained", {"run_id": self.spec.run_id, "health": facts})
        self._drained.set()

    @property
    def drained(self) -> bool:
        """Whether everything was handed in."""
        return bool(self._drained.is_set())

    def abandon(self) -> None:
        """End all greenlets of this part; nothing more is sent or reported."""
        for greenlet in (self._walk, self._reporter):
            if greenlet is not None and not greenlet.ready():
                greenlet.kill(block=False)
        self._dispatcher.in_flight.kill(block=False)
        self._sender.close()
