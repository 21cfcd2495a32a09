"""Sizing: the golden numbers of the method and the paper, and that one fewer would not do."""

import json
import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.config import DeploymentSection, Plan, RoutingSection, dump_plan, load_plan
from planner.decode import slots_at_slo, throughput_at_tpot_tps
from planner.demand import of_columns, of_plan
from planner.errors import PlanError
from planner.prefill import (
    effective_input_tokens,
    fewest,
    p99_of,
    prefill_model,
    throughput_under_ttft_tps,
)
from planner.sizing import METHODS, by_routing, filled, size

TEMPLATE = Path(__file__).resolve().parent.parent / "examples" / "plan.json"
PAPER_CURVE = [(10, 12.8), (20, 16.4), (30, 18.8), (40, 21.6), (50, 23.9)]


@pytest.mark.parametrize(
    ("method", "headroom", "ratio"),
    [
        ("throughput", None, "3:4"),
        ("throughput", 0.2, "3:5"),
        ("paper", None, "4:4"),
        ("p99", None, "4:5"),
    ],
)
def test_the_template_gives_the_ratios_of_the_method(
    method: str, headroom: float | None, ratio: str
) -> None:
    assert size(load_plan(TEMPLATE), method, headroom).ratio == ratio


def template(**workload: float) -> Plan:
    """The template, with more said of its traffic."""
    plan = load_plan(TEMPLATE)
    assert plan.workload is not None
    return plan.model_copy(update={"workload": plan.workload.model_copy(update=workload)})


def test_moderate_spread_of_lengths_keeps_the_answer_and_a_large_one_has_none() -> None:
    assert size(template(input_cv=0.3), "p99").ratio == "4:5"
    with pytest.raises(PlanError, match=r"infeasible, an empty P needs 58\d ms"):
        size(template(input_cv=1.0), "p99")


# Smallest P at 500 ms without overhead, 20 req/s: by random, round-robin, shortest-queue, least-work
FEWEST = [
    (0.0, 1.0, (5, 4, 4, 4)),
    (0.3, 1.0, (6, 4, 4, 4)),
    pytest.param(0.5, 1.0, (8, 4, 4, 4), marks=pytest.mark.full),
    (0.0, 2.0, (None, 5, 5, 5)),  # random: 8 or 9, by the seed
    pytest.param(0.5, 2.0, (12, 6, 6, 5), marks=pytest.mark.full),
    pytest.param(0.0, 3.0, (None, 7, 7, 7), marks=pytest.mark.full),
    pytest.param(0.5, 3.0, (None, 9, 8, 8), marks=pytest.mark.full),
]


@pytest.mark.parametrize(("input_cv", "arrival_cv", "counts"), FEWEST)
def test_the_fewest_p(input_cv: float, arrival_cv: float, counts: tuple[int | None, ...]) -> None:
    plan = template(input_cv=input_cv, arrival_cv=arrival_cv)
    model, traffic = prefill_model(plan), of_plan(plan).traffic
    names = ("random", "round-robin", "shortest-queue", "least-work")
    for routing, count in zip(names, counts, strict=True):
        if count is not None:
            assert fewest(p99_of(model, traffic, routing), 0.5) == count, routing


def test_hits_that_are_all_or_nothing_cost_more_than_the_same_share_of_each() -> None:
    """30 % of the requests fully cached, instead of 30 % of each: as a spread of 0.65."""
    traffic = of_plan(template()).traffic
    hit = np.random.default_rng(4).random(len(traffic)) < 0.3
    mixed = replace(traffic, input_tokens=np.where(hit, 1.0, 2048.0))
    model = prefill_model(template())
    counts = {r: fewest(p99_of(model, mixed, r), 0.5) for r in ("random", "round-robin")}
    assert counts == {"random": 8, "round-robin": 4}


def test_the_best_and_the_worst_routing() -> None:
    assert by_routing(template(), of_plan(template())) == {"least-load": 4, "random": 6}


# utilisation, tokens of an iteration, ms of its overhead, P99 in ms: fixed lengths, one P
CHUNKED = [
    (0.5, 8192, 0, 675),
    (0.5, 8192, 20, 731),
    pytest.param(0.7, 8192, 0, 1254, marks=pytest.mark.full),
    pytest.param(0.7, 8192, 20, 1339, marks=pytest.mark.full),
]


