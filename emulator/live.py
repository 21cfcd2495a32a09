"""A cluster in real time: an event loop plays what is due, and hands the tokens out."""

import asyncio
import time
from math import inf

from emulator.cluster import Cluster, Listener
from emulator.decode import Decode
from emulator.model import Deployment, Engine, Request
from emulator.telemetry import Telemetry

# On a machine that is too slow, playing must not keep connections from being served for longer.
TURN_S = 0.005


class LiveCluster:
    """Each request's ``client`` gets ``produce(tokens so far)`` after steps, and ``end()``."""

    def __init__(self, engine: Engine, deployment: Deployment, seed: int) -> None:
        self.telemetry = Telemetry()
        listener = Listener(self._on_play, self._on_end)
        self.cluster = Cluster(engine, deployment, seed, True, listener)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = inf
        self._played_s = 0.0

    def submit(self, request: Request) -> None:
        """It comes in when it was read, so that ``simulate`` with these moments gives this run."""
        self.cluster.expect(request, max(request.received_s, self._played_s))
        self._set_timer()

    def abort(self, request: Request, outcome: str) -> None:
        """The client has gone, or a fault has struck."""
        self.cluster.abort(request, self._now(), outcome)
        self._set_timer()

    def change(self, deployment: Deployment) -> None:
        """Another deployment from now on; what came before is played first."""
        self._played_s = time.monotonic()
        self.cluster.advance(self._played_s)
        self.cluster.apply(deployment, self._played_s)
        self._set_timer()

    def _now(self) -> float:
        """The clock, or the moment up to which all is played when that lags behind."""
        now = time.monotonic()
        return now if self.cluster.next_event_s() > now else self._played_s

    def _set_timer(self) -> None:
        due_s = self.cluster.next_event_s()
        if due_s == self._timer_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = due_s
        self._timer = self._loop.call_at(due_s, self._tick) if due_s < inf else None

    def _tick(self) -> None:
        now = time.monotonic()
        self.telemetry.tick_late_s.observe(now - self._timer_s)
        self._timer, self._timer_s = None, inf
        turn_ends_s = now + TURN_S
        while (due_s := self.cluster.next_event_s()) <= now:
            self._played_s = due_s
            self.cluster.advance(due_s)
            if time.monotonic() > turn_ends_s:
                break
        self._set_timer()

    def _on_play(self, decode: Decode) -> None:
        step = decode.step_no
        for request, start in decode.running.items():
            request.client.produce(step - start)
        self.telemetry.on_play(decode)

    def _on_end(self, request: Request) -> None:
        request.client.end()
        request.client = None
        self.telemetry.on_end(request)
