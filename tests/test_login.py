"""The web UI's login: nobody comes in without it, and a missing password ends in a sentence."""

import http.cookiejar
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import Locust, free_port, wait_until

pytestmark = pytest.mark.process
WEB = ("--web-login", "--web-host", "127.0.0.1", "--web-port")
NAMES = {"PD_WEB_USER": "load", "PD_WEB_PASSWORD": "a word"}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    locust = Locust(*WEB, str(port), run_dir=tmp_path, env=NAMES)
    address = f"http://127.0.0.1:{port}"
    wait_until(lambda: page(browser(), address) is not None, 30)
    yield address
    locust.process.kill()
    locust.process.wait()


def browser() -> urllib.request.OpenerDirector:
    jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    return urllib.request.build_opener(jar)


def page(visitor: urllib.request.OpenerDirector, url: str, **form: str) -> tuple[str, str] | None:
    """Where one ends up, and what stands there; None when nobody listens."""
    data = urllib.parse.urlencode(form).encode() if form else None
    try:
        with visitor.open(url, data, timeout=10) as answer:
            return urllib.parse.urlparse(answer.url).path, answer.read().decode()
    except urllib.error.URLError:
        return None


def test_pages_are_seen_after_the_login_only(url: str) -> None:
    visitor = browser()
    for path in ("/", "/capacity", "/capacity/data", "/capacity/report", "/stats/requests"):
        found = page(visitor, url + path)
        assert found is not None
        assert found[0] == "/login", path
    wrong = page(visitor, f"{url}/sign-in", username="load", password="another")
    assert wrong is not None
    assert wrong[0] == "/login"
    assert "Wrong user or password." in wrong[1]
    right = page(visitor, f"{url}/sign-in", username="load", password="a word")
    assert right is not None
    assert right[0] == "/"
    data = page(visitor, f"{url}/capacity/data")
    assert data is not None
    assert "no run yet" in data[1]


def test_a_login_without_a_password_is_refused_with_a_sentence(tmp_path: Path) -> None:
    env = {"PD_WEB_USER": "load", "PD_WEB_PASSWORD": ""}
    finished = Locust(*WEB, str(free_port()), run_dir=tmp_path, env=env).finish(30)
    assert finished.code == 1
    assert "error: --web-login: PD_WEB_PASSWORD is not set" in finished.output
    assert "Traceback" not in finished.output


def test_an_open_door_is_warned_of_with_the_cure(tmp_path: Path) -> None:
    locust = Locust("--web-host", "0.0.0.0", "--web-port", str(free_port()), run_dir=tmp_path)
    line = locust.wait_for("has no login")
    assert "--web-host 127.0.0.1" in line
    assert "--web-login" in line
    locust.process.kill()
    locust.process.wait()
