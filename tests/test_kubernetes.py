"""The files for Kubernetes fit its schemas, each other, and the options there are."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pd_users.options import FLAGS, LISTS, OPTIONS, dest

FOLDER = Path(__file__).resolve().parent.parent / "deploy" / "kubernetes"
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
