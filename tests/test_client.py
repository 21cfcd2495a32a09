"""The client on real sockets, against a server whose own log is the truth."""

import gc
import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import isnan
from pathlib import Path
from random import Random
from typing import Any

import gevent
import pytest

from pd_users.client import Client
from pd_users.endpoint import Endpoint, parse_base_url
from pd_users.errors import TargetError
from pd_users.failures import FAILURES
from pd_users.kernel_clock import AVAILABLE
from pd_users.stream import StreamResult
from pd_users.timeouts import Timeouts
from tests.processes import wait_until
from tests.raw_server import SSE_HEAD, Handler, RawServer, Request, Wire, serving
from tests.streams.cases import CASES, DONE, Case, chunk, event, plain
from tests.test_stream import FAULTS, check, check_shared

CHAT = "/v1/chat/completions"
SHORT = Timeouts(0.5, first_byte_s=0.4, between_bytes_s=0.3, total_s=5.0, linger_s=0.2)
CHUNKED = SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TOKEN = event(chunk({"content": "x"}))
END = event(chunk({}, "stop")) + event(DONE)
KEY = "sk-good-key-123"
stamped = pytest.mark.skipif(not AVAILABLE, reason="no kernel stamps on this system")

pytestmark = pytest.mark.process


@contextmanager
def talking(
    handler: Handler, timeouts: Timeouts = SHORT, **more: Any
) -> Iterator[tuple[RawServer, Client]]:
    """A server and a client of it."""
    with serving(handler) as server:
        client = Client(parse_base_url(server.url, **more), timeouts)
        try:
            yield server, client
        finally:
            client.close()


def post(client: Client, body: bytes = b"{}") -> StreamResult:
    return client.stream(CHAT, body)


def answer(wire: Wire, _request: Request) -> bool:
    """Two tokens and the end, at once."""
    wire.send(CHUNKED)
    for data in (TOKEN, TOKEN, END):
        wire.chunk(data)
    wire.send(b"0\r\n\r\n")
    return True


# -- every dialect and fault, over the wire --------------------------------------------------------


def play(case: Case, framing: str) -> Handler:
    """Send a case's pieces one by one, under one of HTTP's framings, and end as it says."""

    def handler(wire: Wire, _request: Request) -> bool:
        headers = dict(case.headers)
        if framing == "chunked":
            headers["Transfer-Encoding"] = "chunked"
        elif framing == "length":
            headers["Content-Length"] = str(len(case.body) + (case.end != "complete"))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        wire.send(f"HTTP/1.1 {case.status} Whatever\r\n{lines}\r\n".encode())
        for _, data in case.pieces:
            wire.chunk(data) if framing == "chunked" else wire.send(data)
        if case.end == "stalled":
            return not wire.wait_for_close()
        if case.end == "reset":
            gevent_free_pause()
            wire.reset()
        elif case.end == "complete" and framing == "chunked":
            wire.send(b"0\r\n\r\n")
        return case.end == "complete" and framing != "close"

    return handler


def gevent_free_pause() -> None:
    """Give the other side time to read what a reset would throw away."""
    time.sleep(0.05)


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_every_case_has_the_same_outcome_on_a_socket(framing: str) -> None:
    results: dict[str, StreamResult] = {}
    limits = replace(SHORT, between_bytes_s=0.2)

    def run(case: Case) -> None:
        with talking(play(case, framing), limits) as (_, client):
            results[case.name] = post(client)

    cases = [c for c in CASES if not (framing == "close" and c.end == "closed")]
    gevent.joinall([gevent.spawn(run, case) for case in cases], raise_error=True)
    timed = ("ttft_ms", "last_ms", "tpot_ms", "n_first")
    for case in cases:
        untimed = {name: value for name, value in case.expect.items() if name not in timed}
        if case.end != "complete":
            untimed.pop("evidence", None)
        check(results[case.name], untimed)


# -- moments ---------------------------------------------------------------------------------------


def paced(gap_s: float, count: int) -> Handler:
    def handler(wire: Wire, _request: Request) -> bool:
        wire.send(CHUNKED)
        for i in range(count):
            time.sleep(gap_s)
            wire.chunk(event(chunk({"content": f" {i}"})))
        wire.chunk(END)
        wire.send(b"0\r\n\r\n")
        return True

    return handler


