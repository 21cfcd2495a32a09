"""The dispatcher of one worker: walks its hand of the schedule and starts each arrival when due.

Open loop: an arrival goes out at its moment whether or not earlier ones came back; only when all
``slots`` are taken does it wait, and its lag grows. Requests run in greenlets of their own, never
in those of Locust's users, which Locust kills whenever a worker joins, heals or leaves.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from gevent.event import Event
from gevent.pool import Group

from pd_users.deal import Deal, Fence, Hand
from pd_users.fine_timer import FineTimer
from workloads.arrivals import Arrival

TICK_S = 0.5  # the longest nap: the fence wants to be looked at twice a second


class Traffic(Protocol):
    """What the dispatcher needs to know of the traffic of a run."""

    def stripe(self, place: int, places: int, from_s: float) -> Iterator[Arrival]:
        """The arrivals of one place of a deal, in order of their due moment."""

    def follow_up(self, arrival: Arrival, done_s: float) -> Arrival | None:
        """The next turn of the conversation that ``arrival`` belongs to."""


@dataclass
class Dispatcher:
    """One worker's walk through one run.

    ``now`` is seconds since the start of the run. ``perform`` sends one arrival and records it,
    also when its greenlet is killed; ``unsent`` is told of those that never went out. ``get_ready``
    is called ahead of the due moment, so that building a prompt makes nothing late.
    """

    traffic: Traffic
    hand: Hand
    window_s: float
    now: Callable[[], float]
    perform: Callable[[Arrival], None]
    unsent: Callable[[Arrival], None]
    get_ready: Callable[[Arrival], None] = lambda _arrival: None
    fence: Fence | None = None
    on_fenced: Callable[[], None] = lambda: None
    in_flight: Group = field(default_factory=Group)
    stopped_at_s: float = inf

    def __post_init__(self) -> None:
        self._wake = Event()
        self._timer = FineTimer(self._wake)
        self._starved = False
        self._ready = -1  # number of the arrival that was got ready last
        self._coming: deque[Deal] = deque()  # committed deals that have not begun
        self._turns: list[tuple[float, int, Arrival]] = []  # follow-up turns, by due moment
        self._begin(self.hand.deal)

    # -- what others tell the dispatcher -------------------------------------------------

    def propose(self, deal: Deal) -> bool:
        """A new deal is proposed; whether it is taken note of."""
        return self.hand.propose(deal)

    def commit(self, epoch: int) -> None:
        """The proposed deal holds: from its ``from_s`` on its stripe is walked."""
        if deal := self.hand.commit(epoch):
            self._coming.append(deal)
            self._wake.set()

    def stop(self, at_s: float) -> None:
        """No more arrivals; those due by ``at_s`` and still here become ``unsent``."""
        self.stopped_at_s = min(self.stopped_at_s, at_s)
        self._wake.set()

    def drain(self, timeout_s: float) -> None:
        """Wait for what is in flight, at most so long; the rest is cut off and recorded."""
        self.in_flight.join(timeout=timeout_s)
        self.in_flight.kill()

    # -- the walk -------------------------------------------------------------------------

    def walk(self) -> None:
        """Send until the window ends or ``stop`` is called, then account for what was not sent."""
        try:
            while self.now() < min(self.stopped_at_s, self.window_s):
                nap_s = self._step()
                if nap_s > 0:
                    self._timer.wait(nap_s, TICK_S)
        finally:
            self._timer.close()
        if self.fence is not None and self.fence.tick(self.now()):
            return  # asleep over the end: others may have been dealt what fell due meanwhile
        end_s = min(self.stopped_at_s, self.window_s)
        while (arrival := self._take(end_s)) is not None:
            if self._may_start(arrival.due_s):  # due in the last moment, not for want of a slot
                self.in_flight.spawn(self._run, arrival)
            else:
                self.unsent(arrival)

    def _step(self) -> float:
        """Start the next arrival if it may start now; else how long to nap before looking again."""
        if self.fence is not None and self.fence.tick(self.now()):
            return self._fenced()
        due_s = self._next_due_s()
        wait_s = min(due_s, self.window_s) - self.now()
        if wait_s > 0:
            if self._head is not None and self._head.index != self._ready:
                self._ready = self._head.index
                self.get_ready(self._head)
                return min(due_s, self.window_s) - self.now()
            return wait_s
        if not self._may_start(due_s):
            self._starved = True
            return TICK_S
        arrival = self._take(inf)
        if arrival is not None:
            self.in_flight.spawn(self._run, arrival)
        return 0.0

    def _may_start(self, due_s: float) -> bool:
        fenced = self.fence is not None and self.fence.up
        free = len(self.in_flight) < self.hand.deal.slots
        return free and not fenced and not self.hand.holds(due_s)

    def _fenced(self) -> float:
        """Up goes the fence: what falls due is let go, until a new deal begins."""
        self.on_fenced()
        if self._coming and self.fence is not None:
            self._begin(self._coming.popleft())
            self.fence.lower(self.now())
            return 0.0
        return TICK_S

    def _run(self, arrival: Arrival) -> None:
        self.perform(arrival)
        turn = self.traffic.follow_up(arrival, self.now())
        if turn is not None:
            heapq.heappush(self._turns, (turn.due_s, turn.index, turn))
            self._wake.set()
        if self._starved:
            self._starved = False
            self._wake.set()

    # -- the hand --------------------------------------------------------------------------

    def _begin(self, deal: Deal) -> None:
        self._stripe = self.traffic.stripe(deal.place, deal.places, deal.from_s)
        self._head = next(self._stripe, None)

    def _peek(self) -> Arrival | None:
        """The next arrival of the stripe, after the switch to a deal that begins by then."""
        while self._coming and (self._head is None or self._head.due_s >= self._coming[0].from_s):
            self._begin(self._coming.popleft())
        return self._head

    def _next_due_s(self) -> float:
        head = self._peek()
        return min(head.due_s if head else inf, self._turns[0][0] if self._turns else inf)

    def _take(self, until_s: float) -> Arrival | None:
        """The next arrival that is due by ``until_s``, taken off the hand."""
        head = self._peek()
        if self._turns and (head is None or self._turns[0][0] <= head.due_s):
            if self._turns[0][0] > until_s:
                return None
            return heapq.heappop(self._turns)[2]
        if head is None or head.due_s > until_s:
            return None
        self._head = next(self._stripe, None)
        return head
