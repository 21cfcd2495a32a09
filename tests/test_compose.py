"""The compose file with a real Docker: ``make test-compose``. Skipped where Docker cannot be had."""

import contextlib
import csv
import http.cookiejar
import json
import os
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker import Docker, NoDockerError, docker, get, missing
from tests.processes import Finished, free_port, wait_until
from tests.test_run import assert_adds_up

pytestmark = pytest.mark.compose
KEY = "sk-compose-0123456789abcdef0123"
USER_ID = 10001  # of the Dockerfile
TRUTH = (
    "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/truth').read().decode())"
)


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    if why := missing():
        pytest.skip(f"no Docker: {why}")
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(docker(tmp_path_factory.mktemp("docker")))
        except NoDockerError as error:
            pytest.skip(f"no Docker: {error}")
        key_file = running.project / "api_key.txt"
        key_file.write_text(KEY)
        key_file.chmod(0o600)
        os.chown(key_file, USER_ID, USER_ID)
        running.set(
            API_KEY_FILE="./api_key.txt",
            API_KEY_PATH="/run/secrets/api_key",
            WEB_PORT=str(free_port()),
            WORKERS="2",
            RUN_TIME="30s",
            RATE="10",
            WARMUP="6",
        )
        build = ("docker", "build", "-q", "--network=host", "--build-arg", "BASE=base")
        running(*build, "-t", "pd-load-test", ".")
        yield running


def test_a_headless_run_ends_with_the_code_of_its_verdict(compose: Docker) -> None:
    done = compose("docker-compose", "run", "--rm", "--use-aliases", "-T", "headless", check=False)
    truth = compose("docker-compose", "exec", "-T", "emulator", "python", "-c", TRUTH).stdout
    finished = Finished.read(done.returncode, done.stdout, compose.volume("runs"))
    assert finished.code == finished.run["exit_code"] == 20, done.stdout
    assert finished.run["verdict"] == "inconclusive"  # 24 s x 10 req/s: fewer than 299
    assert finished.run["workers"] == 2
    assert finished.run["partial"] is False
    assert_adds_up(finished)
    seen = {row["request_id"] for row in csv.DictReader(truth.splitlines())}
    assert {f"{finished.run_id}-{int(r['index'])}" for r in finished.records} <= seen
    assert finished.run["arrivals"]["succeeded"] == finished.run["arrivals"]["due"] > 250
    assert {r["worker"] for r in finished.records} == {0, 1}
    assert KEY not in done.stdout + json.dumps(finished.run)


def test_the_web_ui_asks_who_comes_and_the_workers_can_be_scaled(compose: Docker) -> None:
    compose("docker-compose", "down", "-t", "1")
    up = ("docker-compose", "up", "-d", "--scale", "worker=3")
    compose(*up)
    wait_until(lambda: compose.inspect("master")["State"]["Status"] == "exited", 30)
    logs = compose("docker-compose", "logs", "--no-color", "master").stdout
    assert "error: --web-login: PD_WEB_USER is not set" in logs

    # Workers that had greeted a master that is gone wait 60 s for it (Locust's own time): afresh.
    compose("docker-compose", "down", "-t", "1")
    compose.set(WEB_USER="load", WEB_PASSWORD="a-word")
    compose(*up)
    url = f"http://127.0.0.1:{compose.settings['WEB_PORT']}"
    wait_until(lambda: get(f"{url}/capacity/data")[0] == 302, 30)
    assert "/login" in get(f"{url}/stats/requests")[1]
    opener = urllib.request.build_opener(
        urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    )
    form = urllib.parse.urlencode({"username": "load", "password": "a-word"}).encode()
    opener.open(f"{url}/sign-in", form, timeout=10).close()

    def workers() -> int:
        with opener.open(f"{url}/worker-count", timeout=10) as answer:
            return int(json.load(answer)["worker_count"])

    wait_until(lambda: workers() == 3, 30)
    for service in ("emulator", "master", "worker"):
        wait_until(lambda s=service: _health(compose, s) == "healthy", 30)  # type: ignore[misc]
    assert compose.inspect("master")["HostConfig"]["PortBindings"]["8089/tcp"] == [
        {"HostIp": "127.0.0.1", "HostPort": compose.settings["WEB_PORT"]}
    ]


def _logs(compose: Docker, name: str) -> str:
    return compose("docker", "logs", name).stdout


def _health(compose: Docker, service: str) -> str:
    return str(compose.inspect(service)["State"]["Health"]["Status"])


def test_the_containers_may_do_little_and_show_no_key(compose: Docker) -> None:
    compose("docker-compose", "up", "-d", "--scale", "worker=1")
    for service in ("emulator", "master", "worker"):
        told = compose.inspect(service)
        assert told["HostConfig"]["ReadonlyRootfs"] is True, service
        assert told["HostConfig"]["CapDrop"] == ["ALL"]
        assert KEY not in json.dumps(told)
        who = compose("docker-compose", "exec", "-T", service, "id", "-u").stdout
        assert int(who) == USER_ID
    seen = compose("docker-compose", "exec", "-T", "worker", "cat", "/run/secrets/api_key")
    assert seen.stdout == KEY
    assert compose("docker-compose", "exec", "-T", "worker", "touch", "/x", check=False).returncode
    layers = [*_files_with(compose.folder / "data" / "overlay2", KEY)]
    assert layers == []
    assert KEY not in compose("docker", "history", "--no-trunc", "pd-load-test").stdout


def _files_with(folder: Path, text: str) -> Iterator[Path]:
    """Files of our layers (not of Debian or of packages) that hold the text, or a .env at all."""
    for app in folder.glob("*/diff/app"):
        for path in app.rglob("*"):
            if path.is_file() and (path.name == ".env" or text.encode() in path.read_bytes()):
                yield path


def test_docker_stop_writes_what_was_measured(compose: Docker) -> None:
    compose("docker-compose", "down", "-t", "1")
    compose.set(RUN_TIME="5m")
    before = {p.name for p in compose.volume("runs").iterdir()}
    compose("docker-compose", "run", "-d", "--name", "one", "--use-aliases", "headless")
    wait_until(lambda: bool(re.search("of 300 s: [1-9]", _logs(compose, "one"))), 60)
    compose("docker", "stop", "-t", "30", "one")
    code = json.loads(compose("docker", "inspect", "one").stdout)[0]["State"]["ExitCode"]
    finished = Finished.read(code, "", compose.volume("runs"))
    assert finished.run_dir.name not in before
    assert finished.run["partial"] is True
    assert finished.code == finished.run["exit_code"] == 20
    assert_adds_up(finished)
    compose("docker", "rm", "one")
