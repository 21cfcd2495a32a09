"""examples/ci-round.sh, as docs/ci.md has it: rounds that end in the verdict's code and leave their files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, emulator

PLAN = {
    "slo": {"ttft_p99_ms": 2000, "tpot_p99_ms": 60, "target_qps": 25},
    "deployment": {"prefill_instances": 4, "decode_instances": 2, "max_running_requests": 64},
}


@pytest.mark.process
def test_two_rounds_leave_their_files_and_the_verdicts_code(tmp_path: Path) -> None:
    plan, rounds = tmp_path / "plan.json", tmp_path / "rounds"
    plan.write_text(json.dumps(PLAN))
    codes = []
    with emulator("--prefill", "4", "--decode", "2") as cluster:
        for seed in ("1", "2"):
            load = f"-H {cluster.url} --workload D(100,5) -t 4 --warmup 0 --seed {seed}"
            environ = {
                **os.environ,
                "PLAN": str(plan),
                "ROUNDS": str(rounds),
                "LOAD": load,
                "PYTHON": sys.executable,
            }
            done = subprocess.run(
                [str(ROOT / "examples" / "ci-round.sh")],
                env=environ,
                capture_output=True,
                text=True,
                check=False,
                timeout=90,
            )
            codes.append(done.returncode)
    runs = sorted((rounds / "runs").glob("*/run.json"))
    assert [json.loads(r.read_text())["exit_code"] for r in runs] == codes
    assert len(codes) == 2
    told = json.loads((rounds / "next-plan.json").read_text())
    assert len(told["history"]) == 1
    assert "Verdict" in (rounds / "verdict.txt").read_text()
    assert "The decision table" in (rounds / "explained.txt").read_text()
    assert "are needed for a trend" in (rounds / "trend.txt").read_text()


@pytest.mark.process
def test_a_wrong_setting_ends_a_round_with_one(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    environ = {
        **os.environ,
        "PLAN": str(plan),
        "ROUNDS": str(tmp_path / "r"),
        "LOAD": "-t 4 --workload nothing",
        "PYTHON": sys.executable,
    }
    done = subprocess.run(
        [str(ROOT / "examples" / "ci-round.sh")],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 1
    assert "found 'nothing'" in done.stderr + done.stdout
