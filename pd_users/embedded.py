"""The embedded target: without -H the emulator runs as a child process and goes with the run."""

import atexit
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from gevent import Timeout
from gevent.subprocess import PIPE, Popen

from workloads.errors import ConfigError

READY = re.compile(r"listening on (http://\S+)")
START_TIMEOUT_S = 20.0


class EmbeddedEmulator:
    """A running ``python -m emulator``; ``url`` is where it listens."""

    def __init__(self, arguments: str) -> None:
        self.arguments = arguments
        root = Path(__file__).resolve().parent.parent
        command = [sys.executable, "-m", "emulator", "--port", "0", "--exit-with-parent"]
        # Its stdin is a pipe of ours: when this process dies, however, the emulator sees it close.
        self._process = Popen(
            [*command, *shlex.split(arguments)],
            cwd=root,
            stdin=PIPE,
            stdout=PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a Ctrl-C in the terminal is for the run, which then drains
        )
        self._owner = os.getpid()
        atexit.register(self.stop)
        self.url = self._wait_until_ready()

    def _wait_until_ready(self) -> str:
        lines: list[str] = []
        with Timeout(START_TIMEOUT_S, False):
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if found := READY.search(line):
                    return found[1]
                lines.append(line.strip())
        self.stop()
        raise ConfigError(
            f"--emulator-args: the emulator did not start: {' '.join(lines[-3:]) or 'no output'}"
        )

    def stop(self) -> None:
        """End the child, if this process is its parent and it still runs."""
        if os.getpid() == self._owner and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=5)
