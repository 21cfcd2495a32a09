"""The doctor and the preflight on targets that are well, and on each kind that is not."""

import json
import os
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from pd_users.channel import CHANNELS, DEFAULT
from pd_users.checks import FAIL, GROUPS, OK, WARN, Check, DiagnosisError, exit_code
from pd_users.client import Client
from pd_users.doctor_answers import instances_check
from pd_users.doctor_key import key_check
from pd_users.doctor_network import url_check
from pd_users.doctor_performance import (
    Alone,
    channel_check,
    files_check,
    floor_checks,
    jitter_check,
    steal_check,
)
from pd_users.endpoint import parse_base_url
from pd_users.errors import TargetError
from pd_users.examination import Visit, examine
from pd_users.instances import Instances
from pd_users.preflight import Learned, fit, floor_notes, look, preflight
from pd_users.probes import Models, Patience, choose_model
from pd_users.secrets import Key
from pd_users.stream import StreamResult
from pd_users.target import DEFAULT_EXTRAS, build_target
from pd_users.timeouts import Timeouts
from tests.access import Given
from tests.processes import ROOT, Emulator, emulator
from tests.raw_server import Request, Wire, serving
from workloads.errors import ConfigError

FAULTS = ROOT.parent / "shared" / "faults"
KEY = "sk-good-key-123"


def look_at(host: str, wait_s: float | None = 0.0, **given: Any) -> Learned:
    options = Given(**given)
    return preflight(build_target(options, host, options.model or "", DEFAULT_EXTRAS), wait_s)


def trouble_of(host: str, wait_s: float | None = 0.0, **given: Any) -> DiagnosisError:
    with pytest.raises(DiagnosisError) as caught:
        look_at(host, wait_s, **given)
    assert "\n" not in str(caught.value)
    return caught.value


def visit(host: str, direct_host: str = "", wait_s: float | None = None, **given: Any) -> Visit:
    seen = Visit(Given(**given), host, direct_host, 100, (500.0, 50.0), wait_s)
    examine(seen)
    return seen


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {c.name: c for c in checks}


def failures(checks: list[Check]) -> list[tuple[str, str, str]]:
    return [(c.group, c.name, c.diagnosis) for c in checks if c.verdict == FAIL]


# -- judgements, without any target ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "listed", "chosen"),
    [
        ("", ("only",), "only"),
        ("b", ("a", "b"), "b"),
        ("given", None, "given"),
    ],
)
def test_the_model_is_the_one_asked_for_or_the_only_one(
    wanted: str, listed: tuple[str, ...] | None, chosen: str
) -> None:
    assert choose_model(wanted, Models(listed, False), "http://h") == chosen


@pytest.mark.parametrize(
    ("wanted", "listed", "diagnosis", "said"),
    [
        ("qwen2.5-7b", ("Qwen/Qwen2.5-7B-Instruct",), "model-unknown", "--model Qwen/Qwen2.5-7B"),
        ("deepseek-v3.l", ("deepseek-v3.1", "qwen3"), "model-unknown", "--model deepseek-v3.1"),
        ("x", ("a", "b"), "model-unknown", "give one of these"),
        ("", ("a", "b"), "model-unknown", "say which with --model"),
        ("", None, "model-unknown", "give --model"),
        ("m", (), "decode-unregistered", "lists no model"),
    ],
)
def test_a_model_that_is_not_there_is_told_with_the_nearest_name(
    wanted: str, listed: tuple[str, ...] | None, diagnosis: str, said: str
) -> None:
    with pytest.raises(DiagnosisError, match=said) as caught:
        choose_model(wanted, Models(listed, False), "http://h")
    assert caught.value.diagnosis == diagnosis


def test_template_and_tokens_per_word_come_from_two_counts() -> None:
    """F95: what the server counts wins over what was asked for."""
    assert fit([(40, 48), (400, 408)]) == (8.0, 1.0, [])
    template, per_word, _ = fit([(100, 118), (4000, 4252)])
    assert (round(template), round(per_word, 2)) == (12, 1.06)
    assert fit([])[2] != []


def test_a_floor_above_an_slo_is_told() -> None:
    assert floor_notes(400, 40, (500, 50)) == []
    assert "TTFT without any load is 600 ms" in floor_notes(600, None, (500, 50))[0]
    assert "TPOT without any load is 60 ms" in floor_notes(400, 60, (500, 50))[0]


