"""Keys come from the environment or a file, are tidied, and are never seen."""

import contextlib
import gzip
import json
import logging
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_users.channel import DEFAULT
from pd_users.endpoint import parse_base_url, shown_url
from pd_users.secrets import Key, MaskingFilter, find_key, tidy
from pd_users.target import endpoint_of
from tests.processes import ROOT, Locust, emulator, free_port, headless
from tests.relay import relaying
from workloads.errors import ConfigError

SECRET = "sk-very-Secret-0123456789"
FAULTS = ROOT.parent / "shared" / "faults" / "inputs"


@pytest.mark.parametrize(
    ("raw", "left_out"),
    [
        (SECRET, ()),
        (f"{SECRET}\r\n", ("a line end",)),
        (f"  {SECRET} ", ("spaces",)),
        (f"\ufeff{SECRET}\n", ("an invisible character", "a line end")),
        (f'"{SECRET}"', ("quotes",)),
        (f"Bearer {SECRET}", ("the word Bearer",)),
        (f"'Bearer {SECRET}'\n", ("a line end", "quotes", "the word Bearer")),
        (f"Authorization: Bearer {SECRET}", ("the word Bearer",)),
    ],
)
def test_a_key_is_taken_out_of_what_lies_around_it(raw: str, left_out: tuple[str, ...]) -> None:
    assert tidy(raw) == (SECRET, left_out)


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1))
def test_tidying_twice_is_tidying_once(key: str) -> None:
    once, _ = tidy(key)
    if once:
        assert tidy(once)[0] in (once, tidy(once)[0])
        assert len(tidy(once)[0]) <= len(once) <= len(key)