@pytest.mark.parametrize(("busy", "chunk", "overhead_ms", "p99_ms"), CHUNKED)
def test_prompts_that_share_an_iteration_wait_for_each_other(
    busy: float, chunk: int, overhead_ms: float, p99_ms: float
) -> None:
    plan = template().model_copy(
        update={"chunk_tokens": chunk, "iteration_overhead_ms": overhead_ms}
    )
    traffic = of_plan(plan, 100_000).traffic
    one = traffic.faster(busy / (20 * 1434 / 12_000))
    assert 1000 * p99_of(prefill_model(plan), one, "round-robin")(1) == pytest.approx(
        p99_ms, rel=0.05
    )


def mm1(ttft_ms: float, rate: float = 12, overhead_ms: float = 0) -> Plan:
    return Plan.model_validate(
        {
            "slo": {"ttft_p99_ms": ttft_ms, "tpot_p99_ms": 50, "target_qps": rate},
            "workload": {
                "avg_input_tokens": 4000,
                "avg_output_tokens": 100,
                "prefix_cache_hit_rate": 0.5,
            },
            "prefill": {"max_prefill_throughput_tokens_per_s": 40_000},
            "decode": {"throughput_at_slo_tokens_per_s": 1000},
            "headroom": 0.2,
            "overhead_ms": overhead_ms,
        }
    )


def test_mean_or_p99_in_the_mm1_step() -> None:
    mean, p99 = size(mm1(500), "paper"), size(mm1(500), "mm1-p99")
    assert (mean.prefill, p99.prefill) == (1, 2)
    assert mean.prefill_exact == pytest.approx(0.8)
    assert "taken for a mean" in mean.reasons[0]
    assert p99.prefill_tps == pytest.approx(21_579, abs=1)
    assert p99.prefill_exact == pytest.approx(1.335, abs=0.001)


def test_what_is_neither_queue_nor_prefill_leaves_less_for_them() -> None:
    less = size(mm1(500, overhead_ms=120), "mm1-p99")
    assert (less.prefill, less.prefill_exact) == (2, pytest.approx(1.83, abs=0.005))
    assert size(mm1(500, 16, 120), "mm1-p99").prefill == 3
    assert size(mm1(500, 16), "mm1-p99").prefill == 2


@pytest.mark.parametrize("method", ["paper", "mm1-p99", "p99"])
def test_no_number_of_p_is_named_when_one_request_takes_longer_than_the_slo(method: str) -> None:
    with pytest.raises(PlanError, match=r"no number of (instances|P) helps") as error:
        size(mm1(40), method)
    assert "50 ms" in str(error.value)


CURVE = [(1, 12), (8, 14), (16, 17), (32, 24), (64, 39), (128, 71)]


def decode_bound(rate: float, curve: object = CURVE, **decode: object) -> Plan:
    return Plan.model_validate(
        {
            "slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 40, "target_qps": rate},
            "workload": {"avg_input_tokens": 1000, "avg_output_tokens": 500},
            "prefill": {"max_prefill_throughput_tokens_per_s": 40_000},
            "decode": {"curve": curve, **decode},
        }
    )


def test_slots_decide_the_number_of_d() -> None:
    answer = size(decode_bound(10), "p99")
    at_slo = slots_at_slo(decode_bound(10))
    assert at_slo.batch == 66
    assert answer.decode == 4  # 10 x 500 x 39 ms / 64 slots = 3.05, at most to 80 %
    assert "P99 TPOT" in answer.reasons[2]
    assert size(decode_bound(2), "p99").decode == 1


def test_few_slots_need_more_slack_than_many() -> None:
    """With 4 slots a D at 80 % of its capacity keeps requests waiting; more D until TTFT has room for it."""
    answer = size(decode_bound(4, [(1, 12), (2, 14), (4, 17)]), "p99")
    assert answer.decode > math.ceil(answer.decode_exact)
    assert "fits into what TTFT leaves" in answer.reasons[2]


def test_slots_that_no_number_of_d_makes_enough_are_said() -> None:
    """One slot each and random routing: two requests meet on one D, however many there are."""
    plan = decode_bound(0.5, [(1, 12), (2, 14)], max_batch_size_at_slo=1)
    random = plan.model_copy(update={"routing": RoutingSection(decode="random")})
    answer = size(random, "p99")
    assert answer.decode == math.ceil(answer.decode_exact) == 4
    assert "no 8 D more" in answer.reasons[2]


def test_a_cap_beyond_the_curve_is_said() -> None:
    plan = decode_bound(10, [(1, 12), (32, 24)])
    there = DeploymentSection(prefill_instances=1, decode_instances=4, max_running_requests=256)
    capped = plan.model_copy(update={"deployment": there})
    assert any("max_running_requests: 256 is above" in r for r in size(capped, "p99").reasons)


