"""The files for Kubernetes fit its schemas, each other, and the options there are."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pd_users.options import FLAGS, LISTS, OPTIONS, dest
from tests.processes import LOCUST, ROOT, Locust, emulator, free_port, unheard
from tests.webui import ask, wait_for

PAGE = ROOT / "docs" / "kubernetes.md"
FOLDER = ROOT / "deploy" / "kubernetes"
OF_LOCUST = {"LOCUST_HOST", "LOCUST_EXPECT_WORKERS", "LOCUST_RUN_TIME"}
Thing = dict[str, Any]


@pytest.fixture(scope="module")
def things() -> dict[str, Thing]:
    """Everything that is there, by kind."""
    found: dict[str, Thing] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for thing in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            assert found.setdefault(thing["kind"], thing) is thing
    return found


def container(thing: Thing) -> Thing:
    (only,) = thing["spec"]["template"]["spec"]["containers"]
    return only  # type: ignore[no-any-return]


def test_each_fits_the_schema_of_its_kind(things: dict[str, Thing]) -> None:
    assert set(things) == {"Secret", "Service", "PersistentVolumeClaim", "Job", "Deployment"}
    for thing in things.values():
        kubernetes_validate.validate(thing, kubernetes_validate.latest_version(), strict=True)
    wrong = {**things["Job"], "spec": {**things["Job"]["spec"], "backofLimit": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_workers_find_the_master_and_there_are_as_many_as_it_waits_for(
    things: dict[str, Thing],
) -> None:
    service, job, workers = things["Service"], things["Job"], things["Deployment"]
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert container(workers)["args"][-2:] == ["--master-host", service["metadata"]["name"]]
    env = {e["name"]: e.get("value") for e in container(job)["env"]}
    assert int(env["LOCUST_EXPECT_WORKERS"]) == workers["spec"]["replicas"]
    ours = {f"LOCUST_{dest(name).upper()}" for name in (*OPTIONS, *LISTS, *FLAGS)}
    named = {name for name in env if name.startswith("LOCUST_")}
    assert named <= ours | OF_LOCUST


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_a_container_may_do_little_and_has_its_key_from_the_secret(
    things: dict[str, Thing], kind: str
) -> None:
    pod, secret = things[kind]["spec"]["template"]["spec"], things["Secret"]
    only = container(things[kind])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert only["securityContext"]["readOnlyRootFilesystem"] is True
    assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (key,) = [e for e in only["env"] if "valueFrom" in e]
    source = key["valueFrom"]["secretKeyRef"]
    assert source["name"] == secret["metadata"]["name"]
    assert secret["stringData"][source["key"]] == "", "no key belongs into a repository"


@pytest.fixture(scope="module")
def locust_test() -> Thing:
    """The LocustTest that the page shows."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return yaml.safe_load(block)["spec"]  # type: ignore[no-any-return]


def test_the_pages_locust_test_names_options_there_are(locust_test: Thing) -> None:
    names = {e["name"] for e in locust_test["env"]["variables"]} - {"OPENAI_API_KEY"}
    assert names <= {f"LOCUST_{dest(name).upper()}" for name in OPTIONS} | OF_LOCUST


@contextmanager
def started_by_an_operator(
    master: list[str], worker: list[str], run_dir: Path, **env: str
) -> Iterator[Locust]:
    """A master and two workers, with the arguments that an operator gives to the image."""
    port = str(free_port())
    leader = Locust(
        *master,
        run_dir=run_dir,
        env={"LOCUST_MASTER_BIND_HOST": "127.0.0.1", "LOCUST_MASTER_BIND_PORT": port, **env},
    )
    command = [*LOCUST, *worker, "--master-host", "127.0.0.1", "--master-port", port]
    workers = [unheard(command, env) for _ in range(2)]
    try:
        yield leader
    finally:
        for process in workers:
            process.wait(timeout=20)


@pytest.mark.process
def test_the_arguments_of_the_operators_lead_to_a_verdict(
    locust_test: Thing, tmp_path: Path
) -> None:
    """As their sources put them together: internal/resources/command.go, locust_operator/objects.py."""
    web = {"LOCUST_WEB_HOST": "127.0.0.1", "LOCUST_WEB_PORT": str(free_port())}
    load = {"LOCUST_WORKLOAD": "azure_conv_2023", "LOCUST_RATE": "20", "LOCUST_RUN_TIME": "3s"}
    seconds = str(locust_test["master"]["autoquit"]["timeout"])
    seed, worker_seed = (locust_test[k]["command"].split() for k in ("master", "worker"))
    managed = ["--master", "--expect-workers=2", "--autostart", "--autoquit", seconds]
    managed += ["--enable-rebalancing", "--only-summary"]
    with emulator() as cluster:
        env = {"LOCUST_HOST": cluster.url, **load, **web}
        with started_by_an_operator(
            [*seed, *managed], [*worker_seed, "--worker"], tmp_path / "a", **env
        ) as leader:
            finished = leader.finish(60)
        assert finished.code == finished.run["exit_code"] == 20  # three seconds prove nothing
        args = ["--autostart", "--expect-workers", "2"]
        with started_by_an_operator(
            ["--master", *args], ["--worker", *args], tmp_path / "b", **env
        ) as leader:
            leader.wait_for("Files: ", 60)
            url = f"http://127.0.0.1:{web['LOCUST_WEB_PORT']}"
            wait_for(url)
            assert ask(url, "/capacity/data")["conclusion"]["exit_code"] == 20
            leader.process.terminate()
            assert leader.finish(60).run["workers"] == 2
