"""Deals: every arrival belongs to one worker, and a fenced worker stops before others take over."""

from hypothesis import given
from hypothesis import strategies as st

from pd_users.deal import FENCE_S, LOST_S, Deal, Fence, Hand, Table, shares


@given(st.integers(1, 10_000), st.integers(1, 64))
def test_slots_are_shared_out_evenly_and_nobody_goes_without(total: int, places: int) -> None:
    parts = shares(total, places)
    assert len(parts) == places
    assert min(parts) >= 1
    assert max(parts) - min(parts) <= 1
    assert sum(parts) == max(total, places)


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=8))
def test_a_deal_holds_only_when_all_members_have_said_yes(answers: list[str]) -> None:
    table = Table(())
    deals = dict(table.propose(["a", "b", "c"], 9, 4.0))
    assert [d.place for d in deals.values()] == [0, 1, 2]
    said: set[str] = set()
    for member in answers:
        said.add(member)
        assert table.agree(member, table.epoch) == (said == {"a", "b", "c"})


def test_an_answer_to_an_older_proposal_does_not_count() -> None:
    table = Table(())
    list(table.propose(["a"], 1, 0.0))
    list(table.propose(["a", "b"], 2, 3.0))
    assert not table.agree("a", 1)
    assert not table.agree("b", 2)
    assert table.agree("a", 2)


def test_a_worker_that_said_yes_holds_what_is_due_from_the_cut_on() -> None:
    hand = Hand(Deal(epoch=1, place=0, places=2, slots=5))
    assert hand.propose(Deal(epoch=2, place=0, places=1, slots=9, from_s=10.0))
    assert not hand.holds(9.9)
    assert hand.holds(10.0)
    assert hand.commit(1) is None
    assert hand.commit(2) == Deal(epoch=2, place=0, places=1, slots=9, from_s=10.0)
    assert not hand.holds(10.0)


def test_an_old_proposal_is_refused() -> None:
    hand = Hand(Deal(epoch=3, place=0, places=2, slots=5))
    assert not hand.propose(Deal(epoch=3, place=0, places=1, slots=5))


def test_the_fence_goes_up_before_the_master_deals_anew() -> None:
    assert FENCE_S + 1 < LOST_S  # the worker's own clock stops it well before others take over


def test_a_silent_master_raises_the_fence_and_only_a_deal_lowers_it() -> None:
    fence = Fence(heard=0.0, ticked=0.0)
    for k in range(5):
        assert not fence.tick(k / 2)
    assert fence.tick(2.5) is False
    assert fence.tick(3.0) is True
    fence.beat(3.1)
    assert fence.tick(3.2) is True
    fence.lower(3.3)
    assert fence.tick(3.4) is False


def test_a_jump_of_the_own_clock_raises_the_fence() -> None:
    fence = Fence(heard=0.0, ticked=0.0)
    fence.tick(0.5)
    fence.beat(4.0)  # heard at once after waking up
    assert fence.tick(4.0)
