"""Sizing: the golden numbers of the method and the paper, and that one fewer would not do."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.config import Plan, dump_plan, load_plan
from planner.decode import throughput_at_tpot_tps
from planner.errors import PlanError
from planner.prefill import effective_input_tokens, throughput_under_ttft_tps
from planner.sizing import filled, size

TEMPLATE = Path(__file__).resolve().parent.parent / "examples" / "plan.json"
PAPER_CURVE = [(10, 12.8), (20, 16.4), (30, 18.8), (40, 21.6), (50, 23.9)]


@pytest.mark.parametrize(
    ("method", "headroom", "ratio"),
    [("throughput", None, "3:4"), ("throughput", 0.2, "3:5"), ("paper", None, "4:4")],
)
def test_the_template_gives_the_ratios_of_the_method(
    method: str, headroom: float | None, ratio: str
) -> None:
    assert size(load_plan(TEMPLATE), method, headroom).ratio == ratio


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
    answer = size(plan, "throughput")
    demand = rate * effective_input_tokens(tokens, 0)
    assert answer.prefill * tps >= demand * (1 - 1e-6)
    assert answer.prefill == 1 or (answer.prefill - 1) * tps < demand


WRONG = [
    ({"slo": {"ttft_p99": 500, "tpot_p99_ms": 50}}, "slo.ttft_p99", "did you mean 'ttft_p99_ms'"),
    (
        {"slo": {"ttft_p99_ms": 0.5, "tpot_p99_ms": 50}},
        "slo.ttft_p99_ms",
        "500 would be that in ms",
    ),
    ({"slo": {"tpot_p99_ms": 50}}, "slo.ttft_p99_ms", "required"),
    (
        {"slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50}, "decode": {"curve": [[1, 5]]}},
        "decode",
        "two points",
    ),
    (
        {"slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50}, "decode": {"curve": [[1, 5], [2, 4]]}},
        "decode",
        "curve must rise",
    ),
    (
        {"slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50}, "deployment": {"prefill_instances": 0}},
        "deployment.prefill_instances",
        "found 0",
    ),
    (
        {
            "slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50},
            "prefill": {"max_prefill_throughput_tokens_per_s": 0},
        },
        "prefill.max_prefill_throughput_tokens_per_s",
        "found 0",
    ),
]


@pytest.mark.parametrize(("content", "key", "said"), WRONG)
def test_a_wrong_plan_is_told_with_file_and_key(
    tmp_path: Path, content: object, key: str, said: str
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(content))
    with pytest.raises(PlanError) as error:
        load_plan(file)
    told = str(error.value).lower()
    assert str(file) in str(error.value)
    assert key in told
    assert said.lower() in told


def test_a_ttft_below_one_prefill_is_told() -> None:
    with pytest.raises(PlanError, match="no number of instances helps"):
        throughput_under_ttft_tps(12_000, 1434, 0.1, 0.0)
