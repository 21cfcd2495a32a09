"""The dispatcher: open loop, one greenlet an arrival, nothing sent twice, nothing forgotten."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import gevent
import pytest
from gevent.event import Event

from pd_users.deal import Deal, Fence, Hand
from pd_users.records import OK, UNFINISHED, UNSENT, RequestRecord
from pd_users.schedule import Dispatcher
from workloads.arrivals import Arrival

DUE_S = [0.005 * k for k in range(40)]
WINDOW_S = 0.25

pytestmark = pytest.mark.process


def arrival(index: int, due_s: float) -> Arrival:
    return Arrival(index=index, due_s=due_s, class_name="chat", input_tokens=10, output_tokens=5)


@dataclass
class Listed:
    """Arrivals from a list of due moments; a follow-up turn where asked for."""

    due_s: list[float]
    turns: int = 0

    def stripe(self, place: int, places: int, from_s: float) -> Iterator[Arrival]:
        for index, due_s in enumerate(self.due_s):
            if index % places == place and due_s >= from_s:
                yield arrival(index, due_s)

    def follow_up(self, after: Arrival, done_s: float) -> Arrival | None:
        if after.index >= 1000 * self.turns:
            return None
        return arrival(after.index + 1000, done_s + 0.01)


def record_of(a: Arrival, outcome: str, now: float) -> RequestRecord:
    return RequestRecord(
        a.index, 0, a.class_name, a.due_s, a.input_tokens, a.output_tokens, outcome, sent_s=now
    )


class Bench:
    """A dispatcher on real time, and the rows that came out of it."""

    def __init__(
        self,
        traffic: Listed,
        deal: Deal = Deal(1, 0, 1, 100),  # noqa: B008
        serve: Callable[[], None] = lambda: None,
        fence: Fence | None = None,
    ) -> None:
        self.rows: list[RequestRecord] = []
        self.start = time.monotonic()
        self._serve = serve
        self.dispatcher = Dispatcher(
            traffic, Hand(deal), WINDOW_S, self.now, self._perform, self._unsent, fence=fence
        )

    def now(self) -> float:
        return time.monotonic() - self.start

    def _perform(self, a: Arrival) -> None:
        sent_s, outcome = self.now(), UNFINISHED
        try:
            self._serve()
            outcome = OK
        finally:
            self.rows.append(record_of(a, outcome, sent_s))

    def _unsent(self, a: Arrival) -> None:
        self.rows.append(record_of(a, UNSENT, self.now()))

    def run(self) -> list[RequestRecord]:
        self.dispatcher.walk()
        self.dispatcher.drain(1.0)
        return sorted(self.rows, key=lambda r: r.index)


def test_every_arrival_is_sent_once_and_never_early() -> None:
    rows = Bench(Listed(DUE_S)).run()
    assert [r.index for r in rows] == list(range(40))
    assert all(r.outcome == OK and r.lag_s >= 0 for r in rows)


def test_a_slow_answer_delays_nobody() -> None:
    gate = Event()
    bench = Bench(Listed(DUE_S), serve=gate.wait)
    gevent.spawn_later(WINDOW_S, gate.set)
    rows = bench.run()
    assert len(rows) == 40
    assert sorted(r.lag_s for r in rows)[20] < 0.05  # of a walk of 0.2 s in which nobody answered


def test_without_a_free_slot_arrivals_wait_and_end_as_unsent() -> None:
    gate = Event()
    bench = Bench(Listed(DUE_S), Deal(1, 0, 1, slots=3), serve=gate.wait)
    bench.dispatcher.walk()
    gate.set()
    bench.dispatcher.drain(1.0)
    outcomes = [r.outcome for r in sorted(bench.rows, key=lambda r: r.index)]
    assert outcomes == [OK] * 3 + [UNSENT] * 37


def test_what_is_in_flight_at_the_end_of_the_drain_is_unfinished() -> None:
    bench = Bench(Listed(DUE_S[:4]), serve=Event().wait)
    bench.dispatcher.walk()
    bench.dispatcher.drain(0.05)
    assert [r.outcome for r in bench.rows] == [UNFINISHED] * 4


def test_stopping_early_accounts_for_what_was_due_and_no_more() -> None:
    bench = Bench(Listed([0.0, 0.01, 0.2]), Deal(1, 0, 1, slots=1), serve=Event().wait)
    gevent.spawn_later(0.05, bench.dispatcher.stop, 0.05)
    bench.dispatcher.walk()
    bench.dispatcher.drain(0.0)
    assert sorted((r.index, r.outcome) for r in bench.rows) == [(0, UNFINISHED), (1, UNSENT)]


@pytest.mark.parametrize("cut_s", [0.0501, 0.1001])
def test_a_new_deal_takes_over_at_the_cut_without_gap_or_double(cut_s: float) -> None:
    traffic = Listed(DUE_S)
    one, two = Bench(traffic, Deal(1, 0, 2, 50)), Bench(traffic, Deal(1, 1, 2, 50))
    late = Bench(traffic, Deal(0, 0, 1, 50, from_s=WINDOW_S))
    benches = [one, two, late]

    def deal_anew() -> None:
        deals = [Deal(2, k, 3, 50, cut_s) for k in range(3)]
        assert all(b.dispatcher.propose(d) for b, d in zip(benches, deals, strict=True))
        for b in benches:
            b.dispatcher.commit(2)

    gevent.spawn_later(0.02, deal_anew)
    gevent.joinall([gevent.spawn(b.run) for b in benches], raise_error=True)
    assert sorted(r.index for b in benches for r in b.rows) == list(range(40))
    assert late.rows
    assert all(r.due_s >= cut_s for r in late.rows)


def test_an_undecided_proposal_holds_what_is_due_after_the_cut() -> None:
    bench = Bench(Listed(DUE_S))
    bench.dispatcher.propose(Deal(2, 0, 1, 50, from_s=0.1))
    rows = bench.run()
    assert {r.outcome for r in rows if r.due_s < 0.1} == {OK}
    assert {r.outcome for r in rows if r.due_s >= 0.1} == {UNSENT}


def test_a_fenced_worker_sends_nothing_until_a_new_deal() -> None:
    asked: list[float] = []
    bench = Bench(Listed(DUE_S), fence=Fence(heard=0.0, ticked=0.0, up=True))
    bench.dispatcher.on_fenced = lambda: asked.append(bench.now())

    def deal() -> None:
        bench.dispatcher.propose(Deal(2, 0, 1, 50, from_s=0.1))
        bench.dispatcher.commit(2)

    gevent.spawn_later(0.05, deal)
    rows = [r for r in bench.run() if r.outcome == OK]
    assert asked
    assert [r.index for r in rows] == [k for k, due_s in enumerate(DUE_S) if due_s >= 0.1]


def test_a_worker_that_is_fenced_to_the_end_says_nothing_of_what_others_may_have_sent() -> None:
    assert Bench(Listed(DUE_S), fence=Fence(heard=0.0, ticked=0.0, up=True)).run() == []
    asleep = Bench(Listed(DUE_S), fence=Fence(heard=0.0, ticked=-10.0))  # over the whole window
    asleep.start -= 10
    assert asleep.run() == []


def test_the_next_turn_of_a_conversation_is_due_after_the_one_before() -> None:
    rows = Bench(Listed([0.0, 0.01], turns=2)).run()
    assert [r.index for r in rows] == [0, 1, 1000, 1001, 2000, 2001]
    by_index = {r.index: r for r in rows}
    assert by_index[1000].due_s >= by_index[0].sent_s + 0.01
