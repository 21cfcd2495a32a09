"""Scenarios against emulators whose engine is known; the figures they take from records."""

import json
from pathlib import Path

import numpy as np
import pytest

from pd_users.scenario_probe import lengths_around, saturating
from pd_users.scenario_setting import Setting
from pd_users.scenario_sweep import batches_up_to
from planner.config import load_plan
from planner.imports import load_profile
from tests.processes import Finished, Locust, emulator, headless

WORKLOAD = """
rate_rps: 5
input: {dist: uniform, low: 100, high: 800}
output: {dist: fixed, value: 32}
"""
# Prefill 10 + 0.1 L + 2e-6 L^2 ms, transfer 4 + 0.002 L ms, a decode step 10 + 0.5 b + 0.00002 KV ms
CLUSTER = ("--prefill", "1", "--decode", "1", "--chunk-tokens", "2048")
DECODE = ("--decode-ms", "10,0.5,0.00002")


def setting(**more: int) -> Setting:
    lengths = np.array([1000, 2000])
    given = {"prefill": 2, "decode": 1, "cap": 64, "chunk_tokens": 8192, **more}
    return Setting(**given, input_tokens=lengths, output_tokens=lengths)


def test_lengths_cover_the_workload_or_lie_around_its_one_length() -> None:
    assert lengths_around(np.arange(100, 1101)) == [200, 400, 600, 850, 1090]
    assert lengths_around(np.full(50, 1000)) == [250, 500, 1000, 1500, 2000]
    assert len(lengths_around(np.ones(50, int))) == 5


def test_batches_double_up_to_the_cap() -> None:
    assert batches_up_to(16) == [1, 2, 4, 8, 16]
    assert batches_up_to(20) == [1, 2, 4, 8, 16, 20]
    assert batches_up_to(1) == [1]


def test_every_p_is_given_two_iterations_as_far_as_d_has_slots() -> None:
    assert saturating([2048], setting()) == 16
    assert saturating([512], setting()) == 64
    assert saturating([512], setting(cap=10)) == 10


def start(tmp_path: Path, url: str, scenario: str, *more: str) -> tuple[str, ...]:
    workload = tmp_path / "small.yaml"
    workload.write_text(WORKLOAD)
    return ("-H", url, "--workload", str(workload), "--scenario", scenario, *more)


def folder_of(finished: Finished) -> Path:
    (folder,) = finished.run_dir.iterdir()
    return folder


@pytest.mark.process
def test_a_prefill_probe_finds_the_engine_and_fills_the_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    slo = {"ttft_p99_ms": 500, "tpot_p99_ms": 50}
    plan.write_text(json.dumps({"slo": slo, "chunk_tokens": 2048}))
    with emulator(*CLUSTER) as cluster:
        arguments = start(tmp_path, cluster.url, "prefill-probe", "--plan", str(plan), "-t", "10")
        finished = headless(*arguments, run_dir=tmp_path / "runs")
    assert finished.code == 0, finished.output
    folder = folder_of(finished)
    assert {p.name for p in folder.iterdir()} == {"records.csv.gz", "engine.json", "plan.json"}
    prefill = load_profile(folder / "engine.json").prefill
    assert prefill is not None
    # Over the lengths that were probed the slope is 0.1 + 2 * 2e-6 * L, and 0.002 of transfer.
    low, high = prefill.points[0], prefill.points[-1]
    slope = (high[1] - low[1]) / (high[0] - low[0])
    truth = 0.1 + 2e-6 * (low[0] + high[0])
    assert slope == pytest.approx(truth, rel=0.05)
    filled = prefill.service_ms(high[0]) - prefill.service_ms(low[0])
    assert filled / (high[0] - low[0]) == pytest.approx(truth, rel=0.05)
    # A full iteration: 10 ms, and 0.1 ms a token with a square of prompts near 480 tokens.
    most = 1000 / (10 / 2048 + 0.1 + 2e-6 * 480)
    assert prefill.max_throughput_tokens_per_s == pytest.approx(most, rel=0.05)
    planned = load_plan(folder / "plan.json")
    assert planned.prefill.max_prefill_throughput_tokens_per_s == pytest.approx(most, rel=0.05)
    assert "prefill: from prefill-probe" in finished.output


@pytest.mark.process
def test_a_decode_sweep_finds_the_step_time_of_each_batch(tmp_path: Path) -> None:
    with emulator(*CLUSTER, *DECODE) as cluster:
        arguments = start(tmp_path, cluster.url, "decode-sweep", "-t", "20", "-u", "16")
        finished = headless(*arguments, run_dir=tmp_path / "runs")
    assert finished.code == 0, finished.output
    decode = load_profile(folder_of(finished) / "engine.json").decode
    assert decode is not None
    assert [p.batch for p in decode.points] == pytest.approx([1, 2, 4, 8, 16], rel=0.1)
    for p in decode.points:
        assert p.context_tokens is not None
        truth = 10 + 0.5 * p.batch + 2e-5 * p.batch * p.context_tokens
        assert p.tpot_ms == pytest.approx(truth, rel=0.03), p


@pytest.mark.full
@pytest.mark.process
def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    with emulator(*CLUSTER) as cluster:
        arguments = start(tmp_path, cluster.url, "prefill-probe", "-t", "60")
        run = Locust("--headless", *arguments, run_dir=tmp_path / "runs")
        run.wait_for("saturating")
        run.process.send_signal(2)
        finished = run.finish(20)
    assert finished.code == 1
    prefill = load_profile(folder_of(finished) / "engine.json").prefill
    assert prefill is not None
    assert "cut short" in prefill.source
    assert len(prefill.points) == 5


@pytest.mark.process
def test_a_scenario_says_what_is_wrong_in_one_sentence(tmp_path: Path) -> None:
    arguments = start(tmp_path, "http://127.0.0.1:9", "prefill-probe")
    finished = headless(*arguments, "--master", run_dir=tmp_path / "runs")
    assert finished.code == 1
    assert "error: --scenario: it runs in one process" in finished.output
    finished = headless("-H", "http://127.0.0.1:9", "--scenario", "probe", run_dir=tmp_path)
    assert finished.code == 1
    assert "--scenario: found 'probe', allowed are prefill-probe, decode-sweep" in finished.output
    assert "Traceback" not in finished.output


@pytest.mark.process
def test_a_target_that_fails_ends_a_scenario_with_its_name(tmp_path: Path) -> None:
    with emulator("--fault", "429=1") as cluster:
        arguments = start(
            tmp_path, cluster.url, "prefill-probe", "--no-preflight", "--model", "emulated"
        )
        finished = headless(*arguments, run_dir=tmp_path / "runs")
    assert finished.code == 22, finished.output
    assert "error: The last 5 requests failed: rate-limited" in finished.output
    assert (folder_of(finished) / "records.csv.gz").exists()