def token_moments(server: RawServer) -> list[float]:
    return [at for wire in server.wires for at, data in wire.writes if b'"content"' in data]


def test_moments_are_those_of_the_servers_log() -> None:
    with talking(paced(0.01, 8)) as (server, client):
        result = post(client)
    moments = token_moments(server)
    assert result.outcome == "ok"
    assert result.clock == ("kernel" if AVAILABLE else "user")
    assert result.sent <= server.requests[0].arrived
    assert result.first_token == pytest.approx(moments[0], abs=0.005)
    assert result.second_token == pytest.approx(moments[1], abs=0.005)
    assert result.last_token == pytest.approx(moments[-1], abs=0.005)
    assert result.last_token <= result.done
    assert sum(result.gaps) == pytest.approx(result.last_token - result.first_token)


@stamped
def test_a_loop_that_is_busy_when_tokens_come_does_not_move_them() -> None:
    with talking(paced(0.03, 4)) as (server, client):
        reader = gevent.spawn(post, client)
        gevent.sleep(0.02)
        time.sleep(0.02)  # the first token comes in here, and nobody looks
        result = reader.get()
    assert result.clock == "kernel"
    assert result.first_token == pytest.approx(token_moments(server)[0], abs=0.003)


@stamped
def test_tokens_that_we_read_late_together_are_taken_apart_and_flagged() -> None:
    with talking(paced(0.02, 12)) as (server, client):
        reader = gevent.spawn(post, client)
        gevent.sleep(0.01)
        time.sleep(0.1)  # five tokens come in here
        result = reader.get()
        assert client.facts()["coalesced"] == 1
    assert result.clock == "coalesced"
    assert result.first_token == pytest.approx(token_moments(server)[0], abs=0.008)
    assert min(result.gaps) > 0.01


def test_tokens_sent_together_are_not_flagged() -> None:
    def burst(wire: Wire, _request: Request) -> bool:
        wire.send(CHUNKED)
        for _ in range(3):
            time.sleep(0.02)
            wire.chunk(TOKEN * 4)
        wire.chunk(END)
        wire.send(b"0\r\n\r\n")
        return True

    with talking(burst) as (server, client):
        result = post(client)
    assert result.clock == ("kernel" if AVAILABLE else "user")
    assert (result.token_events, result.n_first) == (12, 1)
    assert result.first_token == pytest.approx(token_moments(server)[0], abs=0.005)


@stamped
def test_a_wall_clock_that_is_set_marks_the_records_of_that_time() -> None:
    with talking(paced(0.01, 3)) as (_, client):
        reader = gevent.spawn(post, client)
        gevent.sleep(0.005)
        client.clock.offset_ns += 5_000_000  # as if the clock had been set since it was measured
        assert reader.get().clock == "jumped"
        assert post(client).clock == "kernel"
        assert client.facts()["jumped"] == 1


# -- connections -----------------------------------------------------------------------------------


def test_a_connection_is_used_again() -> None:
    with talking(answer) as (server, client):
        assert [post(client).outcome for _ in range(3)] == ["ok"] * 3
        assert client.request("GET", "/x").status == 200
        assert {request.connection for request in server.requests} == {1}
        assert client.facts()["connections"] == 1


def test_a_server_that_closes_after_each_stream_costs_a_connection_not_a_request() -> None:
    def close_after(wire: Wire, request: Request) -> bool:
        answer(wire, request)
        return False

    with talking(close_after) as (server, client):
        for _ in range(3):
            assert post(client).outcome == "ok"
            server.closed_by_client.acquire(timeout=5)
        assert len(server.requests) == 3
        assert client.facts()["connections"] == 3


def test_a_pooled_connection_closed_before_any_byte_is_replaced_once() -> None:
    def first_only(wire: Wire, request: Request) -> bool:
        if [r.connection for r in server.requests].count(request.connection) == 2:
            return False  # the second request on a connection gets no answer
        return answer(wire, request)

    with talking(first_only) as (server, client):
        assert [post(client).outcome for _ in range(2)] == ["ok", "ok"]
        assert client.facts()["retried"] == 1
        assert [request.connection for request in server.requests] == [1, 1, 2]


