"""However a run ends, every due arrival is accounted for, and what was measured is written.

A matrix of the ways to run and the ways to end; a cell for each row and each column here, all of them
with ``-m full``. A local run has no other process that could be killed.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import (
    LOCUST,
    Emulator,
    Finished,
    Locust,
    emulator,
    free_port,
    unheard,
    wait_until,
)
from tests.test_run import assert_adds_up
from tests.webui import ask, swarm, wait_for

pytestmark = pytest.mark.process
RATE, WINDOW_S = 40, 14
LOAD = ("--workload", "azure_code_2023", "--rate", str(RATE), "-t", str(WINDOW_S), "--warmup", "1")
FAST = (
    *("--prefill", "4", "--decode", "2", "--prefill-ms", "2,0.01,0"),
    *("--max-running-requests", "256"),
)
ROWS = ("local", "processes", "master", "web")
SIGNALS = ("SIGINT", "SIGTERM", "SIGINT group", "SIGTERM group", "SIGINT twice")
COLUMNS = (
    *("duration", "autoquit", "web stop", *SIGNALS),
    *("worker SIGKILL", "workers SIGKILL", "target gone", "disk full"),
    *("worker SIGSTOP 2 s", "worker SIGSTOP 5 s", "worker SIGSTOP 7 s"),
)
LONG_ASLEEP = ("worker SIGSTOP 5 s", "worker SIGSTOP 7 s")
EACH_TIME = (
    ("local", "SIGTERM"),
    ("local", "target gone"),
    ("processes", "SIGINT group"),
    ("master", "worker SIGKILL"),
    ("master", "workers SIGKILL"),
    ("master", "worker SIGSTOP 5 s"),
    ("master", "disk full"),
    ("web", "web stop"),
)
NOT_THERE = (  # a local run has nobody left to tell
    *((row, f"{who} SIGKILL") for row in ("local", "web") for who in ("worker", "workers")),
    ("web", "autoquit"),  # for a run that starts by itself
)
CELLS = [(r, c) for c in COLUMNS for r in ROWS if (r, c) not in NOT_THERE]
# A run directory with room for a few files, in a mount of the process's own.
SMALL_DISK = (
    *("unshare", "--map-root-user", "--mount", "sh", "-c"),
    'mount -t tmpfs -o size=16k none "$0" && exec "$@"',
)


@dataclass
class Running:
    """A leading process and its workers."""

    locust: Locust
    url: str  # of the web UI; '' when headless
    workers: list[int]
    started: "list[subprocess.Popen[bytes]]"

    def end(self) -> Finished:
        """Wait for the end; a process that stays for its web page is told to go."""
        if self.url and self.locust.process.poll() is None:
            self.locust.wait_for("Files: ", 60)
            self.locust.process.terminate()
        finished = self.locust.finish(60)
        for process in self.started:
            process.wait(timeout=20)
        return finished

    def signal(self, how: str) -> None:
        """Send what the column says."""
        number = signal.SIGTERM if "SIGTERM" in how else signal.SIGINT
        pid = self.locust.process.pid
        for one in (pid, *self.workers) if "group" in how else (pid,):
            os.kill(one, number)
        if "twice" in how:
            os.kill(pid, number)


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def start(row: str, column: str, cluster: Emulator, folder: Path) -> Running:
    """A run of that kind, some seconds into its window."""
    url, how = "", ["--headless"]
    if row == "web" or column in ("autoquit", "web stop"):
        port = str(free_port())
        url = f"http://127.0.0.1:{port}"
        how = ["--web-host", "127.0.0.1", "--web-port", port]
        how += ["--autostart"] if row != "web" else []
        how += ["--autoquit", "0"] if column == "autoquit" else []
    started = []
    if row == "processes":
        how += ["--processes", "2"]
    if row == "master":
        port = str(free_port())
        how += ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port]
        how += ["--expect-workers", "3"]
        one = [*LOCUST, "--worker", "--master-host", "127.0.0.1", "--master-port", port]
        started = [unheard(one) for _ in range(3)]
    runs, spare = folder / "runs", folder / "spare"
    runs.mkdir()
    spare.mkdir()
    locust = Locust(
        *("-H", cluster.url, *LOAD, *how),
        run_dir=runs,
        env={"TMPDIR": str(spare)},
        inside=(*SMALL_DISK, str(runs)) if column == "disk full" else (),
    )
    running = Running(locust, url, [p.pid for p in started], started)
    if url:
        wait_for(url)
        if row == "web":
            form = {"workload": LOAD[1], "rate": LOAD[3], "run_time": f"{WINDOW_S}s"}
            assert swarm(url, host=cluster.url, **form)["success"] is True
        wait_until(lambda: ask(url, "/capacity/data").get("reported", 0) > RATE, 60)
    else:
        locust.wait_for(rf"of {WINDOW_S} s: [1-9]", timeout_s=60)
    if row == "processes":
        running.workers = children(locust.process.pid)
    return running


def happen(column: str, running: Running, cluster: Emulator) -> None:
    """What the column says."""
    if column == "web stop":
        ask(running.url, "/stop", b"")
    elif "SIGKILL" in column:
        for pid in running.workers if "workers" in column else running.workers[:1]:
            os.kill(pid, signal.SIGKILL)
    elif "SIGSTOP" in column:
        asleep = running.workers[0] if running.workers else running.locust.process.pid
        nap = f"import os,time;os.kill({asleep},19);time.sleep({column.split()[2]});"
        subprocess.run([sys.executable, "-c", f"{nap}os.kill({asleep},18)"], check=True)
    elif column in SIGNALS:
        running.signal(column)
    elif column == "target gone":
        cluster.process.kill()


@pytest.fixture
def cluster() -> Iterator[Emulator]:
    with emulator(*FAST) as running:
        yield running


@pytest.mark.parametrize(
    ("row", "column"),
    [c if c in EACH_TIME else pytest.param(*c, marks=pytest.mark.full) for c in CELLS],
    ids=[f"{row}, {column}" for row, column in CELLS],
)
def test_every_due_arrival_is_accounted_for(
    cluster: Emulator, tmp_path: Path, row: str, column: str
) -> None:
    if column == "disk full":
        need_mounts(tmp_path)
    running = start(row, column, cluster, tmp_path)
    happen(column, running, cluster)
    finished = running.end()
    if column == "disk full":
        assert "No space left on device" in finished.output
        assert finished.run == {}
        (spare,) = (tmp_path / "spare").glob("pd-load-test-*")
        finished = Finished.read(finished.code, finished.output, spare)
    assert_adds_up(finished)
    if column != "target gone":
        assert_seen(finished, cluster)
    assert "Traceback" not in finished.output
    stopped = column == "web stop" or column in SIGNALS
    if column == "workers SIGKILL":  # Locust misses them after 3 to 4 s, or the window ends before
        stopped = finished.run["stopped_at_s"] < WINDOW_S - 0.05
    assert finished.run["partial"] is stopped
    assert finished.code == (0 if stays(row, column) else finished.run["exit_code"])
    lost = [r["due_s"] for r in finished.records if r["outcome"] == "lost"]
    if "SIGKILL" in column:
        assert finished.run["verdict"] == "client-limited"
    if running.workers and ("SIGKILL" in column or column in LONG_ASLEEP):  # as lost, from 5 s on
        gone = len(running.workers) if column == "workers SIGKILL" else 1
        assert len(lost) <= 1.5 * 8 * RATE * gone / len(running.workers)
        assert not lost or max(lost) - min(lost) < 8.5, finished.run["notes"]  # dealt anew by then
    else:
        assert not lost
    if column == "target gone":
        assert finished.run["verdict"] == "target-errors"
        assert set(finished.run["arrivals"]["failed"]) <= {"connect", "reset", "truncated"}


def stays(row: str, column: str) -> bool:
    """Whether Locust stays for its web page, and then leaves with its own code."""
    return row == "web" or column == "web stop"


def assert_seen(finished: Finished, cluster: Emulator) -> None:
    """The target's own log: all that was sent came, once; nothing else did."""
    arrivals = finished.run["arrivals"]
    run_id = finished.run["run_id"]
    seen = [key for key in cluster.truth() if key.startswith(run_id)]
    assert len(seen) == len(set(seen))
    never_sent = arrivals["unsent"] + arrivals["lost"]
    assert arrivals["due"] - never_sent <= len(seen) <= arrivals["due"] - arrivals["unsent"]


def need_mounts(folder: Path) -> None:
    tried = subprocess.run([*SMALL_DISK, folder, "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no mount of one's own here: {tried.stderr.decode().strip()}")


def test_without_any_place_for_its_files_a_run_still_has_its_verdict(
    cluster: Emulator, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file where a folder was meant to be")
    locust = Locust(
        *("--headless", "-H", cluster.url, *LOAD[:4], "-t", "3"),
        run_dir=tmp_path / "taken",
        env=dict.fromkeys(("TMPDIR", "TEMP", "TMP"), "/dev/null"),
    )
    finished = locust.finish(60)
    assert "Verdict: inconclusive" in finished.output
    assert "nothing could be written there" in finished.output
    assert finished.code == 20
