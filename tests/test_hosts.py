"""Master, two workers and the target on four hosts (network namespaces): whole, cut and slow links.

The second worker's monotonic clock is 5000 s ahead, as another machine's may be.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import Host, Target, hosts, missing, target
from tests.processes import LOCUST, Finished, Locust, unheard
from tests.test_run import assert_adds_up

pytestmark = pytest.mark.process
RATE = 40
LOAD = ("--workload", "azure_code_2023", "--rate", str(RATE), "--warmup", "1")
FAST = ("--prefill", "4", "--decode", "2", "--prefill-ms", "2,0.01,0")
CUT_S = 5.0
LOST_S, LEAD_S = 5.0, 1.0  # silence until a worker counts as lost; from the new deal to its start
Lan = dict[str, Host]


@pytest.fixture
def lan() -> Iterator[Lan]:
    if why := missing():
        pytest.skip(f"no hosts: {why}")
    with hosts("master", "one", "two", "target") as found:
        yield found


@pytest.fixture
def emulated(lan: Lan) -> Iterator[Target]:
    with target(lan["target"], *FAST, "--max-running-requests", "256") as running:
        yield running


class Run:
    """A headless run whose master and two workers are on hosts of their own."""

    def __init__(self, lan: Lan, emulated: Target, window_s: int, folder: Path) -> None:
        self._window_s = window_s
        self._emulated = emulated
        self._master = Locust(
            *("--headless", "-H", emulated.url, *LOAD, "-t", str(window_s)),
            *("--drain-timeout", "10", "--master", "--expect-workers", "2"),
            run_dir=folder / "runs",
            env={"LOCUST_MASTER_BIND_PORT": "5557"},
            inside=lan["master"].inside(),
        )
        command = [*LOCUST, "--worker", "--master-host", lan["master"].address]
        self._workers = [
            unheard([*lan[name].inside(ahead, folder / name), *command])
            for name, ahead in (("one", 0), ("two", 5000))
        ]

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_error: object) -> None:
        self._master.process.kill()
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def wait_for_second(self, second: int) -> None:
        """Until the run is so old, within a second or two."""
        at = "|".join(str(s) for s in range(second, self._window_s))
        self._master.wait_for(rf"\b({at})(\.\d)? of {self._window_s} s", timeout_s=90)

    def end(self) -> Finished:
        """Wait for the end; every due arrival is accounted for, against the target's log too."""
        finished = self._master.finish(self._window_s + 60)
        truth = self._emulated.truth()
        assert_adds_up(finished)
        assert finished.code == finished.run["exit_code"], finished.output
        assert "Traceback" not in finished.output
        seen = [r["request_id"] for r in truth if r["request_id"].startswith(finished.run_id)]
        assert len(seen) == len(set(seen)), "sent twice"
        arrivals = finished.run["arrivals"]
        sent = arrivals["due"] - arrivals["unsent"]
        assert sent - arrivals["lost"] <= len(seen) <= sent
        return finished


def test_a_run_over_three_hosts(lan: Lan, emulated: Target, tmp_path: Path) -> None:
    with Run(lan, emulated, 8, tmp_path) as run:
        finished = run.end()
    arrivals = finished.run["arrivals"]
    assert arrivals["succeeded"] == arrivals["due"] > 200
    assert {r["worker"] for r in finished.records} == {0, 1}
    # Both started at the same moment by the master's clock, whatever their own says.
    by_index = sorted(finished.ok(), key=lambda r: r["index"])
    lag = [r["sent_s"] - r["due_s"] for r in by_index]
    assert sorted(lag)[len(lag) // 2] < 0.05
    truth = {r["request_id"]: r["received_s"] for r in emulated.truth()}
    shift = [truth[f"{finished.run_id}-{int(r['index'])}"] - r["sent_s"] for r in by_index]
    assert max(shift) - min(shift) < 0.5
    means = [
        sorted(s for s, r in zip(shift, by_index, strict=True) if r["worker"] == w) for w in (0, 1)
    ]
    skew_s = means[0][len(means[0]) // 2] - means[1][len(means[1]) // 2]
    assert abs(skew_s) < 0.05


@pytest.mark.full
def test_a_link_cut_for_five_seconds(lan: Lan, emulated: Target, tmp_path: Path) -> None:
    with Run(lan, emulated, 30, tmp_path) as run:
        run.wait_for_second(6)
        lan["two"].unplug()
        time.sleep(CUT_S)  # what is tested: a cut of this length
        lan["two"].plug()
        finished = run.end()
    lost = [r["due_s"] for r in finished.records if r["outcome"] == "lost"]
    assert len(lost) <= RATE / 2 * (CUT_S + LOST_S + LEAD_S)
    late = [r for r in finished.ok() if r["due_s"] > 25]
    assert {r["worker"] for r in late} == {0, 1}, "the worker that was cut off works again"


@pytest.mark.full
def test_a_link_cut_for_good(lan: Lan, emulated: Target, tmp_path: Path) -> None:
    with Run(lan, emulated, 24, tmp_path) as run:
        run.wait_for_second(6)
        lan["two"].unplug()
        finished = run.end()
    lost = sorted(r["due_s"] for r in finished.records if r["outcome"] == "lost")
    assert len(lost) > RATE / 2 * 3
    # A tenth was in flight, perhaps for long; the others fell due until the new deal began.
    assert lost[-1] - lost[len(lost) // 10] < 8.0, "dealt to the other within 8 s"
    after = [r for r in finished.records if r["due_s"] > lost[-1]]
    assert {r["worker"] for r in after} == {0}
    assert finished.run["verdict"] == "client-limited"


@pytest.mark.full
def test_one_slow_and_lossy_link(lan: Lan, emulated: Target, tmp_path: Path) -> None:
    if why := lan["two"].worsen():
        pytest.skip(f"this kernel has no netem: {why}")
    with Run(lan, emulated, 12, tmp_path) as run:
        finished = run.end()
    arrivals = finished.run["arrivals"]
    assert arrivals["succeeded"] == arrivals["due"] > 200