@pytest.mark.parametrize(
    ("url", "channel", "verdict", "said"),
    [
        ("http://h:1", "", OK, "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/", "", OK, "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/chat/completions", "", OK, "its base is taken"),
        ("http://h:1/v1/v1", "", FAIL, "twice"),
        ("https://taotoken.net/api", "taotoken", OK, "https://taotoken.net/api/v1/chat"),
        ("https://taotoken.net", "taotoken", FAIL, "https://taotoken.net/v1/chat"),
    ],
)
def test_the_form_of_a_url(url: str, channel: str, verdict: str, said: str) -> None:
    check = url_check(url, parse_base_url(url), CHANNELS.get(channel, DEFAULT))
    assert (check.verdict, check.diagnosis) == (verdict, "base-url" if verdict == FAIL else "")
    assert said in check.found


@pytest.mark.parametrize(
    ("key", "channel", "verdict"),
    [
        (Key(KEY, "the variable X"), "taotoken", OK),
        (Key(KEY, "the variable X", ("a line end",)), "taotoken", WARN),
        (Key("abc-def-123", "the variable X"), "taotoken", WARN),
        (Key("", "the variable TAOTOKEN_API_KEY"), "taotoken", FAIL),
        (Key("", "the variable OPENAI_API_KEY"), "", OK),
    ],
)
def test_a_key_is_judged_by_its_form(key: Key, channel: str, verdict: str) -> None:
    check = key_check(key, CHANNELS.get(channel, DEFAULT))
    assert check.verdict == verdict
    assert not key.value or key.value not in check.found + check.cure


@pytest.mark.parametrize(
    ("instances", "verdict", "diagnosis"),
    [
        (Instances("x", ("p",), ("d",)), OK, ""),
        (Instances("x", ("p",), ()), FAIL, "decode-unregistered"),
        (Instances("x", (), ("d",)), FAIL, "prefill-unregistered"),
        (Instances("x", ("p",), ("d", "e"), ("d",)), WARN, ""),
        (Instances("x", ("p",), ("d",), ("d",)), FAIL, "decode-unregistered"),
        (None, OK, ""),
    ],
)
def test_both_p_and_d_must_be_registered(
    instances: Instances | None, verdict: str, diagnosis: str
) -> None:
    check = instances_check(instances)
    assert (check.verdict, check.diagnosis) == (verdict, diagnosis)


def alone(ttft_s: float, gap_s: float, longest_s: float = 0.0) -> Alone:
    gaps = array("d", [gap_s] * 10 + [longest_s or gap_s])
    last = 1 + ttft_s + sum(gaps)
    result = StreamResult(
        "ok",
        sent=1.0,
        first_token=1 + ttft_s,
        last_token=last,
        output_tokens=12,
        n_first=1,
        gaps=gaps,
    )
    return Alone((result,) * 3)


def test_one_request_alone_against_the_slos() -> None:
    verdicts = [c.verdict for c in floor_checks(alone(0.1, 0.01), (500, 50))]
    assert verdicts == [OK, OK]
    assert [c.verdict for c in floor_checks(alone(0.6, 0.06), (500, 50))] == [FAIL, FAIL]
    assert [c.verdict for c in floor_checks(alone(0.4, 0.01), (500, 50))] == [WARN, OK]


def test_uneven_gaps_are_named_as_the_articles_jitter() -> None:
    assert jitter_check(alone(0.1, 0.01)).verdict == OK
    uneven = jitter_check(alone(0.1, 0.01, longest_s=0.2))
    assert (uneven.verdict, uneven.diagnosis) == (WARN, "tpot-jitter")
    assert "lower --max-running-requests, or add D" in uneven.cure


def test_what_a_channel_adds_is_told() -> None:
    assert channel_check(alone(0.11, 0.01), alone(0.1, 0.01), "http://d").verdict == OK
    slow = channel_check(alone(0.3, 0.01), alone(0.1, 0.01), "http://d")
    assert slow.verdict == WARN
    assert "it adds 200.0 ms" in slow.found


