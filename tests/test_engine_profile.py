"""Engine profiles: fits against known engines, files of SGLang and vLLM, which source wins."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.__main__ import main
from planner.config import Plan, load_plan
from planner.engine_profile import (
    DecodePoint,
    DecodeProfile,
    EngineProfile,
    PrefillProfile,
    best,
    dump_profile,
    into_plan,
)
from planner.engine_profile_fits import fit_prefill, p99_known, throughput_tps
from planner.errors import PlanError
from planner.imports import load_profile

PLAN = {
    "slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50, "target_qps": 20},
    "workload": {"avg_input_tokens": 2048, "avg_output_tokens": 512},
    "prefill": {"max_prefill_throughput_tokens_per_s": 12000},
    "decode": {"max_batch_size_at_slo": 64, "throughput_at_slo_tokens_per_s": 2800, "tp_size": 8},
}
ONE_BATCH = [
    {
        **{"run_name": "r", "batch_size": b, "input_len": n, "output_len": 64},
        "prefill_latency": 0.01 + 1e-4 * b * n,
        "median_decode_latency": 0.008 + 1.5e-4 * b,
        "overall_throughput": 1.0,
    }
    for b, n in ((1, 512), (1, 2048), (8, 2048), (32, 2048))
]


def serving(concurrency: int, tpot_ms: float, **more: Any) -> dict[str, Any]:
    """A run of 100 requests of 1024 in, 101 out, as both tools write it."""
    return {
        **{"max_concurrency": concurrency, "completed": 100, "total_input_tokens": 102_400},
        **{"total_output_tokens": 10_100, "duration": 100 * 100 * tpot_ms / 1000 / concurrency},
        **{"median_ttft_ms": 112.4, "mean_tpot_ms": tpot_ms, "p99_tpot_ms": 1.02 * tpot_ms},
        **more,
    }


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


# -- fits --------------------------------------------------------------------------------------------


def test_a_quadratic_prefill_is_found_again() -> None:
    tokens = np.repeat([200.0, 500, 1000, 2000, 5000], 3)
    ttft_s = 0.014 + 1e-4 * tokens + 2e-9 * tokens**2
    # Iterations of 8192 tokens with a setup of 10 ms at the mean length of 1740.
    tps = 1 / (0.010 / 8192 + 1e-4 + 2e-9 * 1740)
    found = fit_prefill(tokens, ttft_s, tps, 8192)
    assert found.ms_per_token == pytest.approx(0.1, rel=1e-4)
    assert found.ms_per_token2 == pytest.approx(2e-6, rel=1e-3)
    assert found.setup_ms == pytest.approx(10, rel=0.01)
    assert found.overhead_ms == pytest.approx(4, rel=0.03)
    assert found.service_ms(1000) == pytest.approx(112, rel=0.01)


def test_noise_gives_no_negative_figure() -> None:
    rng = np.random.default_rng(3)
    tokens = np.repeat([100.0, 200, 400, 800, 1600], 5)
    for _ in range(50):
        ttft_s = (1e-4 * tokens) * rng.normal(1, 0.05, len(tokens))
        found = fit_prefill(tokens, ttft_s, None, 8192)
        assert min(found.setup_ms or 0, found.overhead_ms or 0, found.ms_per_token2 or 0) >= 0
        assert found.service_ms(1000) == pytest.approx(100, rel=0.1)


def test_one_length_is_too_few() -> None:
    with pytest.raises(PlanError, match="found 1 prompt length"):
        fit_prefill(np.array([100.0, 100]), np.array([0.1, 0.1]), None, 8192)


def test_throughput_is_that_of_the_stairs() -> None:
    # 8 prompts of 1000 tokens are done at the end of each iteration of 0.8 s: 10,000 tokens/s.
    done_s = 3.0 + np.repeat(np.arange(12) * 0.8, 8)
    assert throughput_tps(done_s, np.full(96, 1000.0)) == pytest.approx(10_000, rel=0.002)
    assert throughput_tps(done_s[:3], np.full(3, 1000.0)) is None
    assert throughput_tps(np.empty(0), np.empty(0)) is None


def test_a_p99_is_known_when_its_interval_is_narrow() -> None:
    rng = np.random.default_rng(1)
    few, many = rng.normal(0.02, 0.004, 8), rng.normal(0.02, 0.004, 3000)
    assert p99_known(few)[1] > 0.05 > p99_known(many)[1]
    assert p99_known(many)[0] == pytest.approx(0.02 + 2.326 * 0.004, rel=0.02)
    assert p99_known(np.full(8, 0.02)) == pytest.approx((0.02, 0))
    assert p99_known(few[:2])[1] == float("inf")


def test_a_curve_that_falls_by_noise_is_flattened() -> None:
    points = [(1, 8.0), (2, 8.4), (4, 8.3), (8, 9.0)]
    decode = DecodeProfile(
        kind="decode-sweep",
        source="s",
        points=[DecodePoint(batch=b, tpot_ms=t) for b, t in points],
    )
    assert decode.curve() == [(1, 8.0), (2, 8.35), (4, 8.35), (8, 9.0)]


def test_of_several_contexts_the_wanted_one_is_taken() -> None:
    points = [
        DecodePoint(batch=b, tpot_ms=t, context_tokens=c)
        for b, t, c in ((1, 8, 1000), (8, 9, 1000), (1, 10, 8000), (8, 12, 8100))
    ]
    decode = DecodeProfile(kind="bench_one_batch", source="s", points=points)
    assert decode.curve() == [(1, 10.0), (8, 12.0)]
    assert decode.curve(1200) == [(1, 8.0), (8, 9.0)]


# -- files of others ---------------------------------------------------------------------------------


def test_bench_one_batch(tmp_path: Path) -> None:
    found = load_profile(lines(tmp_path / "result.jsonl", ONE_BATCH))
    assert found.prefill
    assert found.decode
    assert found.prefill.kind == found.decode.kind == "bench_one_batch"
    assert found.prefill.setup_ms == pytest.approx(10)
    assert found.prefill.ms_per_token == pytest.approx(0.1)
    assert found.prefill.max_throughput_tokens_per_s == pytest.approx(65536 / 6.5636, rel=1e-4)
    assert found.decode.curve() == [(1, 8.15), (8, 9.2), (32, 12.8)]


@pytest.mark.parametrize("tool", ["bench_serving", "vllm"])
def test_serving_benchmarks_give_the_batch_by_little(tmp_path: Path, tool: str) -> None:
    mark = {"total_output_tokens_retokenized": 10_099} if tool == "bench_serving" else {}
    rows = [serving(1, 8.2, **mark), serving(16, 10.4, **mark)]
    path = tmp_path / "result"
    if tool == "vllm":
        path.write_text(json.dumps(rows))  # as bench sweep's summary.json
    else:
        lines(path, rows)
    found = load_profile(path)
    assert found.decode
    assert found.decode.kind == tool
    assert found.decode.curve() == [(1, 8.2), (16, 10.4)]
    assert found.decode.points[1].tpot_p99_ms == pytest.approx(10.608)
    assert load_profile(path, 1, 2).decode.curve()[1] == (8, 10.4)  # type: ignore[union-attr]


def test_a_serving_benchmark_with_output_length_1_gives_the_prefill_throughput(
    tmp_path: Path,
) -> None:
    rows = [serving(64, 0.0, total_output_tokens=100, duration=10.24)]
    path = lines(tmp_path / "v.json", rows)
    found = load_profile(path, prefill_instances=2)
    assert found.decode is None
    assert found.prefill
    assert found.prefill.max_throughput_tokens_per_s == pytest.approx(5000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no JSON object"),
        ("{]", "line 1: is not JSON"),
        ("[1, 2]", "holds no JSON object"),
        ('{"a": 1}', "found the keys a, allowed are results of SGLang bench_one_batch"),
        (json.dumps(ONE_BATCH[0]) + "\n{half", "line 2: is not JSON"),
        (json.dumps({**ONE_BATCH[0], "prefill_latency": 0}), "prefill_latency: found 0, allowed"),
        (json.dumps({**ONE_BATCH[0], "input_len": "x"}), 'input_len: found "x", allowed'),
        (json.dumps(serving(1, float("nan"))), "found NaN, allowed"),
        (json.dumps(ONE_BATCH[0]) + "\n" + json.dumps(serving(1, 8)), "allowed is one"),
        ('{"prefill": {"kind": "guess", "source": "s"}}', "prefill.kind: "),
        ('{"prefill": 3}', "prefill: "),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad"
    path.write_text(text)
    with pytest.raises(PlanError) as error:
        load_profile(path)
    assert said in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        load_profile(tmp_path / "none")


# -- who wins ----------------------------------------------------------------------------------------


def prefill(kind: Any, tps: float) -> EngineProfile:
    part = PrefillProfile(kind=kind, source=f"a {kind}", max_throughput_tokens_per_s=tps)
    return EngineProfile(prefill=part)


def test_the_best_source_wins_and_is_named() -> None:
    found, said = best(
        [prefill("vllm", 1), prefill("prefill-probe", 2), prefill("bench_one_batch", 3)]
    )
    assert found.prefill
    assert found.prefill.max_throughput_tokens_per_s == 2
    assert said == ["prefill: from a prefill-probe (over a bench_one_batch; a vllm)"]


def test_a_profile_fills_a_plan_in_and_leaves_the_rest() -> None:
    plan = Plan.model_validate(PLAN)
    points = [DecodePoint(batch=b, tpot_ms=t) for b, t in ((1, 8), (64, 17.5))]
    profile = EngineProfile(
        prefill=PrefillProfile(
            kind="prefill-probe",
            source="run 1",
            setup_ms=10,
            overhead_ms=4,
            chunk_tokens=8192,
            max_throughput_tokens_per_s=9500,
        ),
        decode=DecodeProfile(kind="decode-sweep", source="run 2", points=points),
    )
    filled, said = into_plan(plan, [profile])
    assert filled.prefill.max_prefill_throughput_tokens_per_s == 9500
    assert (filled.overhead_ms, filled.iteration_overhead_ms, filled.chunk_tokens) == (4, 10, 8192)
    assert filled.decode.curve == [(1, 8), (64, 17.5)]
    # What was filled in for another curve is gone, what describes the instance is not.
    assert filled.decode.throughput_at_slo_tokens_per_s is None
    assert filled.decode.tp_size == 8
    assert filled.slo == plan.slo
    assert said == ["prefill: from run 1 (over the plan)", "decode: from run 2"]


def test_the_plan_stands_where_nothing_better_is() -> None:
    plan = Plan.model_validate(PLAN)
    filled, said = into_plan(plan, [])
    assert filled == plan
    assert said == ["prefill: from the plan"]


def test_import_writes_a_profile_that_can_be_read_and_a_plan_that_can_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = str(lines(tmp_path / "result.jsonl", ONE_BATCH))
    engine, plan, out = (str(tmp_path / n) for n in ("engine.json", "plan.json", "filled.json"))
    Path(plan).write_text(json.dumps(PLAN))
    monkeypatch.setattr("sys.argv", ["planner", "import", bench, "-o", engine])
    assert main() == 0
    assert load_profile(engine) == load_profile(bench)
    monkeypatch.setattr("sys.argv", ["planner", "import", engine, "--plan", plan, "-o", out])
    assert main() == 0
    assert load_plan(out).decode.curve == [(1, 8.15), (8, 9.2), (32, 12.8)]
    assert "prefill: from SGLang bench_one_batch" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["planner", "import", engine, "--decode-instances", "0"])
    assert main() == 1


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    path.write_text(dump_profile(prefill("prefill-probe", 5)))
    assert load_profile(path) == prefill("prefill-probe", 5)
