"""Plans that cannot be: one sentence with the file, the key, what was found, and what it may mean."""

import json
import math
from pathlib import Path

import pytest

from planner.config import Plan, load_plan
from planner.errors import PlanError
from planner.sizing import size

TEMPLATE = Path(__file__).resolve().parent.parent / "examples" / "plan.json"


def with_(**parts: object) -> dict[str, object]:
    return {"slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50}, **parts}


WRONG = [
    ({"slo": {"ttft_p99": 500, "tpot_p99_ms": 50}}, "slo.ttft_p99", "did you mean 'ttft_p99_ms'"),
    ({"slo": {"ttft_p99_ms": 0.5, "tpot_p99_ms": 50}}, "slo.ttft_p99_ms", "500 would be that in"),
    ({"slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 0.05}}, "slo.tpot_p99_ms", "50 would be that in"),
    ({"slo": {"tpot_p99_ms": 50}}, "slo.ttft_p99_ms", "required"),
    ({"slo": {"ttft_p99_ms": "500ms", "tpot_p99_ms": 50}}, "slo.ttft_p99_ms", "valid number"),
    ({"slo": {"ttft_p99_ms": math.inf, "tpot_p99_ms": 50}}, "slo.ttft_p99_ms", "finite"),
    ({"slo": {"ttft_p99_ms": math.nan, "tpot_p99_ms": 50}}, "slo.ttft_p99_ms", "found nan"),
    (
        {"slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50, "target_qps": 0}},
        "slo.target_qps",
        "no traffic needs no instances",
    ),
    (with_(decode={"curve": [[1, 5]]}), "decode.curve", "two points"),
    (with_(decode={"curve": [[1, 5], [2, 4]]}), "decode.curve", "curve must rise"),
    (with_(decode={"curve": [[1, 5], [2]]}), "decode.curve", "point 1 must be two numbers"),
    (with_(decode={"curve": [1, 5]}), "decode.curve", "point 0 must be two numbers"),
    (with_(decode={"curve": [[8, 5], [8, 6]]}), "decode.curve", "curve must rise"),
    (with_(decode={"curve": [[0, 5], [8, 6]]}), "decode.curve", "batches start at 1"),
    (with_(decode={"curve": [[1, 0.01], [64, 0.03]]}), "decode.curve", "30 would be that in ms"),
    (
        with_(decode={"curve": [[1, 5], [32, 20]], "max_batch_size_at_slo": 64}),
        "decode.max_batch_size_at_slo",
        "64 is above the curve, which ends at batch 32",
    ),
    (
        with_(deployment={"prefill_instances": 0}),
        "deployment.prefill_instances",
        "found 0 (without p nothing is computed",
    ),
    (
        with_(prefill={"max_prefill_throughput_tokens_per_s": 0}),
        "prefill.max_prefill_throughput_tokens_per_s",
        "found 0 (an instance that computes nothing",
    ),
    (
        with_(decode={"throughput_at_slo_tokens_per_s": 0}),
        "decode.throughput_at_slo_tokens_per_s",
        "found 0 (an instance that computes nothing",
    ),
    (
        with_(
            workload={
                "avg_input_tokens": 9,
                "avg_output_tokens": 9,
                "prefix_cache_hit_rate": 30,
            }
        ),
        "workload.prefix_cache_hit_rate",
        "percent? 0.3 would be that as a share",
    ),
    (with_(headroom=20), "headroom", "percent? 0.2 would be that as a share"),
    (with_(overhead_ms=0.05), "overhead_ms", "50 would be that in ms"),
    (with_(routing={"prefill": "rr"}), "routing.prefill", "'round-robin'"),
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


CONTRADICTING = [
    (
        {"decode": {"max_batch_size_at_slo": 64, "throughput_at_slo_tokens_per_s": 44}},
        "tokens/s of one request",
    ),
    ({"chunk_tokens": 512, "iteration_overhead_ms": 50}, "microseconds"),
    ({"slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50}}, "slo.target_qps: missing"),
    ({"prefill": {}}, "prefill.max_prefill_throughput_tokens_per_s: missing"),
    ({"decode": {}}, "decode.throughput_at_slo_tokens_per_s: missing"),
    ({"decode": {"curve": [[1, 60], [2, 70]]}}, "slo.tpot_p99_ms: 50 ms is less than the curve"),
]


@pytest.mark.parametrize(("part", "said"), CONTRADICTING)
def test_figures_that_contradict_each_other_are_told(part: dict[str, object], said: str) -> None:
    plan = Plan.model_validate(json.loads(TEMPLATE.read_text()) | part)
    with pytest.raises(PlanError, match=said):
        size(plan, "p99")