def test_open_files_and_stolen_cpu() -> None:
    assert files_check(1024, 1024, 500).verdict == OK
    assert files_check(1024, 1024, 2000).verdict == FAIL
    assert files_check(1024, 100_000, 2000).verdict == OK  # Locust raises its own limit
    idle = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert steal_check(idle, (10.0, 0.0, 5.0, 80.0, 0.0, 0.0, 0.0, 0.0)).verdict == OK
    assert steal_check(idle, (10.0, 0.0, 5.0, 75.0, 0.0, 0.0, 0.0, 9.0)).verdict == WARN
    assert steal_check((), ()).verdict == OK


def test_one_failure_makes_the_exit_code() -> None:
    good, bad = Check("g", "n", "f"), Check("g", "n", "f", FAIL)
    assert [exit_code([]), exit_code([good]), exit_code([good, bad])] == [0, 0, 1]


# -- servers that misbehave, byte by byte ----------------------------------------------------------------


def answering(status: bytes, kind: bytes, body: bytes, models: bytes = b'{"data":[{"id":"m"}]}'):  # type: ignore[no-untyped-def]
    """/v1/models is fine, every POST gets these bytes."""

    def handle(wire: Wire, request: Request) -> bool:
        told = models if request.method == "GET" else body
        first = b"200 OK" if request.method == "GET" else status
        sort = b"application/json" if request.method == "GET" else kind
        head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
        wire.send(head % (first, sort, len(told)) + told)
        return True

    return serving(handle)


JSON = b"application/json"
WHOLE = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"length"}],"usage":{}}'


@pytest.mark.parametrize(
    ("status", "kind", "body", "diagnosis"),
    [
        (b"401 Unauthorized", JSON, b'{"error":{"message":"Invalid key"}}', "key-wrong"),
        (b"401 Unauthorized", JSON, b'{"error":{"message":"token expired"}}', "key-expired"),
        (b"403 Forbidden", JSON, b'{"error":"no right"}', "key-rights"),
        (b"404 Not Found", JSON, b'{"message":"Model not found"}', "model-unknown"),
        (b"200 OK", b"text/html", b"<html><script>alert(1)</script>", "html"),
        (b"200 OK", JSON, b'{"object":"chat.completion"}', "no-choices"),
        (b"200 OK", JSON, WHOLE, "no-streaming"),
        (b"502 Bad Gateway", JSON, b'{"error":"local proxy failed"}', "decode-unregistered"),
        (b"500 Oops", JSON, b"dial tcp: connection refused", "decode-unregistered"),
        (b"503 Busy", JSON, b'{"error":{"message":"model is loading"}}', "loading"),
        (b"429 Slow", JSON, "请求过于频繁".encode(), "rate-limited"),
        (b"500 Oops", JSON, b"{}", "http-5xx"),
    ],
)
def test_the_preflight_names_what_a_server_does(
    status: bytes, kind: bytes, body: bytes, diagnosis: str
) -> None:
    with answering(status, kind, body) as server:
        trouble = trouble_of(server.url)
        assert trouble.diagnosis == diagnosis
        assert f"({diagnosis})" in str(trouble)
        groups = failures(visit(server.url, wait_s=0.0).checks)
    assert [g[2] for g in groups] == [diagnosis]
    assert groups[0][0] == ("key and rights" if diagnosis.startswith("key-") else GROUPS[1])


def test_one_token_that_works_while_more_fail_means_that_d_is_missing() -> None:
    def handle(wire: Wire, request: Request) -> bool:
        asked = orjson.loads(request.body) if request.body else {}
        body = b'{"data":[{"id":"m"}]}' if request.method == "GET" else WHOLE
        if asked.get("stream"):
            wire.send(b"HTTP/1.1 504 Late\r\nContent-Length: 0\r\n\r\n")
        else:
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return True

    with serving(handle) as server:
        trouble = trouble_of(server.url)
    assert trouble.diagnosis == "decode-unregistered"
    assert "a request of one token succeeds" in str(trouble)


