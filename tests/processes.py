"""Real processes for tests: an emulator, locust runs, and what they left behind."""

import atexit
import contextlib
import csv
import gzip
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCUST = (sys.executable, "-m", "locust", "-f", "locustfile.py")
Row = dict[str, Any]


@dataclass
class Emulator:
    """A running emulator; its own log is the truth."""

    url: str
    process: "subprocess.Popen[str]"

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            return answer.read().decode()  # type: ignore[no-any-return]

    def put_deployment(self, **keys: Any) -> None:
        body = json.dumps(keys).encode()
        put = urllib.request.Request(f"{self.url}/deployment", body, method="PUT")
        put.add_header("Content-Type", "application/json")
        urllib.request.urlopen(put, timeout=5).close()

    def truth(self) -> dict[str, Row]:
        """Rows of /truth by request id."""
        rows = csv.DictReader(self.get("/truth").splitlines())
        return {row["request_id"]: numbers(row) for row in rows}


def numbers(row: dict[str, str]) -> Row:
    """A CSV row with its numbers as numbers, blanks as nan."""
    out: Row = {}
    for name, text in row.items():
        if name.endswith("_s") or "tokens" in name or name in ("index", "worker", "n_first"):
            out[name] = float(text) if text else nan
        else:
            out[name] = text
    return out


@contextmanager
def emulator(*arguments: str, env: dict[str, str] | None = None) -> Iterator[Emulator]:
    """``python -m emulator`` on a free port until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "emulator", "--port", "0", "--exit-with-parent", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"listening on (\S+)", line)
        assert found, line
        yield Emulator(found[1], process)
    finally:
        process.terminate()
        process.wait(timeout=10)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@dataclass
class Finished:
    """A run that is over: what it printed, its exit code, the files it wrote."""

    code: int
    output: str
    run_dir: Path
    run: Row = field(default_factory=dict)
    records: list[Row] = field(default_factory=list)

    @classmethod
    def read(cls, code: int, output: str, run_dir: Path) -> "Finished":
        folders = sorted(run_dir.glob("*/run.json"))
        finished = cls(code, output, run_dir)
        if folders:
            finished.run_dir = folders[-1].parent
            finished.run = json.loads(folders[-1].read_text())
            with gzip.open(finished.run_dir / "records.csv.gz", "rt", newline="") as lines:
                finished.records = [numbers(row) for row in csv.DictReader(lines)]
        return finished

    @property
    def run_id(self) -> str:
        return self.run_dir.name

    def ok(self) -> list[Row]:
        return [r for r in self.records if r["outcome"] == "ok"]


def free_port() -> int:
    """A port that nothing listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(true: Callable[[], bool], timeout_s: float) -> None:
    """Ask again and again until it is true; fails when that takes too long."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"not true within {timeout_s:g} s"
        time.sleep(0.1)


def own_master_port() -> dict[str, str]:
    """A master of a test keeps off Locust's usual port, which may be taken."""
    port = str(free_port())
    return {"LOCUST_MASTER_BIND_PORT": port, "LOCUST_MASTER_NODE_PORT": port}


def unheard(command: Sequence[str], env: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """A process whose output nobody reads; ``env`` comes on top of ours."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
    )


class Locust:
    """One ``locust`` process; its output is read by a thread, so that it never blocks."""

    def __init__(
        self,
        *arguments: str,
        run_dir: Path,
        env: dict[str, str] | None = None,
        file: str = "",
        inside: tuple[str, ...] = (),  # a command that runs the rest of the line somewhere else
    ) -> None:
        self.run_dir = run_dir
        command = list(LOCUST) if not file else [*LOCUST[:-1], file]
        self.process = subprocess.Popen(
            [*inside, *command, "--run-dir", str(run_dir), *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **own_master_port(), **(env or {})},
            start_new_session=True,
        )
        atexit.register(self._kill)  # also when a test fails before it waits for the end
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):  # closed while a grandchild still held it
            for line in self.process.stdout:
                with self._news:
                    self._lines.append(line)
                    self._news.notify_all()
        with self._news:
            self._lines.append("")
            self._news.notify_all()

    def wait_for(self, pattern: str, timeout_s: float = 30) -> str:
        """Block until a line of the output matches; the line."""

        def match() -> str | None:
            return next((line for line in self._lines if re.search(pattern, line)), None)

        with self._news:
            found = self._news.wait_for(match, timeout_s)
        assert found, f"no line like {pattern!r} in:\n{''.join(self._lines)}"
        return str(found)

    def finish(self, timeout_s: float = 120) -> Finished:
        """Wait for the end."""
        try:
            code = self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"locust did not end:\n{''.join(self._lines)}") from None
        self._reader.join(timeout=10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return Finished.read(code, "".join(self._lines), self.run_dir)


def headless(
    *arguments: str, run_dir: Path, env: dict[str, str] | None = None, timeout_s: float = 120
) -> Finished:
    """``locust --headless`` to its end."""
    return Locust("--headless", *arguments, run_dir=run_dir, env=env).finish(timeout_s)
