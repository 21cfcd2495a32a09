"""Locust's web UI, asked as its page asks it."""

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from tests.processes import wait_until


def wait_for(url: str) -> None:
    """Until something answers there."""

    def answers() -> bool:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.URLError:
            return False
        return True

    wait_until(answers, 20)


def swarm(url: str, **form: str) -> dict[str, Any]:
    """Locust's own start request, as its page sends it."""
    blank = dict.fromkeys(("rate", "workload", "confidence", "plan", "host", "run_time"), "")
    fields = {"user_count": "50", "spawn_rate": "50", **blank, **form}
    body = urllib.parse.urlencode(fields).encode()
    with urllib.request.urlopen(f"{url}/swarm", body, timeout=60) as answer:
        return json.loads(answer.read())  # type: ignore[no-any-return]


def ask(url: str, path: str, body: bytes | None = None) -> dict[str, Any]:
    """What a JSON page says, to a GET or, with a body, to a POST."""
    with urllib.request.urlopen(url + path, body, timeout=20) as answer:
        return json.loads(answer.read())  # type: ignore[no-any-return]