@pytest.mark.process  # waits in real time
def test_a_silent_answer_is_laid_to_the_d_that_the_router_calls_unhealthy() -> None:
    """As SGLang's router does when a D has died: P waits for it, and so does the client."""
    workers = orjson.dumps(
        {
            "workers": [
                {"url": "http://p", "worker_type": "prefill", "is_healthy": True},
                {"url": "http://d", "worker_type": "decode", "is_healthy": False},
            ]
        }
    )

    def handle(wire: Wire, request: Request) -> bool:
        if request.method == "POST":
            wire.wait_for_close()
            return False
        body = workers if request.target == "/workers" else b'{"data":[{"id":"m"}]}'
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return True

    with serving(handle) as server:
        target = build_target(Given(), server.url, "m", DEFAULT_EXTRAS)
        client = Client(target.endpoint, Timeouts(first_byte_s=0.3))
        with pytest.raises(DiagnosisError) as caught:
            look(client, target, Patience.of(0.0))
        client.close()
    assert caught.value.diagnosis == "decode-unregistered"
    assert "not healthy: http://d" in str(caught.value)


def test_a_field_that_is_refused_by_name_is_left_out() -> None:
    refused = ("min_tokens", "stream_options", "max_tokens")

    def handle(wire: Wire, request: Request) -> bool:
        asked = orjson.loads(request.body) if request.body else {}
        bad = next((name for name in refused if name in asked), None)
        if request.method == "GET":
            wire.send(b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"data":[{"id":"m"}]}')
        elif bad:
            said = b'{"error":{"message":"Unsupported parameter: %b"}}' % bad.encode()
            head = (
                b"HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            )
            wire.send(head % len(said) + said)
        else:
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
            wire.send(b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(asked["max_completion_tokens"]):
                wire.chunk(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
            wire.chunk(b"data: [DONE]\n\n")
            wire.send(b"0\r\n\r\n")
        return True

    with serving(handle) as server:
        learned = look_at(server.url)
    assert learned.target.fields == ("ignore_eos", "max_completion_tokens")
    assert not learned.usage
    assert learned.keeps_length
    assert any("refuses min_tokens, stream_options" in note for note in learned.notes)
    assert any("estimated" in note for note in learned.notes)


def test_nothing_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert trouble_of(host).diagnosis == "connect"
        assert failures(visit(host).checks) == [(GROUPS[1], "network", "connect")]
    assert failures(visit("http://no-such-host.invalid").checks) == [
        (GROUPS[1], "network", "connect")
    ]
    assert failures(visit("127.0.0.1:1").checks) == [(GROUPS[1], "url", "base-url")]


def test_what_a_target_says_is_shown_without_the_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(KEY)
    path.chmod(0o600)
    echo = b'{"error":{"message":"bad key Bearer sk-good-key-123 sk-good-key-123"}}'
    with answering(b"401 No", JSON, echo) as server:
        assert KEY not in str(trouble_of(server.url, api_key_file=str(path)))
        checks = visit(server.url, api_key_file=str(path)).checks
    assert KEY not in repr(checks)
    assert KEY not in json.dumps([str(c) for c in checks])


# -- the reports' cases, from their own server ------------------------------------------------------------


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    script = FAULTS / "replay_server.py"
    if not script.exists():
        pytest.skip("the fault cases are not here (../shared/faults)")
    port_file = tmp_path_factory.mktemp("replay") / "port"
    command = [sys.executable, str(script), "--port", "0", "--port-file", str(port_file)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 10
        while not (port_file.exists() and port_file.read_text().strip()):
            assert time.monotonic() < until, "the replay server did not start"
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port_file.read_text().strip()}"
    finally:
        process.terminate()
        process.wait(timeout=5)


CASES = [
    # case, seconds to wait (None: not given), the name of the trouble or "", a part of what is said
    ("f28_html_200", None, "html", "text/html"),
    ("f30_http_429", 0.0, "rate-limited", "HTTP 429"),
    ("f32b_redirect_302", None, "redirect", "redirect 302 to"),
    ("f31_http_503_loading", 0.0, "loading", "HTTP 503"),
    ("f31_http_503_loading", None, "", "asked again after HTTP 503"),
    ("f32a_redirect_307", None, "", ""),
    ("f41_no_usage", None, "", "token counts are estimated"),
    ("f43_stale_keepalive", None, "", ""),
    ("f44_expired_mid_run", None, "", ""),
    ("f48_require_key", None, "key-wrong", "HTTP 401"),
]


@pytest.mark.process
@pytest.mark.parametrize(("case", "wait_s", "diagnosis", "said"), CASES)
def test_each_preflight_case_of_the_reports(
    replay: str, case: str, wait_s: float | None, diagnosis: str, said: str
) -> None:
    host = f"{replay}/c/{case}"
    if diagnosis:
        trouble = trouble_of(host, wait_s, model=case)
        assert (trouble.diagnosis, said in str(trouble)) == (diagnosis, True), str(trouble)
    else:
        learned = look_at(host, wait_s, model=case)
        assert learned.ttft_ms is not None
        assert said in " ".join(learned.notes)


@pytest.mark.process
def test_a_busy_gateway_is_waited_for_and_that_is_told(replay: str) -> None:
    """F30: hits 1 and 2 (one of them in the case above) are refused."""
    learned = look_at(f"{replay}/c/f30_http_429", None, model="f30_http_429")
    assert any("asked again after HTTP 429" in note for note in learned.notes)


@pytest.mark.process
def test_the_key_of_a_file_with_a_line_end_is_taken(replay: str, tmp_path: Path) -> None:
    """F90 against F48."""
    path = tmp_path / "key"
    path.write_bytes((FAULTS / "inputs" / "f90_key_file.txt").read_bytes())
    path.chmod(0o600)
    learned = look_at(
        f"{replay}/c/f48_require_key", model="f48_require_key", api_key_file=str(path)
    )
    assert learned.ttft_ms is not None


@pytest.mark.process
def test_a_key_that_expires_under_the_doctors_eyes_is_told_so(replay: str) -> None:
    """F44: 401 from the sixth request on."""
    seen = visit(f"{replay}/c/F44", model="f44_expired_mid_run").checks
    assert failures(seen)[0][2] in ("key-expired", "key-wrong")


# -- the emulator ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def healthy() -> Iterator[Emulator]:
    with emulator("--prefill", "2", "--decode", "2", "--prefill-ms", "2,0.02,0") as server:
        yield server


@pytest.mark.process
def test_a_healthy_target_is_found_healthy_within_ten_seconds(healthy: Emulator) -> None:
    start = time.monotonic()
    seen = visit(healthy.url).checks
    assert time.monotonic() - start < 10
    assert failures(seen) == []
    found = by_name(seen)
    for name, text in {
        "model": "emulated, the only one there",
        "fields": "takes ignore_eos, min_tokens, stream_options",
        "usage in the stream": "token counts come",
        "cached tokens": "told",
        "token-id prompts": "taken",
        "prompt tokens": "8 tokens of template, 1.00 tokens per word",
        "keep-alive": "stays open",
        "tokens per chunk": "1",
        "P and D": "2 P and 2 D",
        "metrics of D": "cap 64",
        "second reading": "12 and 12 tokens",
    }.items():
        assert text in found[name].found, found[name]


@pytest.mark.process
def test_the_preflight_is_quick_and_learns(healthy: Emulator) -> None:
    start = time.monotonic()
    learned = look_at(healthy.url)
    assert time.monotonic() - start < 2
    assert (learned.template_tokens, learned.tokens_per_word) == (8.0, 1.0)
    assert learned.usage
    assert learned.cached_tokens
    assert learned.keeps_length
    assert learned.accepts_ignore_eos
    assert learned.accepts_min_tokens
    assert learned.is_emulator
    assert learned.instances is not None


@pytest.mark.process
@pytest.mark.parametrize(
    ("fault", "diagnosis"),
    [
        ("401", "key-wrong"),
        ("expired", "key-expired"),
        ("404-model", "model-unknown"),
        ("no-choices", "no-choices"),
        ("429", "rate-limited"),
        ("503", "loading"),
        ("local-proxy-failed", "decode-unregistered"),
        ("reset", "reset"),
        ("error-in-stream", "kv-transfer"),
        ("truncated", "truncated"),
    ],
)
def test_each_fault_of_the_emulator_is_recognised(fault: str, diagnosis: str) -> None:
    with emulator("--fault", f"{fault}=1") as server:
        assert trouble_of(server.url).diagnosis == diagnosis


@pytest.mark.process
def test_a_gateway_that_merges_tokens_is_asked_for_counts_in_each_chunk() -> None:
    with emulator("--tokens-per-chunk", "3") as server:
        learned = look_at(server.url)
        checks = by_name(visit(server.url).checks)
    assert "continuous_usage_stats" in learned.target.fields
    assert learned.tokens_per_chunk == pytest.approx(3)
    assert checks["tokens per chunk"].verdict == WARN


# -- the command ------------------------------------------------------------------------------------------


def doctor(
    *arguments: str, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pd_users.doctor", *arguments]
    full = {**os.environ, **(env or {})}
    return subprocess.run(
        command, cwd=ROOT, env=full, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.process
def test_the_command_prints_json_in_the_promised_order(healthy: Emulator) -> None:
    """F92 rides along: a proxy in the environment changes nothing for this machine itself."""
    proxy = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    metrics = f"{healthy.url}/decode/0/metrics"
    done = doctor("--host", healthy.url, "--json", "--decode-metrics-url", metrics, env=proxy)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["exit_code"] == 0
    groups = [c["group"] for c in told["checks"]]
    assert groups == sorted(groups, key=GROUPS.index)
    assert set(groups) == set(GROUPS)
    assert {c["verdict"] for c in told["checks"]} <= {OK, WARN, FAIL}
    assert told["learned"]["template_tokens"] == 8.0
    assert "HTTP_PROXY" in next(c["found"] for c in told["checks"] if c["name"] == "proxy")


def key_file(folder: Path, key: str) -> str:
    path = folder / "key"
    path.write_text(key)
    path.chmod(0o600)
    return str(path)


@pytest.mark.process
def test_the_gateway_of_the_article_from_end_to_end(tmp_path: Path) -> None:
    """Right key and base: ready. Wrong base, wrong key, no key: each by its name, never shown."""
    good, bad = KEY, "tt-0123456789"
    with emulator("--gateway", "taotoken") as server:
        base = f"{server.url}/api"
        ready = doctor("--target", "taotoken", "-H", base, env={"TAOTOKEN_API_KEY": f" {good}\n"})
        file = key_file(tmp_path, good)
        no_base = visit(server.url, target="taotoken", api_key_file=file).checks
        wrong = visit(base, target="taotoken", api_key_file=key_file(tmp_path, bad)).checks
    assert (ready.returncode, "Ready:" in ready.stdout) == (0, True), ready.stdout
    assert "left out" in ready.stdout
    assert good not in ready.stdout + ready.stderr
    assert failures(no_base) == [(GROUPS[1], "model", "base-url")]
    assert "https://taotoken.net/api" in by_name(no_base)["model"].cure
    assert failures(wrong) == [(GROUPS[0], "rights", "key-wrong")]
    assert good not in repr(no_base)
    assert bad not in repr(wrong)
    if "TAOTOKEN_API_KEY" not in os.environ:
        none = visit("http://127.0.0.1:1", target="taotoken").checks
        assert failures(none) == [(GROUPS[0], "key", "key-missing")]


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((f"--api-key={KEY}",), 2, "never given as an argument"),
        ((), 1, "--host: not given"),
        (("-H", "http://127.0.0.1:1", "--target", "sglan"), 1, "did you mean 'sglang'"),
    ],
)
def test_a_wrong_command_is_one_sentence(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = doctor(*arguments)
    text = (done.stdout + done.stderr).replace("\n", " ")
    assert (done.returncode, said in text) == (code, True), text
    assert KEY not in text
    assert "Traceback" not in text


@pytest.mark.process
def test_a_channel_is_compared_with_an_engine_behind_it(healthy: Emulator) -> None:
    with emulator("--prefill-ms", "60,0.02,0") as slow:
        check = by_name(visit(slow.url, direct_host=healthy.url).checks)["channel"]
    assert check.verdict == WARN
    assert "it adds" in check.found


@pytest.mark.process
def test_a_server_that_comes_up_late_is_waited_for() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    host = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "pd_users.doctor", "--host", host, "--wait", "30", "--json"]
    waiting = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        server = [sys.executable, "-m", "emulator", "--port", str(port), "--exit-with-parent"]
        with subprocess.Popen(
            server, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as late:
            out, _ = waiting.communicate(timeout=60)
            late.terminate()
    finally:
        waiting.kill()
    assert json.loads(out)["exit_code"] == 0


def test_errors_are_of_the_users_or_of_the_target() -> None:
    with pytest.raises(ConfigError):
        look_at("no-scheme")
    assert issubclass(DiagnosisError, TargetError)
