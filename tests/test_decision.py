"""The verdict on runs whose cluster we know: right side, enough of it, and never the other."""

from dataclasses import replace

import numpy as np
import pytest

from emulator.model import Deployment, Engine
from planner.decision import EXIT_CODES, Decision, decide
from planner.measurement import Measurement
from planner.records import Records
from tests.simulated import measured, play

SLOW_STEPS = Engine(decode_beta=6e-4)  # a batch of 64 takes 46 ms
NOT_ABOUT_D = {"add-decode", "add-both", "lower-max-running-requests", "raise-max-running-requests"}
ADD_P = {"add-prefill", "add-both"}
SEEDS = [1, pytest.param(2, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full)]


def verdict(
    deployment: Deployment,
    rate_rps: float,
    seed: int,
    slo_ms: tuple[float, float],
    engine: Engine | None = None,
    window_s: float = 60,
) -> Decision:
    records = play(deployment, rate_rps, window_s, seed, engine)
    return decide(None, measured(records, deployment, window_s, slo_ms), records)


@pytest.mark.parametrize("admission", ["early", "sequential"])
@pytest.mark.parametrize("seed", SEEDS)
def test_with_too_few_p_the_verdict_is_never_about_d(admission: str, seed: int) -> None:
    short = Deployment(1, 2, 64, admission=admission)
    decision = verdict(short, 10, seed, (1200, 60))
    assert decision.verdict == "add-prefill"
    assert decision.proposal is not None
    assert decision.proposal.decode_instances == 2
    enough = replace(short, prefill_instances=decision.proposal.prefill_instances)
    assert verdict(enough, 10, seed + 10, (1200, 60)).verdict in ("hold", "inconclusive")


@pytest.mark.parametrize("admission", ["early", "sequential"])
@pytest.mark.parametrize("seed", SEEDS)
def test_with_d_full_the_verdict_is_never_add_prefill(admission: str, seed: int) -> None:
    full = Deployment(4, 1, 16, admission=admission)
    decision = verdict(full, 10, seed, (1000, 20), SLOW_STEPS)
    assert decision.verdict not in ADD_P
    assert decision.verdict == "add-decode"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_d_with_room_in_tpot_raises_the_cap(seed: int) -> None:
    decision = verdict(Deployment(4, 2, 12), 10, seed, (1000, 30), Engine(decode_beta=2e-4))
    assert decision.verdict == "raise-max-running-requests"
    assert decision.proposal is not None
    assert decision.proposal.max_running_requests > 12  # type: ignore[operator]


@pytest.mark.parametrize("seed", SEEDS)
def test_tpot_over_its_limit_is_never_answered_with_p(seed: int) -> None:
    decision = verdict(Deployment(4, 1, 256), 12, seed, (2000, 25), SLOW_STEPS)
    assert decision.verdict not in ADD_P | {"hold"}


def test_a_limit_below_one_prefill_is_infeasible() -> None:
    decision = verdict(Deployment(6, 3, 64), 10, 1, (300, 60))
    assert decision.verdict == "infeasible"
    assert "no count helps" in decision.reasons[-1]


# -- what makes a run say nothing ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def good() -> tuple[Records, Measurement]:
    deployment = Deployment(6, 3, 64)
    records = play(deployment, 10, 100, 1)
    return records, measured(records, deployment, 100, (1500, 60))


def changed(
    good: tuple[Records, Measurement], outcome: str, share: float
) -> tuple[Records, Measurement]:
    records = good[0]
    outcomes = records.outcome.copy()
    outcomes[np.arange(len(records)) % round(1 / share) == 0] = outcome
    records = replace(records, outcome=outcomes)
    deployment = Deployment(6, 3, 64)
    return records, measured(records, deployment, 100, (1500, 60))


@pytest.mark.parametrize(
    ("outcome", "share", "expected"),
    [
        ("engine-error", 0.05, "target-errors"),
        ("auth", 1.0, "target-errors"),
        ("unsent", 0.05, "client-limited"),
        ("lost", 0.05, "client-limited"),
    ],
)
def test_what_went_wrong_comes_before_any_advice(
    good: tuple[Records, Measurement], outcome: str, share: float, expected: str
) -> None:
    records, measurement = changed(good, outcome, share)
    decision = decide(None, measurement, records)
    assert decision.verdict == expected
    assert decision.exit_code == EXIT_CODES[expected]
    assert decision.proposal is None


def test_a_late_client_says_nothing_of_the_cluster(good: tuple[Records, Measurement]) -> None:
    records = replace(good[0], sent_s=good[0].sent_s + 0.2)
    measurement = measured(records, Deployment(6, 3, 64), 100, (1500, 60))
    assert decide(None, measurement, records).verdict == "client-limited"


def test_a_hot_client_says_nothing_of_the_cluster(good: tuple[Records, Measurement]) -> None:
    measurement = good[1].model_copy(update={"client": {"cpu_percent_max": 95.0}})
    assert decide(None, measurement, good[0]).verdict == "client-limited"


def test_too_few_requests_are_inconclusive_and_say_how_many_seconds_more() -> None:
    decision = verdict(Deployment(6, 3, 64), 10, 1, (1500, 60), window_s=20)
    assert decision.verdict == "inconclusive"
    assert "s longer" in decision.reasons[-1]


def test_accounts_that_do_not_add_up_give_no_verdict(good: tuple[Records, Measurement]) -> None:
    arrivals = good[1].arrivals.model_copy(update={"duplicates": 1})
    measurement = good[1].model_copy(update={"arrivals": arrivals})
    assert decide(None, measurement, good[0]).rule == "0 accounting"


def test_a_cluster_with_room_holds(good: tuple[Records, Measurement]) -> None:
    assert decide(None, good[1], good[0], "likely").verdict == "hold"


def test_the_stronger_confidence_asks_for_more(good: tuple[Records, Measurement]) -> None:
    assert decide(None, good[1], good[0], "confirmed").verdict in ("hold", "inconclusive")