def test_a_fresh_connection_closed_without_an_answer_is_a_failure_and_not_tried_again() -> None:
    with talking(lambda _wire, _request: False) as (server, client):
        result = post(client)
        assert (result.outcome, result.status) == ("reset", 0)
        assert "without an answer" in result.evidence
        assert len(server.requests) == 1


def test_warm_opens_connections_ahead() -> None:
    with talking(answer) as (_, client):
        assert client.warm(3) == 3
        gevent.joinall([gevent.spawn(post, client) for _ in range(3)])
        assert client.facts()["connections"] == 3


def test_a_body_that_does_not_end_after_done_is_not_waited_for_long() -> None:
    def linger(wire: Wire, _request: Request) -> bool:
        wire.send(CHUNKED)
        wire.chunk(TOKEN + END)
        return not wire.wait_for_close()

    with talking(linger) as (_, client):
        began = time.monotonic()
        result = post(client)
        assert result.outcome == "ok"
        assert 0.15 < time.monotonic() - began < 0.5
        assert result.done - began < 0.15


def test_junk_behind_an_answer_costs_the_connection_only() -> None:
    def junk(wire: Wire, _request: Request) -> bool:
        wire.send(
            CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(TOKEN + END), TOKEN + END) + b"junk\r\n"
        )
        return True

    with talking(junk) as (_, client):
        assert [post(client).outcome for _ in range(2)] == ["ok", "ok"]
        assert client.facts()["connections"] == 2


def test_interim_answers_are_passed_over() -> None:
    def interim(wire: Wire, request: Request) -> bool:
        wire.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        return answer(wire, request)

    with talking(interim) as (_, client):
        assert post(client).outcome == "ok"


def test_http_1_0_and_a_body_until_close() -> None:
    def old(wire: Wire, _request: Request) -> bool:
        wire.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + TOKEN + END)
        return False

    with talking(old) as (_, client):
        assert [post(client).outcome for _ in range(2)] == ["ok", "ok"]


def test_a_refusal_is_read_although_the_body_was_not_taken() -> None:
    def too_large(wire: Wire, request: Request) -> bool:
        wire.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbig!")
        return False

    with talking(too_large) as (_, client):
        result = post(client, b"x" * 3_000_000)
        assert (result.outcome, result.evidence) == ("http-4xx", "HTTP 413: big!")


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"y" * 400_000,
        b"\x15\x03\x01\x00\x02\x02F",
    ],
)
def test_what_is_not_http_is_a_protocol_failure(head: bytes) -> None:
    def handler(wire: Wire, _request: Request) -> bool:
        wire.send(head)
        return not wire.wait_for_close()

    with talking(handler) as (_, client):
        result = post(client)
        assert result.outcome == "protocol"
        assert result.evidence


def test_no_mutated_answer_raises_or_hangs() -> None:
    rng = Random(7)
    good = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(d), d) for _, d in plain()) + b"0\r\n\r\n"

    def handler(wire: Wire, _request: Request) -> bool:
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data) if rng.random() < 0.5 else 120)
            data[at : at + rng.randrange(3)] = rng.choice(
                [b"", b"\r\n", b"\0", b"0", b"f", b":", b"HTTP/1.1 ", b"\xff"]
            )
        wire.send(bytes(data))
        return False

    def several(client: Client) -> list[str]:
        return [post(client).outcome for _ in range(20)]

    with talking(handler) as (_, client):
        jobs = [gevent.spawn(several, client) for _ in range(15)]
        gevent.joinall(jobs, timeout=20, raise_error=True)
        outcomes = {outcome for job in jobs for outcome in job.get(block=False)}
    assert outcomes <= {"ok", *FAILURES}
    assert {"ok", "protocol"} <= outcomes


# -- timeouts --------------------------------------------------------------------------------------


def silent(wire: Wire, _request: Request) -> bool:
    return not wire.wait_for_close()


def heartbeats(wire: Wire, _request: Request) -> bool:
    wire.send(CHUNKED)
    wire.chunk(TOKEN)
    for _ in range(60):
        wire.chunk(b": still here\n\n")
        time.sleep(0.02)
    return False


