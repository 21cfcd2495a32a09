"""The web UI in a real browser: start, stop, start again; the verdict on /capacity."""

import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from pd_users.web import is_foreign
from tests.processes import Locust, free_port, wait_until
from tests.webui import ask, swarm, wait_for

pytestmark = pytest.mark.process
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Locust, str]]:
    port = free_port()
    locust = Locust(
        *("--web-host", "127.0.0.1", "--web-port", str(port), "--rate", "40", "--warmup", "1"),
        *(
            "--workload",
            "azure_code_2023",
            "--emulator-args",
            "--prefill 4 --decode 2 --prefill-ms 2,0.01,0",
        ),
        run_dir=tmp_path,
    )
    locust.wait_for("Starting web interface")
    url = f"http://127.0.0.1:{port}"
    wait_for(url)
    yield locust, url
    if locust.process.poll() is None:
        locust.process.terminate()
    locust.finish(30)


def wait_until_stopped(url: str) -> None:
    """Until Locust has put its users away, too: that is after the verdict, and its page lags behind."""
    wait_until(lambda: ask(url, "/stats/requests")["state"] == "stopped", 30)


def press_start(page: Page, url: str, run_time: str) -> None:
    page.goto(url)
    page.get_by_text("Advanced options").click()
    page.locator('input[name="runTime"]').fill(run_time)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible(timeout=20_000)


def test_started_stopped_and_started_again_each_run_ends_in_a_verdict(
    web: tuple[Locust, str], browser: Browser, tmp_path: Path
) -> None:
    _, url = web
    page = browser.new_page()
    press_start(page, url, "10s")
    capacity = browser.new_page()
    capacity.goto(f"{url}/capacity")
    expect(capacity.locator("#state")).to_have_text("running", timeout=15_000)
    expect(capacity.locator("#headline")).to_contain_text("hold", timeout=60_000)
    assert capacity.locator("#cards .card").count() == 8
    wait_until_stopped(url)
    page.reload()
    page.get_by_role("button", name="New").click()
    page.get_by_role("button", name="Start").click()
    expect(capacity.locator("#state")).to_have_text("running", timeout=20_000)
    page.get_by_role("button", name="Stop").click()
    expect(capacity.locator("#headline")).to_contain_text("inconclusive", timeout=60_000)
    folders = sorted(tmp_path.glob("*/run.json"))
    assert len(folders) == 2
    first, second = (json.loads(f.read_text()) for f in folders)
    assert first["partial"] is False
    assert second["partial"] is True
    assert second["arrivals"]["due"] < first["arrivals"]["due"]  # nothing of the first is left over
    capacity.screenshot(path=str(tmp_path / "capacity.png"), full_page=True)
    report = browser.new_page()
    report.goto(f"{url}/capacity/report")
    expect(report.locator("h1")).to_contain_text("inconclusive")


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"rate": "fast"}, "--rate: found 'fast'"),
        ({"workload": "azure_con_2023"}, "did you mean 'azure_conv_2023'"),
        ({"host": "http://127.0.0.1:9"}, "not reachable"),
        ({"run_time": "soon"}, "Run time: found 'soon'"),
        ({"confidence": "likly"}, "did you mean 'likely'"),
        ({"rate": "-1"}, "--rate: found '-1'"),
        ({"plan": "no-such-plan.json"}, "no-such-plan.json"),
    ],
)
def test_a_wrong_value_in_the_form_is_answered_by_a_sentence(
    wrong_form_url: str, form: dict[str, str], sentence: str
) -> None:
    answer = swarm(wrong_form_url, **form)
    assert answer["success"] is False
    assert sentence in answer["message"]


@pytest.fixture(scope="module")
def wrong_form_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    locust = Locust(
        *("--web-host", "127.0.0.1", "--web-port", str(port)), run_dir=tmp_path_factory.mktemp("w")
    )
    locust.wait_for("Starting web interface")
    wait_for(f"http://127.0.0.1:{port}")
    yield f"http://127.0.0.1:{port}"
    locust.process.terminate()
    locust.finish(30)


SAME = {"Sec-Fetch-Site": "same-origin"}
CROSS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}


@pytest.mark.parametrize(
    ("method", "headers", "foreign"),
    [
        ("POST", {}, False),  # curl, and programs
        ("POST", SAME, False),
        ("POST", {**SAME, "Origin": "https://proxy.example"}, False),  # behind a proxy
        ("GET", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, False),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, False),
        ("POST", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, True),
        ("GET", CROSS, True),
        ("POST", {"Sec-Fetch-Site": "same-site"}, True),
        ("POST", {"Origin": "http://127.0.0.1:8089"}, False),
        ("POST", {"Origin": "http://127.0.0.1:9999"}, True),
        ("POST", {"Origin": "null"}, True),
        ("GET", {"Origin": "https://evil.example"}, True),
    ],
)
def test_requests_for_pages_of_another_site_are_told(
    method: str, headers: dict[str, str], foreign: bool
) -> None:
    assert is_foreign(method, "/capacity", "127.0.0.1:8089", headers) is foreign


def test_a_link_to_what_changes_something_is_refused() -> None:
    link = {**CROSS, "Sec-Fetch-Mode": "navigate"}
    assert is_foreign("GET", "/base/stop", "h", link)
    assert not is_foreign("GET", "/base/stop", "h", SAME)


@pytest.mark.parametrize("route", ["/swarm", "/stop", "/stats/reset", "/capacity/data", "/logs"])
def test_another_sites_page_is_refused(wrong_form_url: str, route: str) -> None:
    body = b"rate=1" if route == "/swarm" else None
    for headers in ({"Origin": "https://evil.example"}, CROSS):
        asked = urllib.request.Request(wrong_form_url + route, body, headers=headers)
        with pytest.raises(urllib.error.HTTPError) as told:
            urllib.request.urlopen(asked, timeout=10)
        with told.value as answer:
            assert answer.code == 403


def test_the_reports_links_lead_to_the_troubleshooting_page(wrong_form_url: str) -> None:
    there = urllib.parse.urljoin(
        f"{wrong_form_url}/capacity/report", "../../docs/troubleshooting.md"
    )
    with urllib.request.urlopen(there, timeout=10) as answer:
        assert "### `decode-unregistered`" in answer.read().decode()
