"""A Docker of its own for tests: a daemon on a socket in a temporary folder, and a base image from
Debian's packages, since no registry of images is needed or asked. Root only.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processes import ROOT, wait_until

PIECES = ("dockerd", "docker", "docker-compose", "debootstrap")
RELEASE = "bookworm"
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "runs", "tests", "__pycache__", ".*_cache")


def missing() -> str:
    """Why there can be no Docker here; '' when there can."""
    if os.geteuid() != 0:
        return "dockerd and debootstrap need root"
    lacking = [name for name in PIECES if shutil.which(name) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    rules = subprocess.run(
        ["iptables", "-S", "FORWARD"], capture_output=True, text=True, check=False
    )
    if "-P FORWARD DROP" in rules.stdout:
        return "the firewall of this machine (perhaps another Docker's) keeps containers apart"
    return ""


class NoDockerError(Exception):
    """Docker is installed, and this machine does not let it run."""


@dataclass
class Docker:
    """A running daemon, and a copy of the project as its user has it, with a .env and a key."""

    folder: Path
    project: Path
    settings: dict[str, str]

    @property
    def env(self) -> dict[str, str]:
        socket = f"unix://{self.folder / 'socket'}"
        return {**os.environ, "DOCKER_HOST": socket, "DOCKER_BUILDKIT": "0"}

    def __call__(self, *command: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """``docker ...`` or ``docker-compose ...`` in the project's folder."""
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout
        return done

    def inspect(self, service: str) -> Any:
        """What Docker tells of the first container of a service."""
        name = self("docker-compose", "ps", "-q", service).stdout.split()[0]
        return json.loads(self("docker", "inspect", name).stdout)[0]

    def set(self, **settings: str) -> None:
        """Settings of the project's .env, beside those that were there."""
        self.settings |= settings
        lines = [f"{name}={value}\n" for name, value in self.settings.items()]
        (self.project / ".env").write_text("".join(lines))

    def volume(self, name: str) -> Path:
        """Where a volume of the project lies on this machine."""
        return self.folder / "data" / "volumes" / f"{self.project.name}_{name}" / "_data"


@contextmanager
def docker(folder: Path) -> Iterator[Docker]:
    """A daemon with the base image ``base``; it and all that it holds is gone afterwards."""
    project = folder / "project"
    shutil.copytree(ROOT, project, ignore=NOT_COPIED)
    running = Docker(folder, project, {"BASE_IMAGE": "base"})
    with (folder / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(
            [
                *("dockerd", "--storage-driver=overlay2", "-H", f"unix://{folder / 'socket'}"),
                *("--data-root", folder / "data", "--exec-root", folder / "exec"),
                *("--pidfile", folder / "pid"),
                # Nothing of this machine is changed: no bridge, no rules, no forwarding.
                *("--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: _is_up(running) or daemon.poll() is not None, 30)
        if daemon.poll() is not None:
            told = (folder / "dockerd.log").read_text().strip().splitlines()
            raise NoDockerError(
                f"dockerd ended by itself: {told[-1] if told else 'without a word'}"
            )
        _make_base(running, folder / "root")
        yield running
    finally:
        running("docker-compose", "down", "-v", "--remove-orphans", "-t", "1", check=False)
        daemon.terminate()
        daemon.wait(timeout=30)
        for mounted in Path("/proc/mounts").read_text().splitlines():
            if mounted.split()[1].startswith(str(folder)):
                subprocess.run(["umount", "-q", mounted.split()[1]], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _is_up(running: Docker) -> bool:
    return running("docker", "version", check=False).returncode == 0


def _make_base(running: Docker, root: Path) -> None:
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, root, mirror()]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout[-2000:]
    _lend_pip_settings(root)
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(
            ["docker", "import", "-", "base"], stdin=tar.stdout, env=running.env, check=True
        )
    shutil.rmtree(root)


def mirror() -> str:
    """Where this machine has its Debian packages from."""
    known = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {RELEASE}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return known.stdout.split()[0]


def _lend_pip_settings(root: Path) -> None:
    """The base image finds the package index as this machine does; our image's files never say."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    lines = ["[global]"]
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        key, value = name.split(".")[-1], value.strip("'")
        if key in ("index-url", "trusted-host", "proxy"):
            lines.append(f"{key} = {value}")
        elif key == "cert":
            inside = root / value.lstrip("/")
            inside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(value, inside)
            lines.append(f"cert = {value}")
    (root / "etc" / "pip.conf").write_text("\n".join(dict.fromkeys(lines)) + "\n")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any) -> None:
        return None


def get(url: str) -> tuple[int, str]:
    """Status and where it sends one, of a page that may redirect; (0, '') when nobody listens."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    try:
        with opener.open(url, timeout=5) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get("Location", "")
    except OSError:
        return 0, ""
