"""Workers that a master cannot use, and a master that its worker loses: real processes, one sentence."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import ROOT, Emulator, Finished, Locust, emulator, free_port

pytestmark = pytest.mark.process
OLD_WORKER = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
import pd_users
pd_users.VERSION = "0.0.1"
from pd_users.hooks import install
from pd_users.users import PDUser
class PDTraffic(PDUser):
    pass
install()
"""
MOVED = OLD_WORKER.replace('pd_users.VERSION = "0.0.1"', "os.chdir({folder!r})")
FIXED = "input: {dist: fixed, value: 50}\noutput: {dist: fixed, value: %d}\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Emulator]:
    with emulator("--prefill-ms", "2,0.01,0") as running:
        yield running


def master(cluster: Emulator, folder: Path, port: int, *arguments: str, workers: int = 1) -> Locust:
    bind = ("--master-bind-host", "127.0.0.1", "--master-bind-port", str(port))
    return Locust(
        *("--headless", "--master", *bind, "--expect-workers", str(workers), "-H", cluster.url),
        *("--rate", "20", "--warmup", "0", *arguments),
        run_dir=folder / "runs",
    )


def worker(folder: Path, port: int, file: str = "") -> Locust:
    where = ("--master-host", "127.0.0.1", "--master-port", str(port))
    return Locust("--worker", *where, run_dir=folder / "runs", file=file)


def end(*all_of_them: Locust) -> Finished:
    """The end of each; what the first one printed."""
    first, *_ = [one.finish(60) for one in all_of_them]
    assert "Traceback" not in first.output
    return first


def test_a_worker_of_another_version_is_refused_and_the_others_run(
    cluster: Emulator, tmp_path: Path
) -> None:
    old = tmp_path / "old.py"
    old.write_text(OLD_WORKER)
    port = free_port()
    one = master(cluster, tmp_path, port, "-t", "3", "--workload", "D(50,5)", workers=2)
    finished = end(one, worker(tmp_path, port, str(old)), worker(tmp_path, port))
    assert re.search(r"Worker \S+ is refused: version 0\.0\.1, the master is ", finished.output)
    assert finished.run["workers"] == 1
    assert finished.run["arrivals"]["succeeded"] == finished.run["arrivals"]["due"] > 0


def test_a_worker_with_another_workload_file_ends_the_run_with_a_sentence(
    cluster: Emulator, tmp_path: Path
) -> None:
    here, there = tmp_path / "mine.yaml", tmp_path / "elsewhere"
    there.mkdir()
    here.write_text(FIXED % 5)
    (there / "mine.yaml").write_text(FIXED % 9)
    file, same = there / "moved.py", tmp_path / "same.py"
    file.write_text(MOVED.replace("{folder!r}", repr(str(there))))
    same.write_text(MOVED.replace("{folder!r}", repr(str(tmp_path))))
    port = free_port()
    bind = ("--master-bind-host", "127.0.0.1", "--master-bind-port", str(port))
    leader = Locust(
        *("--headless", "--master", *bind, "--expect-workers", "1", "-H", cluster.url),
        *("--rate", "20", "-t", "3", "--workload", "mine.yaml"),
        run_dir=tmp_path / "runs",
        file=str(same),
    )
    finished = end(leader, worker(tmp_path, port, str(file)))
    assert finished.code == 1
    assert "differs on this worker" in finished.output
    assert "copy the same file" in finished.output
    assert finished.run == {}


def test_a_worker_whose_master_is_gone_stops_sending_and_says_so(
    cluster: Emulator, tmp_path: Path
) -> None:
    port = free_port()
    leader = master(cluster, tmp_path, port, "-t", "60", "--workload", "D(50,5)")
    left = worker(tmp_path, port)
    leader.wait_for(r"of 60 s: [1-9]", timeout_s=60)
    os.kill(leader.process.pid, signal.SIGKILL)
    gone_s = time.monotonic()
    left.wait_for("The master has not been heard for 3 s: sending has stopped", timeout_s=30)
    told_s = time.monotonic()
    assert told_s - gone_s < 6
    left.process.terminate()
    left.finish(30)
    leader.finish(10)
    last_s = max(row["received_s"] for row in cluster.truth().values())
    assert last_s - gone_s < 3.5
    assert last_s > gone_s + 0.5  # it did send when the master fell silent


def test_a_master_alone_gives_up_with_a_sentence(cluster: Emulator, tmp_path: Path) -> None:
    finished = end(
        master(cluster, tmp_path, free_port(), "-t", "3", "--expect-workers-max-wait", "2")
    )
    assert finished.code == 1
    assert "Gave up waiting for workers" in finished.output


@pytest.mark.full
def test_more_workers_than_users_is_told_and_runs(cluster: Emulator, tmp_path: Path) -> None:
    port = free_port()
    one = master(cluster, tmp_path, port, "-t", "3", "-u", "1", "--workload", "D(50,5)", workers=2)
    finished = end(one, worker(tmp_path, port), worker(tmp_path, port))
    assert "2 workers share -u 1" in finished.output
    arrivals = finished.run["arrivals"]
    assert arrivals["due"] > 0
    assert arrivals["duplicates"] == 0
