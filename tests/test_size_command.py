"""The command: what it prints, what it takes from a workload."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from planner import size_command
from planner.config import load_plan
from planner.errors import PlanError
from planner.size_command import rate_to_carry

TEMPLATE = Path(__file__).resolve().parent.parent / "examples" / "plan.json"


def test_the_peak_is_what_must_be_carried() -> None:
    assert rate_to_carry(load_plan(TEMPLATE), 5.0, 8.0)[0] == 32  # the plan's 20 req/s at 1.6 times
    no_rate = load_plan(TEMPLATE).model_copy(
        update={"slo": load_plan(TEMPLATE).slo.model_copy(update={"target_qps": None})}
    )
    assert rate_to_carry(no_rate, 5.0, 8.0)[0] == 8
    assert rate_to_carry(no_rate, 5.0, None)[0] == 5
    with pytest.raises(PlanError, match="target_qps"):
        rate_to_carry(no_rate, None, None)


WORKLOAD = """
rate_rps: 20
input: {dist: lognormal, mean: 1434, cv: 0.3}
output: {dist: fixed, value: 512}
"""


def test_the_command_says_floor_reasons_all_methods_and_other_routings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    size_command.add_arguments(parser)
    written = size_command.run(parser.parse_args([str(TEMPLATE)]))
    assert json.loads(written)["ratio"] == {"prefill_to_decode": "4:5"}
    shown = capsys.readouterr()
    first, second, *rest = shown.out.splitlines()
    assert first == "floor: an empty P has P99 TTFT 120 ms, SLO 500 ms"
    assert second == "4P5D by p99, ratio 4:5, 9 GPUs (4 x 1 + 5 x 1)"
    assert any("best, least-load: 4 P; worst, random: 6 P" in line for line in rest)
    assert [line.split()[:3] for line in rest[-4:]] == [
        ["throughput", "3", "4"],
        ["throughput", "3", "5"],
        ["paper", "4", "4"],
        ["p99", "4", "5"],
    ]
    assert shown.err.startswith("mm1-p99: slo.ttft_p99_ms: 500 ms is less than the P99 of an exp")


def test_the_command_takes_a_workload_and_refuses_a_wrong_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    size_command.add_arguments(parser)
    file = tmp_path / "w.yaml"
    file.write_text(WORKLOAD)
    size_command.run(parser.parse_args([str(TEMPLATE), "--workload", str(file)]))
    out = capsys.readouterr().out
    assert "4P5D by p99" in out
    assert "at 20 req/s" in out
    with pytest.raises(PlanError, match="--workload"):
        size_command.run(parser.parse_args([str(TEMPLATE), "--workload", str(tmp_path / "none")]))


COURSE = """
arrivals: {process: poisson, rate: {stages: [{rate_rps: 10, duration_s: 60}, {rate_rps: 30, duration_s: 60}]}}
input:  {dist: fixed, value: 1434}
output: {dist: fixed, value: 512}
"""


def test_a_workload_with_a_busy_stretch_is_sized_for_it(tmp_path: Path) -> None:
    plan, file = load_plan(TEMPLATE), tmp_path / "w.yaml"
    file.write_text(COURSE)
    demand = size_command.of_workload(plan, str(file))  # 20 req/s on average, as in the plan
    assert demand.rate_rps == pytest.approx(30)
    assert demand.traffic.rate_rps == pytest.approx(30)
    gaps_s = np.diff(demand.traffic.at_s)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1, abs=0.03)  # at the peak all along