def beats_first(wire: Wire, _request: Request) -> bool:
    wire.send(CHUNKED)
    for _ in range(60):
        wire.chunk(b": still here\n\n")
        time.sleep(0.02)
    return False


def pings(wire: Wire, _request: Request) -> bool:
    wire.send(CHUNKED)
    wire.chunk(TOKEN)
    for _ in range(200):
        wire.chunk(event({}))
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("handler", "outcome", "tokens", "after_s"),
    [
        (silent, "stalled", 0, 0.4),
        (beats_first, "stalled", 0, 0.4),
        (heartbeats, "stalled", 1, 0.2),
        (pings, "timeout", 1, 0.6),
    ],
)
def test_timeouts(handler: Handler, outcome: str, tokens: int, after_s: float) -> None:
    with talking(handler, replace(SHORT, between_bytes_s=0.2, total_s=0.6)) as (server, client):
        began = time.monotonic()
        result = post(client)
        assert (result.outcome, result.token_events) == (outcome, tokens)
        assert result.done - began == pytest.approx(after_s, abs=0.1)
        assert server.closed_by_client.acquire(timeout=5)


def test_a_server_that_does_not_take_the_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client(parse_base_url(f"http://127.0.0.1:{listener.getsockname()[1]}"), SHORT)
        result = post(client, b"x" * 30_000_000)
        client.close()
    assert result.outcome == "stalled"
    assert "did not take the request" in result.evidence


# -- being stopped ---------------------------------------------------------------------------------


def test_a_killed_reading_closes_its_connection_and_keeps_its_moments() -> None:
    with talking(paced(0.01, 500)) as (server, client):
        reading = client.reading(CHAT, b"{}")
        assert isnan(reading.partial().sent)
        reader = gevent.spawn(reading.run)
        while reading.partial().token_events < 3:
            gevent.sleep(0.005)
        reader.kill()
        assert server.closed_by_client.acquire(timeout=5)
        result = reading.partial()
    assert result.outcome == "unfinished"
    assert result.sent < result.first_token < result.last_token
    assert isnan(result.done)


def test_a_timeout_of_the_caller_goes_through() -> None:
    with talking(silent) as (server, client):
        reading = client.reading(CHAT, b"{}")
        with pytest.raises(gevent.Timeout), gevent.Timeout(0.05):
            reading.run()
        assert server.closed_by_client.acquire(timeout=5)
        assert not isnan(reading.partial().sent)


def test_closing_the_client_ends_what_is_in_flight() -> None:
    with talking(silent, Timeouts()) as (_, client):
        reader = gevent.spawn(post, client)
        gevent.sleep(0.02)
        client.close()
        assert reader.get(timeout=5).outcome == "reset"


# -- redirects -------------------------------------------------------------------------------------


def redirecting(status: int, location: str) -> Handler:
    def handler(wire: Wire, request: Request) -> bool:
        if request.target == "/new":
            return answer(wire, request)
        wire.send(
            f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
        )
        return True

    return handler


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_to_the_same_server_keeps_body_and_key(status: int) -> None:
    with talking(redirecting(status, "/new"), key=KEY) as (server, client):
        result = post(client, b'{"a": 1}')
    assert result.outcome == "ok"
    assert [request.target for request in server.requests] == [CHAT, "/new"]
    assert {request.body for request in server.requests} == {b'{"a": 1}'}
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert result.sent <= server.requests[0].arrived


def test_a_redirect_to_another_server_is_refused_and_the_key_stays_here() -> None:
    with (
        serving(answer) as other,
        talking(redirecting(307, f"{other.url}/new"), key=KEY) as (_, client),
    ):
        result = post(client)
        assert (result.outcome, result.status) == ("redirect", 307)
        assert other.url in result.evidence
        assert other.requests == []


@pytest.mark.parametrize(
    ("status", "location", "hits"), [(302, "/new", 1), (303, "/new", 1), (307, "/again", 2)]
)
def test_other_redirects_are_refused(status: int, location: str, hits: int) -> None:
    with talking(redirecting(status, location)) as (server, client):
        result = post(client)
        assert (result.outcome, result.status) == ("redirect", status)
        assert location in result.evidence
        assert len(server.requests) == hits


