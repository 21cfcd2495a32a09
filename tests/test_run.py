"""Real locust processes against the emulator, whose own log is the truth."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, Finished, Row, emulator, headless

pytestmark = pytest.mark.process

# A cluster with room to spare, short outputs: what is measured here is us.
ROOMY = ("--prefill", "4", "--decode", "2", "--max-running-requests", "256")
LIGHT = ("--workload", "azure_code_2023", "--rate", "15", "-t", "8", "--warmup", "1")
COLUMNS = (
    *("index", "worker", "class", "due_s", "sent_s", "first_token_s", "second_token_s"),
    *("last_token_s", "done_s", "planned_input_tokens", "planned_output_tokens", "input_tokens"),
    *("cached_tokens", "output_tokens", "n_first", "token_source", "clock", "outcome"),
)


def assert_adds_up(finished: Finished) -> None:
    """DESIGN 4.1: every due arrival is one row, and one of the counts."""
    arrivals = finished.run["arrivals"]
    counted = (
        arrivals["succeeded"]
        + sum(arrivals["failed"].values())
        + arrivals["unfinished"]
        + arrivals["unsent"]
        + arrivals["lost"]
    )
    assert arrivals["due"] == counted == len(finished.records)
    assert arrivals["duplicates"] == 0
    assert len({r["index"] for r in finished.records}) == len(finished.records)


def pairs(finished: Finished, truth: dict[str, Row]) -> list[tuple[Row, Row]]:
    """Each success beside what the emulator knows of it."""
    return [(r, truth[f"{finished.run_id}-{int(r['index'])}"]) for r in finished.ok()]


def assert_true(finished: Finished, truth: dict[str, Row]) -> None:
    """TTFT and TPOT of each request agree with the server's own moments, on the one clock there is."""
    matched = pairs(finished, truth)
    assert len(matched) == finished.run["arrivals"]["succeeded"] > 0
    start_s = finished.run["client"]["start_monotonic_s"]
    way_ms = [1000 * abs(start_s + o["first_token_s"] - i["first_token_s"]) for o, i in matched]
    assert statistics.median(way_ms) < 1  # from the server's write to the client's stamp
    assert statistics.quantiles(way_ms, n=20)[-1] < 3
    ttft_ms, tpot_ms = [], []
    for ours, its in matched:
        assert ours["output_tokens"] == its["output_tokens"]
        mine = ours["first_token_s"] - ours["sent_s"]
        ttft_ms.append(1000 * abs(mine - (its["first_token_s"] - its["received_s"])))
        if ours["output_tokens"] > 1:
            n = ours["output_tokens"] - 1
            span = ours["last_token_s"] - ours["first_token_s"]
            tpot_ms.append(1000 * abs(span - (its["last_token_s"] - its["first_token_s"])) / n)
    assert statistics.median(ttft_ms) < 2
    assert statistics.median(tpot_ms) < 0.3


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Finished, dict[str, Row]]]:
    """The same run by 1, 2 and 3 workers (1: a local run)."""
    out = {}
    for workers in (1, 2, 3):
        with emulator(*ROOMY) as cluster:
            many = ("--processes", str(workers)) if workers > 1 else ()
            run_dir = tmp_path_factory.mktemp(f"workers{workers}")
            finished = headless("-H", cluster.url, *LIGHT, *many, run_dir=run_dir)
            out[workers] = finished, cluster.truth()
    return out


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_run_accounts_for_every_arrival(
    runs: dict[int, tuple[Finished, dict[str, Row]]], workers: int
) -> None:
    finished, _ = runs[workers]
    assert_adds_up(finished)
    assert finished.run["arrivals"]["succeeded"] == len(finished.records)
    assert finished.run["workers"] == workers
    assert finished.code == finished.run["exit_code"]


@pytest.mark.parametrize("workers", [1, 2])
def test_ttft_and_tpot_are_those_of_the_server(
    runs: dict[int, tuple[Finished, dict[str, Row]]], workers: int
) -> None:
    assert_true(*runs[workers])


def test_any_number_of_workers_sends_the_same_requests_at_the_same_moments(
    runs: dict[int, tuple[Finished, dict[str, Row]]],
) -> None:
    def sent(workers: int) -> list[tuple[float, ...]]:
        keys = ("index", "due_s", "planned_input_tokens", "planned_output_tokens")
        return sorted(tuple(r[k] for k in keys) for r in runs[workers][0].records)

    assert sent(1) == sent(2) == sent(3)


def test_the_files_have_the_promised_names_and_columns(
    runs: dict[int, tuple[Finished, dict[str, Row]]],
) -> None:
    finished, _ = runs[2]
    assert {p.name for p in finished.run_dir.iterdir()} == {
        "run.json",
        "records.csv.gz",
        "report.html",
    }
    assert finished.run_id.endswith("Z-1")
    assert list(finished.records[0]) == list(COLUMNS)
    assert (finished.run_dir / "report.html").read_text(encoding="utf-8").startswith("<!doctype")


def test_without_a_host_the_emulator_comes_and_goes_with_the_run(tmp_path: Path) -> None:
    finished = headless(*LIGHT[:4], "-t", "3", run_dir=tmp_path)
    assert finished.run["emulated"] is True
    assert finished.code == 20  # three seconds of traffic prove nothing
    port = finished.run["target"].rsplit(":", 1)[1].strip("/")
    listening = Path("/proc/net/tcp").read_text(encoding="ascii") if os.name == "posix" else ""
    assert f":{int(port):04X} 00000000:0000 0A" not in listening


def test_the_planner_decides_the_same_again_without_locust(
    runs: dict[int, tuple[Finished, dict[str, Row]]], tmp_path: Path
) -> None:
    finished, _ = runs[2]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"slo": {"ttft_p99_ms": 500, "tpot_p99_ms": 50, "target_qps": 15}}))
    command = [sys.executable, "-m", "planner", "decide", str(plan), str(finished.run_dir)]
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == finished.code, again.stdout + again.stderr
    assert finished.run["verdict"] in again.stdout
