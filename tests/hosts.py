"""Hosts on one switch, made of network namespaces: what runs there has its own network, and, where
asked for, its own clock and machine id. All of it is inside namespaces and goes with them. Root only.
"""

import contextlib
import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes import ROOT, Row, numbers

BRIDGE = "br0"


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def missing() -> str:
    """Why there can be no hosts here; '' when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "ip (iproute2) or unshare (util-linux) is not installed"
    name = f"pd{os.getpid()}try"
    tried = subprocess.run(
        ["ip", "netns", "add", name], capture_output=True, text=True, check=False
    )
    if tried.returncode == 0:
        ip("netns", "del", name)
    return tried.stderr.strip()


@dataclass(frozen=True)
class Host:
    """One host: its namespace, its address, and the port of the switch that it hangs on."""

    space: str
    switch: str
    address: str
    port: str

    def inside(self, clock_ahead_s: int = 0, machine: Path | None = None) -> tuple[str, ...]:
        """The head of a command line that runs the rest on this host, which is another machine."""
        line: tuple[str, ...] = ("ip", "netns", "exec", self.space)
        if clock_ahead_s:
            ahead = str(clock_ahead_s)
            line += ("unshare", "--time", "--monotonic", ahead, "--boottime", ahead)
            line += ("--fork", "--kill-child")
        if machine is not None:
            machine.write_text(f"{self.space}\n")
            mount = f"mount --bind {machine} /proc/sys/kernel/random/boot_id"
            line += ("sh", "-c", f'{mount} && exec "$@"', "sh")
        return line

    def unplug(self) -> None:
        """From now on packets to and from this host vanish; nobody is told."""
        ip("-n", self.switch, "link", "set", self.port, "nomaster")

    def plug(self) -> None:
        """Back on the switch."""
        ip("-n", self.switch, "link", "set", self.port, "master", BRIDGE)

    def worsen(self) -> str:
        """50 ms more delay and 1 % loss for what this host sends; why not, where it cannot be."""
        netem = ("qdisc", "add", "dev", "eth0", "root", "netem", "delay", "50ms", "loss", "1%")
        line = ["ip", "netns", "exec", self.space, "tc", *netem]
        if shutil.which("tc") is None:
            return "tc (iproute2) is not installed"
        return subprocess.run(line, capture_output=True, text=True, check=False).stderr.strip()


@contextmanager
def hosts(*names: str) -> Iterator[dict[str, Host]]:
    """Hosts by name, all on one switch."""
    prefix = f"pd{os.getpid()}"
    switch = f"{prefix}switch"
    made = [switch]
    ip("netns", "add", switch)
    try:
        ip("-n", switch, "link", "add", BRIDGE, "type", "bridge")
        ip("-n", switch, "link", "set", BRIDGE, "up")
        found = {}
        for number, name in enumerate(names, 1):
            host = Host(f"{prefix}{name}", switch, f"10.77.0.{number}", f"port{number}")
            ip("netns", "add", host.space)
            made.append(host.space)
            peer = ("peer", "name", "eth0", "netns", host.space)
            ip("-n", switch, "link", "add", host.port, "type", "veth", *peer)
            ip("-n", host.space, "addr", "add", f"{host.address}/24", "dev", "eth0")
            for space, link in ((host.space, "lo"), (host.space, "eth0"), (switch, host.port)):
                ip("-n", space, "link", "set", link, "up")
            host.plug()
            found[name] = host
        yield found
    finally:
        for space in made:
            ip("netns", "del", space)


@dataclass
class Target:
    """An emulator on a host of its own."""

    host: Host
    url: str

    def truth(self) -> list[Row]:
        """Its log, fetched on that host."""
        get = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"
        line = [*self.host.inside(), sys.executable, "-c", get, f"{self.url}/truth"]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        return [numbers(row) for row in csv.DictReader(done.stdout.splitlines())]


@contextmanager
def target(host: Host, *arguments: str) -> Iterator[Target]:
    """``python -m emulator`` on a host until the block ends."""
    command = [sys.executable, "-m", "emulator", "--host", host.address, "--port", "8000"]
    process = subprocess.Popen(
        [*host.inside(), *command, "--exit-with-parent", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        line = process.stdout.readline()
        try:
            found = re.search(r"listening on (\S+)", line)
            assert found, line
            yield Target(host, found[1])
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
