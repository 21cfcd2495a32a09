"""However a run ends, every due arrival is accounted for, and what was measured is written.

One cell per row and column of {local, --processes, master + workers} x {signals, losses} here; all of
them with ``-m full``. The web UI's stop button is in test_web.py, the end of the window in test_run.py.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import LOCUST, ROOT, Emulator, Finished, Locust, emulator
from tests.test_run import assert_adds_up

pytestmark = pytest.mark.process
RATE = 40.0
LOAD = ("--workload", "azure_code_2023", "--rate", str(int(RATE)), "-t", "14", "--warmup", "1")
FAST = (
    "--prefill",
    "4",
    "--decode",
    "2",
    "--prefill-ms",
    "2,0.01,0",
    "--max-running-requests",
    "256",
)


@dataclass
class Running:
    """A leading process and its workers."""

    locust: Locust
    workers: list[int]
    started: "list[subprocess.Popen[bytes]]"

    def end(self) -> Finished:
        finished = self.locust.finish(60)
        for process in self.started:
            process.wait(timeout=20)
        return finished


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(mode: str, cluster: Emulator, run_dir: Path) -> Running:
    """A run of that mode, some seconds into its window."""
    load = ("--headless", "-H", cluster.url, *LOAD)
    if mode == "master":
        port = str(free_port())
        bind = ("--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port)
        locust = Locust(*load, *bind, "--expect-workers", "3", run_dir=run_dir)
        one = [*LOCUST, "--worker", "--master-host", "127.0.0.1", "--master-port", port]
        quiet = subprocess.DEVNULL
        started = [
            subprocess.Popen(one, cwd=ROOT, stdin=quiet, stdout=quiet, stderr=quiet)
            for _ in range(3)
        ]
        running = Running(locust, [p.pid for p in started], started)
    else:
        many = ("--processes", "2") if mode == "processes" else ()
        locust = Locust(*load, *many, run_dir=run_dir)
        running = Running(locust, [], [])
    locust.wait_for(r"of 14 s: [1-9]", timeout_s=60)
    if mode == "processes":
        running.workers = children(locust.process.pid)
    return running


@pytest.fixture
def cluster() -> Iterator[Emulator]:
    with emulator(*FAST) as running:
        yield running


def reached(cluster: Emulator, finished: Finished) -> int:
    """Requests of the run that the target saw."""
    return sum(key.startswith(finished.run_id) for key in cluster.truth())


def check(finished: Finished, cluster: Emulator, lost: int = 0) -> None:
    """Accounts add up, against what the target saw as well."""
    assert_adds_up(finished)
    arrivals = finished.run["arrivals"]
    never_sent = arrivals["unsent"] + arrivals["lost"]
    seen = reached(cluster, finished)
    assert arrivals["due"] - never_sent <= seen <= arrivals["due"] - arrivals["unsent"]
    assert arrivals["lost"] <= lost
    assert finished.code == finished.run["exit_code"]


MODES = ("local", "processes", "master")
CELLS = [("local", "SIGTERM"), ("processes", "SIGINT group")]
ALL = [
    (m, s)
    for m in MODES
    for s in ("SIGINT", "SIGTERM", "SIGINT group", "SIGTERM group", "SIGINT twice")
]


@pytest.mark.parametrize(
    ("mode", "how"),
    [c if c in CELLS else pytest.param(*c, marks=pytest.mark.full) for c in ALL],
    ids=[f"{m} {s}" for m, s in ALL],
)
def test_a_signal_drains_and_concludes(
    cluster: Emulator, tmp_path: Path, mode: str, how: str
) -> None:
    running = start(mode, cluster, tmp_path)
    number = signal.SIGTERM if "SIGTERM" in how else signal.SIGINT
    pid = running.locust.process.pid
    if "group" in how:
        for one in (pid, *running.workers):
            os.kill(one, number)
    else:
        os.kill(pid, number)
    if "twice" in how:
        os.kill(pid, number)
    finished = running.end()
    check(finished, cluster)
    assert finished.run["partial"] is True
    assert "Traceback" not in finished.output


@pytest.mark.parametrize("mode", ["master", pytest.param("processes", marks=pytest.mark.full)])
def test_a_killed_worker_has_its_arrivals_dealt_to_the_others(
    cluster: Emulator, tmp_path: Path, mode: str
) -> None:
    running = start(mode, cluster, tmp_path)
    os.kill(running.workers[0], signal.SIGKILL)
    finished = running.end()
    share = 8 * RATE / len(running.workers)
    check(finished, cluster, lost=int(1.5 * share))
    lost = [r["due_s"] for r in finished.records if r["outcome"] == "lost"]
    assert max(lost) - min(lost) < 8.5, finished.run["notes"]  # noticed, and dealt anew
    assert finished.run["verdict"] == "client-limited"


@pytest.mark.full
@pytest.mark.parametrize("mode", ["master", "processes"])
@pytest.mark.parametrize("seconds", [2, 5, 7])
def test_a_worker_that_was_only_asleep_sends_nothing_twice(
    cluster: Emulator, tmp_path: Path, mode: str, seconds: int
) -> None:
    running = start(mode, cluster, tmp_path)
    nap = f"import os,signal,time;os.kill({running.workers[0]},19);time.sleep({seconds});"
    nap += f"os.kill({running.workers[0]},18)"
    subprocess.run([sys.executable, "-c", nap], check=True)
    finished = running.end()
    assert_adds_up(finished)
    ids = [key for key in cluster.truth() if key.startswith(finished.run_id)]
    assert len(ids) == len(set(ids))


def test_a_target_that_goes_away_is_told_and_accounted_for(tmp_path: Path) -> None:
    with emulator(*FAST) as cluster:
        running = start("local", cluster, tmp_path)
        cluster.process.kill()
        finished = running.end()
    assert_adds_up(finished)
    assert finished.run["verdict"] == "target-errors"
    assert finished.code == 22
    assert set(finished.run["arrivals"]["failed"]) <= {"connect", "reset", "truncated"}


def test_a_run_folder_that_cannot_be_written_costs_the_files_not_the_verdict(
    cluster: Emulator, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file where a folder was meant to be")
    locust = Locust(
        "--headless", "-H", cluster.url, *LOAD[:4], "-t", "3", run_dir=tmp_path / "taken"
    )
    finished = locust.finish(60)
    assert "Verdict: inconclusive" in finished.output
    assert "nothing could be written there" in finished.output
    assert finished.code == 20
