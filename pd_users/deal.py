"""Who sends which arrivals: the cards of one run, and how they are dealt anew. Pure.

A deal says: from second ``from_s`` of the run on, worker ``place`` of ``places`` takes every
``places``-th arrival. The first deal starts at 0. A new one (a worker joined, left or was lost)
is first proposed to all its members, and committed when every one has said yes; a member that
said yes and hears nothing more holds all arrivals from ``from_s`` on. So no arrival is ever taken
under two deals: whoever takes it under the new one knows that all others have let go of it, and a
worker that is not a member is fenced by its own clock (see ``Fence``) before the deal begins.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

FENCE_S = 3.0  # a worker that has not heard the master for so long stops sending
LOST_S = 5.0  # the master deals anew when a worker has been silent for so long; more than FENCE_S
CUT_LEAD_S = 1.0  # a new deal begins so long after it was proposed


@dataclass(frozen=True, slots=True)
class Deal:
    """One worker's hand: every ``places``-th arrival due from ``from_s`` on."""

    epoch: int
    place: int
    places: int
    slots: int
    from_s: float = 0.0


def shares(total: int, places: int) -> list[int]:
    """``total`` concurrency slots over ``places`` workers, none empty, as even as can be."""
    return [max(1, (total + places - 1 - k) // places) for k in range(places)]


@dataclass
class Fence:
    """Says when a worker must stop sending: the master is silent, or the own clock jumped.

    ``beat`` is called with each sign of life of the master, ``tick`` at least twice a second;
    both take the worker's monotonic clock. Once up, only a new deal takes it down.
    """

    heard: float
    ticked: float
    up: bool = False

    def beat(self, now: float) -> None:
        """The master was heard."""
        self.heard = now

    def tick(self, now: float) -> bool:
        """Whether the worker is fenced now."""
        if now - self.heard >= FENCE_S or now - self.ticked >= FENCE_S:
            self.up = True
        self.ticked = now
        return self.up

    def lower(self, now: float) -> None:
        """A new deal came in."""
        self.up, self.heard, self.ticked = False, now, now


@dataclass
class Hand:
    """The deals of one worker: the one in force, and one that may be proposed."""

    deal: Deal
    proposed: Deal | None = None

    def propose(self, deal: Deal) -> bool:
        """Take note of a proposal; whether the worker says yes (an old one it refuses)."""
        if deal.epoch <= self.deal.epoch:
            return False
        self.proposed = deal
        return True

    def commit(self, epoch: int) -> Deal | None:
        """The proposal becomes the deal in force; None when it is not the one proposed."""
        if self.proposed is None or self.proposed.epoch != epoch:
            return None
        self.deal, self.proposed = self.proposed, None
        return self.deal

    def holds(self, due_s: float) -> bool:
        """Whether an arrival must wait for a proposal to be decided."""
        return self.proposed is not None and due_s >= self.proposed.from_s


@dataclass
class Table:
    """The master's side: who sits at the table, and the proposal that is being asked around."""

    members: tuple[str, ...]
    epoch: int = 0
    asked: dict[str, bool] = field(default_factory=dict)

    def propose(
        self, members: Iterable[str], slots: int, from_s: float
    ) -> Iterator[tuple[str, Deal]]:
        """A new deal for ``members``, to be sent to each."""
        self.members = tuple(members)
        self.epoch += 1
        self.asked = dict.fromkeys(self.members, False)
        for place, (member, share) in enumerate(
            zip(self.members, shares(slots, len(self.members)), strict=True)
        ):
            yield member, Deal(self.epoch, place, len(self.members), share, from_s)

    def agree(self, member: str, epoch: int) -> bool:
        """``member`` said yes to ``epoch``; whether all have now."""
        if epoch == self.epoch and member in self.asked:
            self.asked[member] = True
        return epoch == self.epoch and bool(self.asked) and all(self.asked.values())
