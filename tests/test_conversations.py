"""Conversations and closed loops: every turn follows its answer, whoever asks for it."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrivals import FOLLOW_UP, Arrival, Schedule
from workloads.draws import hashed, one
from workloads.workload import load_workload

TALK = """
output: {dist: fixed, value: 200}
sessions:
  turns: {dist: uniform, low: 1, high: 9}
  think_s: {dist: lognormal, mean: 5, cv: 1}
  first_input: {dist: lognormal, mean: 2000, cv: 1}
  new_input: {dist: fixed, value: 300}
  system_tokens: 512
"""


def schedule(tmp_path: Path, text: str, window_s: float = 1000) -> Schedule:
    path = tmp_path / "talk.yaml"
    path.write_text(text + TALK, encoding="utf-8")
    return load_workload(str(path)).schedule(1, window_s)


def turns_of(first: Arrival, s: Schedule) -> list[Arrival]:
    turns = [first]
    while (turn := s.follow_up(turns[-1], turns[-1].due_s + 4)) is not None:
        turns.append(turn)
    return turns


def test_each_turn_is_the_one_before_its_answer_and_something_new(tmp_path: Path) -> None:
    s = schedule(tmp_path, "rate_rps: 20\n")
    lengths = []
    for first in list(s.stripe(0, 1))[:200]:
        turns = turns_of(first, s)
        lengths.append(len(turns))
        for a, b in pairwise(turns):
            assert b.input_tokens == a.input_tokens + a.output_tokens + 300
            assert b.due_s == pytest.approx(a.due_s + 4 + b.think_s)
            assert b.shared_tokens == a.input_tokens  # the answer's KV never was on P
            assert b.index == a.index + FOLLOW_UP
            assert (b.session, b.turn) == (a.session, a.turn + 1)
    assert set(lengths) == set(range(1, 10))


def test_the_rate_counts_all_requests(tmp_path: Path) -> None:
    s = schedule(tmp_path, "rate_rps: 20\n")
    assert s.count() == pytest.approx(20 * 1000 / 5, rel=0.05)  # 5 turns each
    sample = s.sample(5_000)
    late = sample.due_s > 60
    assert late.sum() / (sample.due_s[-1] - 60) == pytest.approx(20, rel=0.05)


WORD = st.integers(0, 2**64 - 1)


@given(WORD, st.integers(0, 20), WORD, WORD)
def test_a_number_drawn_alone_is_the_one_drawn_among_others(
    seed: int, purpose: int, first: int, second: int
) -> None:
    among = hashed(seed, purpose, np.array([7, first], np.uint64), np.array([1, second], np.uint64))
    assert one(seed, purpose, first, second).tolist() == among[1:].tolist()


def test_any_worker_makes_the_same_next_turn(tmp_path: Path) -> None:
    one, two = schedule(tmp_path, "rate_rps: 20\n"), schedule(tmp_path, "rate_rps: 20\n")
    for a in list(one.stripe(0, 1))[:20]:
        assert turns_of(a, one) == turns_of(a, two)


def test_a_conversation_ends_before_its_context_is_full(tmp_path: Path) -> None:
    s = schedule(tmp_path, "rate_rps: 20\n")
    limited = schedule(tmp_path, "rate_rps: 20\n")
    path = tmp_path / "limited.yaml"
    path.write_text("rate_rps: 20\n" + TALK + "  max_context_tokens: 3000\n", encoding="utf-8")
    limited = load_workload(str(path)).schedule(1, 1000)
    assert limited.count() > 1.3 * s.count()  # shorter ones, so that as many requests come of them
    for first in list(limited.stripe(0, 1))[:100]:
        assert all(a.input_tokens <= 3000 for a in turns_of(first, limited))


def test_in_a_closed_loop_each_user_goes_on_for_ever(tmp_path: Path) -> None:
    s = schedule(tmp_path, "users: 12\n")
    firsts = list(s.stripe(0, 1))
    assert len(firsts) == s.count() == 12
    user = firsts[5]
    numbers, talks = set(), set()
    for _ in range(50):
        numbers.add(user.index)
        talks.add(user.session)
        following = s.follow_up(user, user.due_s + 1)
        assert following is not None
        assert following.index % FOLLOW_UP == firsts[5].index
        user = following
    assert len(numbers) == 50
    assert len(talks) > 3
    assert s.follow_up(user, 1001) is None  # due after the window


def test_two_stripes_of_a_closed_loop_are_different_users(tmp_path: Path) -> None:
    s = schedule(tmp_path, "users: 12\n")
    stripes = [{a.index for a in s.stripe(k, 3)} for k in range(3)]
    assert set.union(*stripes) == set(range(12))
    assert sum(map(len, stripes)) == 12