# -- reaching the server ---------------------------------------------------------------------------


def test_nobody_listens() -> None:
    with serving(answer) as server:
        pass
    client = Client(parse_base_url(server.url), SHORT)
    result = post(client)
    client.close()
    assert (result.outcome, result.status) == ("connect", 0)
    assert "refused" in result.evidence
    assert not isnan(result.sent)
    with pytest.raises(TargetError, match=r"GET http://127.0.0.1:\d+/v1/models: cannot connect"):
        client.request("GET", "/v1/models")


def test_a_name_that_nobody_knows() -> None:
    client = Client(parse_base_url("http://no-such-host.invalid"), SHORT)
    result = post(client)
    client.close()
    assert result.outcome == "connect"
    assert "no-such-host.invalid" in result.evidence


def test_localhost_finds_a_server_that_speaks_ipv4_only() -> None:
    with serving(answer) as server:
        client = Client(parse_base_url(f"http://localhost:{server.port}"), SHORT)
        assert post(client).outcome == "ok"
        client.close()
    assert server.requests[0].headers["host"] == f"localhost:{server.port}"


def test_paths_headers_and_the_key_arrive_and_no_netrc_is_read() -> None:
    more = {"headers": {"X-Team": "a", "api-key": "k-123456"}}
    with talking(answer) as (server, _):
        endpoint = parse_base_url(f"{server.url}/api/v1/", **more)
        client = Client(endpoint, SHORT)
        client.stream(CHAT, b"{}", {"X-Request-Id": "7"})
        client.close()
    request = server.requests[0]
    assert (request.method, request.target) == ("POST", f"/api{CHAT}")
    assert request.headers["x-team"] == "a"
    assert request.headers["api-key"] == "k-123456"
    assert request.headers["x-request-id"] == "7"
    assert request.headers["accept-encoding"] == "identity"
    assert "authorization" not in request.headers


# -- small requests --------------------------------------------------------------------------------


def test_a_small_request_is_an_answer_whatever_its_status() -> None:
    def handler(wire: Wire, request: Request) -> bool:
        status = 200 if request.method == "GET" else 405
        body = json.dumps({"method": request.method}).encode()
        wire.send(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        return True

    with talking(handler) as (server, client):
        got = client.request("GET", "/v1/models")
        assert (got.status, json.loads(got.body)) == (200, {"method": "GET"})
        put = client.request("PUT", "/deployment", b"{}")
        assert (put.status, server.requests[1].body) == (405, b"{}")


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (silent, "no answer for 0.4 s"),
        (lambda _w, _r: False, "closed without an answer"),
        (redirecting(307, "http://127.0.0.1:1/x"), "another server"),
    ],
)
def test_a_small_request_without_a_whole_answer_is_a_target_error(
    handler: Handler, words: str
) -> None:
    with talking(handler) as (_, client), pytest.raises(TargetError, match=words) as caught:
        client.request("GET", "/v1/models")
    assert str(caught.value).endswith(".")


# -- TLS and proxies -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of 127.0.0.1 in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is needed to make a certificate")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = (
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout {path} -out {path}.crt"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[RawServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serving(paced(0.005, 5), tls=context) as server:
        yield server


def test_tls_with_a_known_certificate(tls_server: RawServer, certificate: Path) -> None:
    client = Client(parse_base_url(tls_server.url, verify=f"{certificate}.crt"), SHORT)
    results = [post(client) for _ in range(2)]
    client.close()
    assert [result.outcome for result in results] == ["ok", "ok"]
    assert {result.clock for result in results} == {"user"}
    assert results[0].first_token == pytest.approx(token_moments(tls_server)[0], abs=0.01)
    assert client.facts()["connections"] == 1


def test_tls_trusts_nobody_unknown_unless_told(tls_server: RawServer, certificate: Path) -> None:
    strict = Client(parse_base_url(tls_server.url), SHORT)
    lax = Client(parse_base_url(tls_server.url, verify=False), SHORT)
    other = replace(parse_base_url(tls_server.url, verify=f"{certificate}.crt"), host="localhost")
    misnamed = Client(other, SHORT)
    assert [post(client).outcome for client in (strict, lax, misnamed)] == ["tls", "ok", "tls"]
    assert "certificate" in post(strict).evidence
    for client in (strict, lax, misnamed):
        client.close()


