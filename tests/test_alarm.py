"""A run that can only fail is stopped early, with what was measured kept."""

from pathlib import Path

import pytest

from tests.processes import emulator, headless
from tests.test_run import assert_adds_up

pytestmark = pytest.mark.process
LOAD = ("--workload", "azure_code_2023", "--rate", "20", "-t", "40", "--model", "emulated")
FAST = ("--prefill", "4", "--prefill-ms", "2,0.01,0")
KEY = {"PD_TEST_KEY": "sk-good-key-123"}
WITH_KEY = ("--api-key-env", "PD_TEST_KEY")


def test_a_key_that_expires_stops_the_load_within_five_seconds(tmp_path: Path) -> None:
    with emulator(*FAST, *WITH_KEY, "--key-expires", "14", env=KEY) as cluster:
        finished = headless("-H", cluster.url, *LOAD, *WITH_KEY, run_dir=tmp_path, env=KEY)
    assert_adds_up(finished)
    failed = [r for r in finished.records if r["outcome"] == "auth"]
    assert finished.ok()
    assert failed
    assert max(r["due_s"] for r in finished.records) - min(r["due_s"] for r in failed) < 5
    assert "refused the key" in finished.run["partial_reason"]
    assert finished.code not in (0, 1)
    assert "sk-good-key-123" not in finished.output


def test_when_all_first_requests_fail_alike_the_run_stops(tmp_path: Path) -> None:
    with emulator(*FAST, "--fault", "503=1") as broken:
        stopped = headless("-H", broken.url, *LOAD, "--no-preflight", run_dir=tmp_path)
    assert_adds_up(stopped)
    assert stopped.code == 22
    assert stopped.run["verdict"] == "target-errors"
    assert len(stopped.records) < 400  # of 800
    assert "unavailable" in stopped.output  # by name, with its cure