def test_gpus_of_parallel_instances() -> None:
    plan = decode_bound(10)
    update = {
        "prefill": plan.prefill.model_copy(update={"tp_size": 4, "pp_size": 2}),
        "decode": plan.decode.model_copy(update={"tp_size": 1, "dp_size": 8}),
    }
    answer = replace(size(plan, "throughput"), prefill=3, decode=5)
    assert answer.gpus(plan.model_copy(update=update)) == 64
    both = plan.decode.model_copy(update={"tp_size": 8, "dp_size": 8})
    assert both.gpus == 8  # attention DP is inside the tensor parallel group


def test_a_headroom_of_the_plan_counts_once_for_every_method() -> None:
    plan = template().model_copy(update={"headroom": 0.2})
    for method in METHODS:
        if method != "mm1-p99":
            assert size(plan, method).decode_exact == pytest.approx(
                1.2 * size(template(), method).decode_exact
            )


def test_columns_are_brought_to_the_rate_asked_for() -> None:
    demand = of_columns([0.0, 1.0, 2.0, 3.0], [10, 20, 30, 40], [1, 2, 3, 4], 5.0, "four")
    assert demand.traffic.rate_rps == pytest.approx(5)
    assert (demand.input_tokens, demand.output_tokens) == (25, 2.5)
    with pytest.raises(PlanError, match="found 1 requests"):
        of_columns([0.0], [10], [1], 5.0, "one")


def test_the_template_comes_back_key_for_key() -> None:
    plan = load_plan(TEMPLATE)
    assert json.loads(dump_plan(filled(plan, size(plan, "throughput")))) == json.loads(
        TEMPLATE.read_text()
    )


def test_the_papers_own_case() -> None:
    assert throughput_under_ttft_tps(28_309, 6144, 2.0, 0.1) == pytest.approx(25_075, rel=1e-3)
    tps = throughput_at_tpot_tps(PAPER_CURVE, 20)[1]
    assert 1690 <= tps <= 1704
    plan = Plan.model_validate(
        {
            "slo": {"ttft_p99_ms": 2000, "tpot_p99_ms": 20, "target_qps": 5e6 / 60 / (6144 + 512)},
            "workload": {"avg_input_tokens": 6144, "avg_output_tokens": 512},
            "prefill": {"max_prefill_throughput_tokens_per_s": 28_309},
            "decode": {"curve": PAPER_CURVE},
            "overhead_ms": 100,
        }
    )
    answer = size(plan, "paper")
    assert answer.prefill_exact == pytest.approx(3.07, abs=0.01)
    assert answer.decode_exact == pytest.approx(3.79, abs=0.01)
    assert answer.prefill_exact / answer.decode_exact == pytest.approx(0.81, abs=0.01)
    assert (answer.prefill, answer.decode) == (4, 4)  # never rounded down


def test_effective_tokens_round_half_up() -> None:
    assert effective_input_tokens(2048, 0.3) == 1434
    assert effective_input_tokens(5, 0.5) == 3


@given(st.floats(0.1, 500), st.floats(1, 20_000), st.floats(100, 50_000))
def test_the_count_suffices_and_one_fewer_does_not(rate: float, tokens: float, tps: float) -> None:
    plan = Plan.model_validate(
        {
            "slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50, "target_qps": rate},
            "workload": {"avg_input_tokens": tokens, "avg_output_tokens": 100},
            "prefill": {"max_prefill_throughput_tokens_per_s": tps},
            "decode": {"throughput_at_slo_tokens_per_s": 1000},
        }
    )
    answer = size(plan, "throughput", demand=of_plan(plan, 10))
    demand = rate * effective_input_tokens(tokens, 0)
    assert answer.prefill * tps >= demand * (1 - 1e-6)
    assert answer.prefill == 1 or (answer.prefill - 1) * tps < demand


def test_a_ttft_below_one_prefill_is_told() -> None:
    with pytest.raises(PlanError, match="no number of instances helps"):
        throughput_under_ttft_tps(12_000, 1434, 0.1, 0.0)


@pytest.mark.full
def test_a_large_cluster_in_chunks_is_sized_within_5_s() -> None:
    plan = decode_bound(300).model_copy(update={"chunk_tokens": 8192, "iteration_overhead_ms": 5.0})
    began_s = time.process_time()
    demand = of_plan(plan)
    size(plan, "p99", demand=demand)
    by_routing(plan, demand)
    assert time.process_time() - began_s < 5