def test_tls_to_a_port_that_speaks_none() -> None:
    with serving(answer) as server:
        client = Client(parse_base_url(server.url.replace("http", "https")), SHORT)
        assert post(client).outcome in ("tls", "connect")
        client.close()


def test_https_goes_through_a_proxy(tls_server: RawServer, certificate: Path) -> None:
    with serving(tunnel(tls_server.port)) as proxy:
        endpoint = replace(
            parse_base_url(tls_server.url, KEY, verify=f"{certificate}.crt"),
            proxy=f"http://us%40er:pass@127.0.0.1:{proxy.port}",
        )
        client = Client(endpoint, SHORT)
        result = post(client)
        client.close()
    assert result.outcome == "ok"
    asked = proxy.requests[0]
    assert (asked.method, asked.target) == ("CONNECT", f"127.0.0.1:{tls_server.port}")
    assert asked.headers["proxy-authorization"] == "Basic dXNAZXI6cGFzcw=="
    assert "authorization" not in asked.headers
    assert "proxy-authorization" not in tls_server.requests[0].headers


def tunnel(port: int) -> Handler:
    """A proxy's CONNECT to one port of this machine."""

    def pump(source: Any, sink: Any) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            sink.close()

    def handler(wire: Wire, _request: Request) -> bool:
        there = socket.create_connection(("127.0.0.1", port))
        wire.send(b"HTTP/1.1 200 Connected\r\nVia: us\r\n\r\n")
        threading.Thread(target=pump, args=(there, wire.sock), daemon=True).start()
        pump(wire.sock, there)
        return False

    return handler


def test_a_proxy_that_refuses_or_is_not_there_is_named() -> None:
    def refuse(wire: Wire, _request: Request) -> bool:
        wire.send(b"HTTP/1.1 403 Forbidden by policy\r\nContent-Length: 0\r\n\r\n")
        return True

    with serving(refuse) as proxy:
        endpoint = Endpoint("https", "example.invalid", 443, proxy=f"http://127.0.0.1:{proxy.port}")
        client = Client(endpoint, SHORT)
        result = post(client)
    assert (result.outcome, "403 Forbidden by policy" in result.evidence) == ("proxy", True)
    assert post(client).outcome == "proxy"
    client.close()


def test_plain_http_through_a_proxy_names_the_whole_url() -> None:
    with serving(answer) as proxy:
        proxied = f"http://u:p@127.0.0.1:{proxy.port}"
        client = Client(Endpoint("http", "example.invalid", 8000, proxy=proxied), SHORT)
        assert post(client).outcome == "ok"
        client.close()
    assert proxy.requests[0].target == f"http://example.invalid:8000{CHAT}"
    assert proxy.requests[0].headers["host"] == "example.invalid:8000"
    assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")


# -- secrets ---------------------------------------------------------------------------------------