@pytest.mark.parametrize(
    ("environ", "env_name", "wanted"),
    [
        ({}, "MY_KEY", "MY_KEY is not set"),
        ({"MY_KEY": " \n"}, "MY_KEY", "MY_KEY is empty"),
        ({"MY_KEY": f"{SECRET} {SECRET}"}, "MY_KEY", "MY_KEY holds a space"),
        ({"MY_KEY": "sk-kéy"}, "MY_KEY", "not ASCII"),
        ({"MY_KEY": "sk-..."}, "MY_KEY", "placeholder"),
        ({"MY_KEY": "<your key>"}, "MY_KEY", "placeholder"),
        ({"MY_KEY": "$TAOTOKEN_API_KEY"}, "MY_KEY", "placeholder"),
        ({"MY_KEY": "your_api_key_here"}, "MY_KEY", "placeholder"),
        ({}, SECRET, "a key itself"),
    ],
)
def test_what_is_no_key_is_told_without_showing_it(
    environ: dict[str, str], env_name: str, wanted: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        find_key(env_name, None, "OPENAI_API_KEY", environ)
    assert wanted in str(caught.value)
    for value in (*environ.values(), SECRET):
        assert value.strip() == "" or value not in str(caught.value)


def test_a_channel_without_its_variable_has_no_key() -> None:
    assert find_key(None, None, "OPENAI_API_KEY", {}).value == ""
    assert find_key(None, None, "OPENAI_API_KEY", {"OPENAI_API_KEY": SECRET}).value == SECRET


def key_file(folder: Path, text: bytes, mode: int = 0o600) -> str:
    path = folder / "key.txt"
    path.write_bytes(text)
    path.chmod(mode)
    return str(path)


def test_a_key_file_with_a_line_end_gives_the_key(tmp_path: Path) -> None:
    """F90."""
    text = b"sk-good-key-123\r\n"
    if (source := FAULTS / "f90_key_file.txt").exists():
        assert source.read_bytes() == text
    key = find_key(None, key_file(tmp_path, text), "X", {})
    assert key.value == "sk-good-key-123"
    assert key.tidied == ("a line end",)


@pytest.mark.parametrize(
    ("text", "mode", "wanted"),
    [
        (SECRET.encode(), 0o644, "chmod 600"),
        (SECRET.encode(), 0o620, "mode 620"),
        (b"\xef\xbb\xbf\n", 0o600, "is empty"),
        (SECRET.encode() + b"\n" + SECRET.encode(), 0o600, "holds a space, a line end"),
    ],
)
def test_a_key_file_that_cannot_be_used_is_told(
    tmp_path: Path, text: bytes, mode: int, wanted: str
) -> None:
    with pytest.raises(ConfigError, match=wanted) as caught:
        find_key(None, key_file(tmp_path, text, mode), "X", {})
    assert SECRET not in str(caught.value)


def test_a_missing_key_file_and_two_sources_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        find_key(None, str(tmp_path / "none"), "X", {})
    with pytest.raises(ConfigError, match="both are given"):
        find_key("X", str(tmp_path / "none"), "X", {})


def test_no_repr_shows_the_key() -> None:
    key = Key(SECRET, "the variable X")
    endpoint = endpoint_of(DEFAULT, "http://127.0.0.1:1", key)
    assert endpoint.key == SECRET
    for shown in (repr(key), str(key), f"{key}", repr(endpoint)):
        assert SECRET not in shown


def test_log_lines_and_tracebacks_are_masked() -> None:
    out = StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(MaskingFilter([SECRET]))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise ValueError(f"cannot use {SECRET}")
    except ValueError:
        logger.exception("header %s: %s", "Authorization", f"Bearer {SECRET}")
    assert "header Authorization" in out.getvalue()
    assert "ValueError" in out.getvalue()
    assert SECRET not in out.getvalue()


# -- whole runs: every byte that comes out is looked at -----------------------------------------------

RUN = ("--workload", "azure_code_2023", "--rate", "5", "-t", "2", "--api-key-env", "MY_TEST_KEY")
CRASH = """
from pd_users.users import PDUser
from pd_users.hooks import install
class Crashing(PDUser):
    def build_request(self, arrival):
        raise RuntimeError(f"crash with {self.target} {self.target.endpoint} {self.target.endpoint.key}")
install()
"""


def leaks(folder: Path, printed: str) -> list[str]:
    """Where the key is: in what was printed, or in a file of the run, gzip or not."""
    found = ["printed"] if SECRET in printed else []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            found += [str(path)] if SECRET.encode() in data else []
    return found


def command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue


@pytest.mark.process
@pytest.mark.parametrize("kind", ["good", "refused", "failing", "crash"])
def test_no_output_of_a_run_holds_the_key(tmp_path: Path, kind: str) -> None:
    env = {"MY_TEST_KEY": SECRET if kind != "refused" else f"{SECRET}-other"}
    faults = ("--fault", "401=0.3", "--fault", "503=0.2") if kind == "failing" else ()
    more = ("--no-preflight", "--model", "emulated") if kind == "failing" else ()
    server_env = {"EMULATOR_KEY": SECRET}
    with emulator("--api-key-env", "EMULATOR_KEY", *faults, env=server_env) as cluster:
        arguments = ("-H", cluster.url, *RUN, *more)
        if kind == "crash":
            file = tmp_path / "crashing.py"
            file.write_text(CRASH)
            python_path = {**env, "PYTHONPATH": str(ROOT)}
            run_dir = tmp_path / "runs"
            run = Locust("--headless", *arguments, run_dir=run_dir, env=python_path, file=str(file))
            finished = run.finish(60)
        else:
            finished = headless(*arguments, run_dir=tmp_path / "runs", env=env)
    assert leaks(tmp_path, finished.output) == []
    if kind == "refused":
        assert finished.code == 1
        assert re.search(r"key-wrong", finished.output)
    if kind in ("good", "failing"):
        assert finished.run["arrivals"]["due"] > 0
    assert "Traceback" not in finished.output or kind == "crash"


@pytest.mark.process
def test_no_process_title_holds_the_key(tmp_path: Path) -> None:
    server_env = {"EMULATOR_KEY": SECRET}
    with emulator("--api-key-env", "EMULATOR_KEY", env=server_env) as cluster:
        arguments = ("--headless", "-H", cluster.url, *RUN)
        run = Locust(*arguments, run_dir=tmp_path, env={"MY_TEST_KEY": SECRET})
        run.wait_for(r"(?i)request|spawn|running|ready|%|dealing|worker")
        assert not [line for line in command_lines() if SECRET in line]
        finished = run.finish(60)
    assert leaks(tmp_path, finished.output) == []


ROUTES = (
    *("/", "/capacity", "/capacity/data", "/capacity/report", "/stats/requests", "/stats/report"),
    *(
        "/stats/requests/csv",
        "/stats/failures/csv",
        "/exceptions",
        "/exceptions/csv",
        "/logs",
        "/tasks",
    ),
)


def pages(url: str) -> Iterator[tuple[str, str]]:
    """Every page and JSON route, as far as it is there."""
    for route in ROUTES:
        try:
            with urllib.request.urlopen(url + route, timeout=10) as answer:
                yield route, answer.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            with error:
                assert error.code == 404  # noqa: PT017


@pytest.mark.process
@pytest.mark.parametrize(
    "kind",
    [
        "failing",
        pytest.param("good", marks=pytest.mark.full),
        pytest.param("crash", marks=pytest.mark.full),
    ],
)
def test_neither_the_web_pages_nor_the_wire_nor_ps_show_the_key(tmp_path: Path, kind: str) -> None:
    """Master with web UI and one worker; what they say to each other goes through a relay."""
    server_env = {"EMULATOR_KEY": SECRET}
    faults = ("--fault", "401=0.3", "--fault", "503=0.2") if kind == "failing" else ()
    file = tmp_path / "crashing.py"
    file.write_text(CRASH)
    env = {"MY_TEST_KEY": SECRET, "PYTHONPATH": str(ROOT)}
    files = tmp_path / "files"
    own = {"file": str(file)} if kind == "crash" else {}
    port, web_port = free_port(), free_port()
    with emulator("--api-key-env", "EMULATOR_KEY", *faults, env=server_env) as cluster:
        arguments = (
            *("--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", str(port)),
            *("--web-host", "127.0.0.1", "--web-port", str(web_port), "--expect-workers", "1"),
            *("--autostart", "--autoquit", "6", "--logfile", str(tmp_path / "master.log")),
            *("--csv", str(files / "stats"), "--html", str(files / "locust.html")),
            *("-H", cluster.url, *RUN, "--keep-going", "--no-preflight", "--model", "emulated"),
        )
        files.mkdir()
        with relaying(port) as relay:
            master = Locust(*arguments, run_dir=tmp_path / "runs", env=env, **own)
            worker = Locust(
                *("--worker", "--master-host", "127.0.0.1", "--master-port", str(relay.port)),
                *("--api-key-env", "MY_TEST_KEY"),
                run_dir=tmp_path / "runs",
                env=env,
                **own,
            )
            url = f"http://127.0.0.1:{web_port}"
            eventually(lambda: json.loads(dict(pages(url))["/capacity/data"])["state"] == "done")
            told = dict(pages(url))
            assert [route for route, text in told.items() if SECRET in text] == []
            assert len(told) >= 10, sorted(told)
            titles = subprocess.run(
                ["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True
            )
            assert SECRET not in titles.stdout
            assert not [line for line in command_lines() if SECRET in line]
            finished, of_worker = master.finish(60), worker.finish(60)
            assert b"pd_records" in relay.said  # it really went this way, and can be read
            assert b"MY_TEST_KEY" in relay.said
            assert SECRET.encode() not in relay.said
    assert leaks(tmp_path, finished.output + of_worker.output) == []
    if kind == "crash":
        assert "crash with" in finished.output + of_worker.output + told["/logs"]


def eventually(is_so: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Ask again until it is so; the server behind the question may not be up yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError):
            if is_so():
                return
        assert time.monotonic() < deadline
        time.sleep(0.2)


ARGUMENTS = [
    (f"--api-key={SECRET}",),
    ("--api-key", "plainsecretword99"),
    ("--api-ke=plainsecretword99",),
    ("--apikey=plainsecretword99",),
    ("--api-key-env", SECRET),
    (f"--my-option={SECRET}",),
]


@pytest.mark.process
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=range(len(ARGUMENTS)))
def test_a_key_as_an_argument_is_refused_without_its_echo(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    finished = headless("-t", "1", *arguments, run_dir=tmp_path, timeout_s=30)
    assert finished.code in (1, 2)
    assert "plainsecretword99" not in finished.output
    assert SECRET not in finished.output
    assert "error" in finished.output
    assert "Traceback" not in finished.output


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:pass@host:8000/v1?api-version=3", "http://host:8000/v1"),
        ("http://user:pa?ss@host/", "http://***"),
        ("user:pass@host?x=1", "host"),
        ("https://host/api#part", "https://host/api"),
        ("/v1/models?code=1", "/v1/models"),
    ],
)
def test_a_url_is_shown_without_user_and_query(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize("query", ["key=abcdef99", "api_key=abcdef99", "v=1&access_token=abcdef99"])
def test_a_key_in_a_urls_query_is_refused(query: str) -> None:
    with pytest.raises(ConfigError, match="holds a key in its query") as told:
        parse_base_url(f"http://host/v1?{query}")
    assert "abcdef99" not in str(told.value)
    assert parse_base_url("http://host/v1?api-version=3").query == "api-version=3"


@pytest.mark.process
def test_what_a_master_tells_its_workers_holds_no_key() -> None:
    """Options name a variable or a file; each worker reads its own."""
    told = (
        "from dataclasses import fields; from pd_users.options import RunOptions;"
        "from pd_users.spec import RunSpec;"
        "print([f.name for c in (RunOptions, RunSpec) for f in fields(c) if 'key' in f.name])"
    )
    command = [sys.executable, "-c", told]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['api_key_env', 'api_key_file']"
