"""Rounds: a smaller deployment is tried once, with a way back; what did not hold is not proposed again."""

import numpy as np
import pytest

from planner.change import Change
from planner.config import Plan
from planner.decision import decide
from planner.history import did_not_hold, entry, held
from planner.measurement import Size
from planner.models import Layout
from planner.smaller import back_to
from planner.verdict import decided
from tests.made import measured, records


def size(p: int, d: int, cap: int = 64) -> Size:
    return Size(prefill_instances=p, decode_instances=d, max_running_requests=cap)


def plan(*rounds: tuple[str, Size]) -> Plan:
    told = [entry(decided(verdict, "4 both met", [], deployment=at)) for verdict, at in rounds]
    return Plan.model_validate({"slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50}, "history": told})


def test_what_held_is_the_newest_that_is_larger_unless_this_one_held_too() -> None:
    past = plan(("hold", size(8, 6)), ("hold", size(6, 5)), ("add-prefill", size(3, 5)))
    assert held(past, size(4, 5)) == size(6, 5)
    assert held(past, size(6, 6)) == size(8, 6)
    assert held(past, size(6, 5)) is None
    assert held(past, size(9, 5)) is None
    assert held(None, size(1, 1)) is None
    assert held(past, None) is None


def test_what_was_tried_in_vain_bounds_what_is_tried_next() -> None:
    past = plan(("add-decode", size(6, 4)), ("client-limited", size(9, 9)), ("hold", size(6, 6)))
    assert did_not_hold(past, size(5, 4))
    assert did_not_hold(past, size(6, 4))
    assert not did_not_hold(past, size(6, 5))
    assert not did_not_hold(past, size(6, 4, cap=96))  # another cap is another thing
    assert not did_not_hold(past, size(7, 7))  # a client that was slow says nothing


def test_rounds_noted_by_hand_are_passed_over() -> None:
    told = [{"verdict": "hold", "size": {"prefill_instances": "many"}}, {"verdict": "hold"}, {}]
    past = Plan.model_validate({"slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50}, "history": told})
    assert held(past, size(1, 1)) is None


def near_the_limit(n: int = 3000) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """TTFTs of which 1.1 % are over 500 ms, in a few places."""
    ttft_ms = 100 + 100 * np.random.default_rng(1).random(n)
    ttft_ms[200:217] = ttft_ms[1700:1716] = 600
    return ttft_ms


def test_an_unsettled_run_at_fewer_instances_goes_back_to_what_held() -> None:
    rows = records(3000, ttft_ms=near_the_limit())
    m = measured(rows, deployment=size(4, 5))
    decision = decide(plan(("hold", size(6, 6))), m, rows)
    assert decision.verdict == "inconclusive"
    assert decision.proposal is not None
    assert (decision.proposal.prefill_instances, decision.proposal.decode_instances) == (6, 6)
    assert "6P6D, max_running_requests 64 held in a round before" in decision.reasons[-1]
    assert decision.next_command


def test_a_run_that_is_likelier_over_than_not_names_what_would_have_a_margin() -> None:
    rows = records(3000, ttft_ms=near_the_limit())
    decision = decide(None, measured(rows, deployment=size(4, 5)), rows)
    assert decision.verdict == "inconclusive"
    assert "likelier over its limit than not" in decision.reasons[-1]
    assert decision.proposal is not None
    now = (4, 5)
    then = (decision.proposal.prefill_instances, decision.proposal.decode_instances)
    assert then > now


@pytest.mark.parametrize(
    ("thought", "there"),
    [
        (Layout(9, 5, 64), (6, 6)),  # dearer than what held
        (Layout(5, 5, 64), (5, 5)),  # cheaper
    ],
)
def test_a_smaller_one_that_misses_costs_no_more_than_what_held(
    thought: Layout, there: tuple[int, int]
) -> None:
    m = measured(records(400), deployment=size(4, 5))
    todo = Change("add-prefill", "6 P bound", thought, "P is short.")
    found = back_to(plan(("hold", size(6, 6))), m, todo, (1, 1))
    assert (found.layout.prefill, found.layout.decode) == there
    assert found.verdict == ("add-both" if there == (6, 6) else "add-prefill")


def test_a_fix_that_is_no_growth_stays_what_it_is() -> None:
    m = measured(records(400), deployment=size(4, 5))
    todo = Change("change-routing", "6 routing", Layout(4, 5, 64, "least-load"), "Routing.")
    assert back_to(plan(("hold", size(6, 6))), m, todo, (1, 1)) is todo
