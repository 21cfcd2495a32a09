"""The web page: other sites may not press its buttons, and nothing that a target says is run."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from pd_users.ports import open_to_all, taken_port
from tests.processes import Locust, free_port
from tests.raw_server import SSE_HEAD, Request, Wire, serving
from tests.test_web import browser, wrong_form_url  # noqa: F401
from tests.webui import swarm, wait_for

pytestmark = pytest.mark.process
SCRIPT = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"


def status(url: str, body: bytes | None, headers: dict[str, str]) -> int:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, body, headers), timeout=20
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    ("path", "body", "headers", "refused"),
    [
        ("/swarm", b"rate=fast", {"Sec-Fetch-Site": "cross-site"}, True),
        ("/swarm", b"rate=fast", {"Sec-Fetch-Site": "same-site"}, True),
        ("/swarm", b"rate=fast", {"Origin": "http://elsewhere.example"}, True),
        ("/swarm", b"rate=fast", {"Origin": "null"}, True),
        ("/stop", None, {"Sec-Fetch-Site": "cross-site"}, True),
        ("/stats/reset", None, {"Sec-Fetch-Site": "cross-site"}, True),
        ("/swarm", b"rate=fast", {"Sec-Fetch-Site": "same-origin"}, False),
        ("/swarm", b"rate=fast", {}, False),  # curl
        (
            "/capacity",
            None,
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
            False,
        ),  # a link from elsewhere
    ],
)
def test_other_sites_press_no_button(
    wrong_form_url: str,  # noqa: F811
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    refused: bool,
) -> None:
    assert (status(wrong_form_url + path, body, headers) == 403) is refused


def hostile(wire: Wire, request: Request) -> bool:
    """A target whose model name, tokens and errors are scripts."""
    if request.method == "GET":
        body = json.dumps({"data": [{"id": SCRIPT}]}).encode()
        wire.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        return True
    asked = json.loads(request.body)
    if asked["max_tokens"] != 12:  # the load, not a probe
        body = json.dumps({"error": {"message": SCRIPT, "type": SCRIPT}}).encode()
        wire.send(
            b"HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        return True
    events = [{"choices": [{"delta": {"content": SCRIPT}}]} for _ in range(12)]
    done = {"choices": [{"delta": {}, "finish_reason": "length"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 12}}
    text = (
        "".join(f"data: {json.dumps(e)}\n\n" for e in (*events, done, usage)) + "data: [DONE]\n\n"
    )
    wire.send(SSE_HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(text), text.encode()))
    return True


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, str]]:
    port = free_port()
    with serving(hostile) as target:
        locust = Locust(
            *("--web-host", "127.0.0.1", "--web-port", str(port), "-H", target.url),
            *("--workload", "D(50,5)", "--rate", "20"),
            run_dir=tmp_path,
        )
        locust.wait_for("Starting web interface")
        wait_for(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}", target.url
        locust.process.terminate()
        locust.finish(30)


def test_a_script_from_the_target_runs_nowhere(
    web: tuple[str, str],
    browser: Browser,  # noqa: F811
) -> None:
    url, host = web
    assert swarm(url, host=host, rate="20", workload="D(50,5)", run_time="20s")["success"] is True
    page = browser.new_page()
    page.goto(f"{url}/capacity")
    expect(page.locator("#headline")).to_contain_text("target-errors", timeout=40_000)
    assert page.evaluate("window.pwned") is None
    report = browser.new_page()
    report.goto(f"{url}/capacity/report")
    expect(report.locator("h1")).to_contain_text("target-errors")
    assert "window.pwned" in report.content()  # it is there, as text
    assert report.evaluate("window.pwned") is None
    page.goto(url)
    for tab in ("Failures", "Exceptions", "Logs"):
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("window.pwned") is None


def test_an_address_that_is_taken_or_open_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port} cannot be bound" in taken_port("127.0.0.1", port)
    assert taken_port("127.0.0.1", free_port()) == ""
    assert [
        bool(open_to_all(h, 8089))
        for h in ("", "0.0.0.0", "10.0.0.7", "127.0.0.1", "localhost", "::1")
    ] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_ports_that_are_taken_end_the_process_with_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        web_options = ("--web-host", "127.0.0.1", "--web-port", port)
        master = (
            "--headless",
            "--master",
            "--master-bind-host",
            "127.0.0.1",
            "--expect-workers",
            "1",
        )
        runs = [
            Locust(*web_options, run_dir=tmp_path),
            Locust(*master, "--master-bind-port", port, run_dir=tmp_path),
        ]
        for run, option in zip(runs, ("--web-port", "--master-bind-port"), strict=True):
            finished = run.finish(30)
            assert finished.code == 1, finished.output
            assert f"error: {option}" in finished.output
            assert "Traceback" not in finished.output


def test_a_key_as_an_argument_is_refused_and_not_shown(tmp_path: Path) -> None:
    for argument in (["--api-key=sk-very-Secret-1234"], ["--api-key", "sk-very-Secret-1234"]):
        finished = Locust("--headless", *argument, run_dir=tmp_path).finish(30)
        assert finished.code == 2
        assert "never given as an argument" in finished.output
        assert "Secret" not in finished.output
