"""Conversations, closed loops, classes and pools through real runs: what was asked for is what came."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.processes import Finished, Row, emulator, headless
from tests.test_run import assert_adds_up

pytestmark = pytest.mark.process

TALK = """
users: 12
output: {dist: uniform, low: 4, high: 12}
sessions:
  turns: {dist: uniform, low: 1, high: 6}
  think_s: {dist: lognormal, mean: 0.4, cv: 1}
  first_input: {dist: lognormal, mean: 600, cv: 1}
  new_input: {dist: fixed, value: 60}
  system_tokens: 160
"""
MIX = """
rate_rps: 20
classes:
- {name: chat, weight: 3, input: {dist: lognormal, mean: 500, cv: 1}, output: {dist: fixed, value: 8}}
- name: pool
  weight: 1
  input: {dist: fixed, value: 1000}
  output: {dist: fixed, value: 8}
  prefix: {hit: 0.5, pool: 2}
  slo: {ttft_p99_ms: 1}
"""
ROOMY = ("--prefill", "4", "--decode", "2", "--template-tokens", "23")


def run(tmp_path: Path, workload: str, *more: str) -> tuple[Finished, dict[str, Row]]:
    file = tmp_path / "mine.yaml"
    file.write_text(workload, encoding="utf-8")
    with emulator(*ROOMY) as cluster:
        options = ("-H", cluster.url, "--workload", str(file), "--warmup", "0")
        finished = headless(*options, *more, run_dir=tmp_path / "runs")
        return finished, cluster.truth()


def test_conversations_in_a_closed_loop_over_two_workers(tmp_path: Path) -> None:
    finished, truth = run(tmp_path, TALK, "-t", "7", "--processes", "2")
    assert_adds_up(finished)
    rows = finished.ok()
    assert len(rows) == finished.run["arrivals"]["due"] > 60
    assert {r["worker"] for r in rows} == {0, 1}
    users: dict[int, list[Row]] = {}
    for r in sorted(rows, key=lambda r: r["due_s"]):
        users.setdefault(int(r["index"]) % 2**32, []).append(r)
    assert set(users) == set(range(12))
    grown = 0
    for mine in users.values():
        assert len({r["worker"] for r in mine}) == 1  # a conversation stays where it began
        for a, b in pairwise(mine):
            assert b["due_s"] >= a["done_s"] - 0.001
            history = a["planned_input_tokens"] + a["planned_output_tokens"] + 60
            if b["planned_input_tokens"] == history:
                grown += 1
                # all but the last block of the prompt before is in some P's cache, the answer is not
                assert b["cached_tokens"] <= a["input_tokens"] + 16
    assert grown > 20
    assert all(r["input_tokens"] == r["planned_input_tokens"] for r in rows)
    assert finished.run["input_tokens"]["hit_rate"] > 0.2
    assert len(truth) >= len(rows)


def test_classes_have_rows_and_limits_of_their_own(tmp_path: Path) -> None:
    finished, _ = run(tmp_path, MIX, "-t", "8")
    assert_adds_up(finished)
    by_class = finished.run["classes"]
    rows = finished.ok()
    assert set(by_class) == {"chat", "pool"} == {r["class"] for r in rows}
    for name, told in by_class.items():
        ttft_ms = [1000 * (r["first_token_s"] - r["due_s"]) for r in rows if r["class"] == name]
        assert told["n"] == len(ttft_ms)
        assert told["ttft_p50_ms"] == pytest.approx(np.quantile(ttft_ms, 0.5), rel=0.1)
    assert by_class["pool"]["ttft_violation_rate"] == 1.0  # 1 ms is its limit
    assert by_class["chat"]["ttft_violation_rate"] < 0.1
    pool = [r for r in rows if r["class"] == "pool"]
    assert all(
        r["cached_tokens"] in range(0, 17) for r in rows if r["class"] == "chat"
    )  # the template
    warm = [r["cached_tokens"] for r in pool[12:]]
    assert np.median(warm) == pytest.approx(500, abs=20)
    for name in ("TTFT pool", "TPOT chat"):
        assert name in finished.output


@pytest.mark.full
def test_two_runs_with_one_seed_share_no_prompt_unless_warm(tmp_path: Path) -> None:
    """The second run finds nothing of the first in the caches; with --warm it finds nearly all."""
    file = tmp_path / "mine.yaml"
    file.write_text("rate_rps: 10\nscenario: D(800,4)\n", encoding="utf-8")
    hits = []
    with emulator("--prefill", "1", "--decode", "1") as cluster:
        for warm in ((), (), ("--warm",), ("--warm",)):
            options = (
                "-H",
                cluster.url,
                "--workload",
                str(file),
                "-t",
                "3",
                "--warmup",
                "0",
                *warm,
            )
            hits.append(
                headless(*options, run_dir=tmp_path / "runs").run["input_tokens"]["hit_rate"]
            )
    assert max(hits[:3]) < 0.02
    assert hits[3] > 0.9


@pytest.mark.full
def test_prompts_as_token_ids_are_exact(tmp_path: Path) -> None:
    finished, _ = run(
        tmp_path, "rate_rps: 15\nscenario: N(300,150)/(8,2)\n", "-t", "4", "--prompts", "ids"
    )
    rows = finished.ok()
    assert len(rows) > 30
    assert all(r["input_tokens"] == r["planned_input_tokens"] for r in rows)