def test_a_key_that_the_server_echoes_shows_nowhere() -> None:
    def echo(wire: Wire, request: Request) -> bool:
        body = f"no such key: {request.headers['authorization']}".encode()
        wire.send(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return True

    with talking(echo, key="unusual-looking-key") as (_, client):
        result = post(client)
    assert result.outcome == "auth"
    assert "unusual" not in repr(result)


# -- the shared cases, replayed with their own timing ----------------------------------------------


@pytest.fixture
def replay(tmp_path: Path) -> Iterator[tuple[Client, Path]]:
    """A client of a fresh replay_server.py, and the server's log."""
    script = FAULTS / "replay_server.py"
    if not script.exists():
        pytest.skip("../shared/faults is not here")
    log, port_file = tmp_path / "log", tmp_path / "port"
    command = [sys.executable, script, "--port", "0", "--port-file", port_file, "--log", log]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        patient = Timeouts(5.0, first_byte_s=5.0, between_bytes_s=0.8, total_s=30.0)
        client = Client(parse_base_url(f"http://127.0.0.1:{port_file.read_text()}", KEY), patient)
        yield client, log
        client.close()
        process.kill()


def ask(client: Client, case: str) -> StreamResult:
    """Request a shared case; its name goes along as the request's id."""
    body = json.dumps({"model": case, "stream": True}).encode()
    return client.stream(CHAT, body, {"X-Request-Id": case})


def ask_all(client: Client, cases: Iterable[str]) -> dict[str, StreamResult]:
    """All of them at once."""
    jobs = {case: gevent.spawn(ask, client, case) for case in cases}
    gevent.joinall(list(jobs.values()), raise_error=True)
    return {case: job.get() for case, job in jobs.items()}


@pytest.mark.process
def test_every_shared_case_through_the_replay_server(replay: tuple[Client, Path]) -> None:
    client, log = replay
    expected = json.loads((FAULTS / "expected.json").read_text(encoding="utf-8"))
    results = ask_all(client, expected)
    rows = map(json.loads, log.read_text().splitlines())
    truth = {row["hdr"]["x-request-id"]: row for row in rows if row.get("writes")}
    assert results["f32b_redirect_302"].outcome == "redirect"
    assert results["f32a_redirect_307"].outcome == "ok"
    for name, expect in expected.items():
        result = results[name]
        if expect["outcome"] == "failure" and name != "f32b_redirect_302":
            check_shared(result, expect)
        if expect["outcome"] != "success" or name == "f32a_redirect_307":
            continue
        assert (result.outcome, result.output_tokens) == ("ok", expect["output_tokens"]), name
        assert result.tpot_s * 1000 == pytest.approx(expect["tpot_ms"], abs=1.0), name
        # The server logs the moment after each write.
        writes = [row[0] for row in truth[name]["writes"]]
        late_ms = [(result.first_token - truth[name]["mono"]) * 1000 - at for at in writes]
        assert min(map(abs, late_ms)) < 10, name


SEQUENCES = {
    "f30_http_429": ["rate-limited", "rate-limited", "ok"],
    "f31_http_503_loading": ["unavailable", "unavailable"],
    "f44_expired_mid_run": ["ok"] * 5 + ["auth"] * 2,
}


@pytest.mark.process
@pytest.mark.parametrize("name", SEQUENCES)
def test_every_hit_of_a_sequence_is_one_request_of_its_own(
    replay: tuple[Client, Path], name: str
) -> None:
    client, log = replay
    results = [ask(client, f"{name}?speed=4") for _ in SEQUENCES[name]]
    assert [result.outcome for result in results] == SEQUENCES[name]
    wait_until(lambda: len(log.read_text().splitlines()) >= len(results), 5)  # written afterwards
    assert len(log.read_text().splitlines()) == len(results)
    ttfts = [r.first_token - r.sent for r in results if r.outcome == "ok"]
    assert ttfts == pytest.approx([0.05] * len(ttfts), abs=0.02)


@pytest.mark.process
def test_a_server_that_drops_idle_connections_costs_no_request(
    replay: tuple[Client, Path],
) -> None:
    client, _ = replay
    assert ask(client, "f43_stale_keepalive?speed=4").outcome == "ok"
    gevent.sleep(1.1)  # the server closes after a second, and says nothing
    assert ask(client, "f43_stale_keepalive?speed=4").outcome == "ok"
    assert client.facts()["connections"] == 2


@pytest.mark.process
@pytest.mark.parametrize("options", ["split=1&gap=0.2", "framing=close", "framing=length"])
def test_shared_cases_under_other_cuts_and_framings(
    replay: tuple[Client, Path], options: str
) -> None:
    client, _ = replay
    names = ["f01_no_space", "f19_utf8_split", "f20_u2028", "f26_multiline_data", "f36_bom", "f49"]
    for name, result in ask_all(client, [f"{name}?{options}" for name in names]).items():
        assert (result.outcome, result.output_tokens) == ("ok", 10), name


# -- what it costs ---------------------------------------------------------------------------------


def test_ended_requests_leave_nothing_behind() -> None:
    def objects_after(requests: int) -> int:
        for _ in range(requests):
            post(client)
        server.requests.clear()
        server.wires[0].writes.clear()
        gc.collect()
        return len(gc.get_objects())

    with talking(answer) as (server, client):
        before = objects_after(20)
        assert objects_after(200) < before + 20
