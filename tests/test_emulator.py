"""The emulator as a process: its wire, its own log, its faults, its end."""

import csv
import http.client
import json
import os
import random
import select
import signal
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from sseclient import SSEClient

from emulator.cluster import simulate
from emulator.model import Arrival, Deployment, Engine
from tests.processes import ROOT, Emulator, emulator

pytestmark = pytest.mark.process

PLAIN = ("--prefill", "2", "--decode", "2")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Emulator]:
    with emulator(*PLAIN) as running:
        yield running


def connect(cluster: Emulator) -> http.client.HTTPConnection:
    address = urlsplit(cluster.url)
    return http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)


def chat(words: int = 5, **keys: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "w " * words}
    return {"model": "emulated", "messages": [message], "ignore_eos": True, **keys}


def post(
    cluster: Emulator, body: Any, path: str = "/v1/chat/completions", **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Status, headers and body of one request on a connection of its own."""
    connection = connect(cluster)
    data = body if isinstance(body, bytes) else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, data, named)
    answer = connection.getresponse()
    try:
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def events(body: bytes) -> list[str]:
    """The data of each event of a stream, as sseclient-py reads it."""
    return [
        event.data for event in SSEClient(line for line in body.splitlines(keepends=True)).events()
    ]


def chunks(body: bytes) -> list[dict[str, Any]]:
    assert events(body)[-1] == "[DONE]"
    return [json.loads(data) for data in events(body)[:-1]]


def truth_of(cluster: Emulator, request_id: str) -> dict[str, str]:
    rows = csv.DictReader(cluster.get("/truth").splitlines())
    return next(row for row in rows if row["request_id"] == request_id)


# -- the wire ----------------------------------------------------------------------------------------


def test_a_chat_streams_role_tokens_finish_and_usage_each_in_its_own_chunk(
    cluster: Emulator,
) -> None:
    ask = chat(words=20, stream=True, stream_options={"include_usage": True}, max_tokens=6)
    status, headers, body = post(cluster, ask)
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    first, *tokens, finish, usage = chunks(body)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(tokens) == 6
    assert all(len(c["choices"][0]["delta"]["content"].split()) == 1 for c in tokens)
    assert all(c["choices"][0]["finish_reason"] is None for c in [first, *tokens])
    assert finish["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "length"}
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 20 + 8,  # words and the chat template
        "completion_tokens": 6,
        "total_tokens": 34,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert {c["object"] for c in [first, *tokens, finish, usage]} == {"chat.completion.chunk"}
    assert len({c["id"] for c in [first, *tokens, finish, usage]}) == 1


def test_usage_comes_only_when_asked_for_and_can_run_along(cluster: Emulator) -> None:
    _, _, without = post(cluster, chat(stream=True, max_tokens=3))
    assert not any("usage" in chunk for chunk in chunks(without))
    options = {"include_usage": True, "continuous_usage_stats": True}
    _, _, along = post(cluster, chat(stream=True, max_tokens=3, stream_options=options))
    counts = [c["usage"]["completion_tokens"] for c in chunks(along) if "usage" in c]
    assert counts == [1, 2, 3, 3]


@pytest.mark.parametrize(
    ("prompt", "tokens"), [("five words are in here", 5), ([11, 12, 13], 3), (["a b"], 2)]
)
def test_a_completion_takes_text_or_token_ids_and_has_no_template(
    cluster: Emulator, prompt: Any, tokens: int
) -> None:
    ask = {"model": "emulated", "prompt": prompt, "max_tokens": 4, "ignore_eos": True}
    _, _, body = post(cluster, ask, "/v1/completions")
    answer = json.loads(body)
    assert answer["object"] == "text_completion"
    assert len(answer["choices"][0]["text"].split()) == 4
    assert answer["usage"]["prompt_tokens"] == tokens
    _, _, body = post(cluster, {**ask, "stream": True}, "/v1/completions")
    texts = [c["choices"][0]["text"] for c in chunks(body)]
    assert "".join(texts) == answer["choices"][0]["text"]


@pytest.mark.parametrize(
    ("keys", "least", "most"),
    [
        ({"max_tokens": 7}, 7, 7),
        ({"max_completion_tokens": 3, "max_tokens": 9}, 3, 3),
        ({"max_tokens": 20, "min_tokens": 20, "ignore_eos": False}, 20, 20),
        ({"max_tokens": 30, "ignore_eos": False}, 1, 30),
    ],
)
def test_the_answer_is_as_long_as_asked(
    cluster: Emulator, keys: dict[str, Any], least: int, most: int
) -> None:
    _, _, body = post(cluster, chat(**keys))
    answer = json.loads(body)
    assert least <= answer["usage"]["completion_tokens"] <= most
    words = answer["choices"][0]["message"]["content"].split()
    assert len(words) == answer["usage"]["completion_tokens"]


def test_a_connection_carries_one_request_after_another_even_sent_at_once(
    cluster: Emulator,
) -> None:
    body = json.dumps(chat(max_tokens=2)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(body)
    last = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    address = urlsplit(cluster.url)
    received = b""
    with socket.create_connection((address.hostname, address.port), timeout=10) as sock:
        for byte in head + b"\r\n":
            sock.send(bytes([byte]))
        sock.sendall(body + head + b"Expect: 100-continue\r\n\r\n" + body + last)
        while data := sock.recv(65536):
            received += data
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.count(b"HTTP/1.1 100 Continue") == 1
    assert received.count(b'"completion_tokens":2') == 2
    assert received.endswith(b"{}")


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/chat/completions", b"{nonsense", 400, "not JSON"),
        ("/v1/chat/completions", b"[]", 400, "must be a JSON object"),
        ("/v1/chat/completions", {"messages": []}, 400, "at least one message"),
        ("/v1/chat/completions", {"messages": [{"role": "user"}]}, 400, "needs a content"),
        ("/v1/chat/completions", chat(model="wrong"), 404, "The model `wrong` does not exist."),
        ("/v1/chat/completions", chat(max_tokens=0), 400, "max_tokens must be at least 1, got 0."),
        ("/v1/chat/completions", chat(max_tokens=2, min_tokens=3), 400, "must not exceed"),
        ("/v1/completions", {"prompt": ""}, 400, "prompt must be"),
        ("/v1/completions", {"prompt": [1, "x"]}, 400, "prompt must be"),
        ("/v1/embeddings", {}, 404, "There is no /v1/embeddings here."),
        ("/metrics", {}, 405, "POST is not allowed on /metrics."),
    ],
)
def test_what_cannot_be_answered_is_refused_in_openai_s_shape(
    cluster: Emulator, path: str, body: Any, status: int, words: str
) -> None:
    got, _, answer = post(cluster, body, path)
    error = json.loads(answer)["error"]
    assert (got, error["code"]) == (status, status)
    assert words in error["message"]


def test_what_is_not_http_is_refused(cluster: Emulator) -> None:
    address = urlsplit(cluster.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as sock:
        sock.sendall(b"hello\r\n\r\n")
        received = b""
        while data := sock.recv(65536):
            received += data
    assert received.startswith(b"HTTP/1.1 400 ")


def test_models_and_health(cluster: Emulator) -> None:
    assert json.loads(cluster.get("/v1/models"))["data"][0]["id"] == "emulated"
    assert cluster.get("/health") == "{}"
    assert json.loads(cluster.get("/get_server_info"))["max_running_requests"] == 64
    assert json.loads(cluster.get("/decode/1/server_info"))["disaggregation_mode"] == "decode"
    workers = json.loads(cluster.get("/workers"))["workers"]
    assert {"/prefill/0", "/prefill/1", "/decode/0"} < {worker["url"] for worker in workers}


def test_tokens_can_be_merged_into_chunks() -> None:
    with emulator("--tokens-per-chunk", "4") as cluster:
        _, _, body = post(cluster, chat(stream=True, max_tokens=10))
        lengths = [len(c["choices"][0]["delta"].get("content", "").split()) for c in chunks(body)]
        assert lengths == [0, 4, 4, 2, 0]
        _, _, body = post(cluster, chat(stream=True, max_tokens=3))
        lengths = [len(c["choices"][0]["delta"].get("content", "").split()) for c in chunks(body)]
        assert lengths == [0, 3, 0]


# -- its own log -------------------------------------------------------------------------------------


def test_the_log_tells_what_the_model_says(cluster: Emulator) -> None:
    """An unloaded request: received, prefill, transfer, steps; never early, and late by little."""
    post(cluster, chat(words=1000, stream=True, max_tokens=50), x_request_id="lonely")
    row = truth_of(cluster, "lonely")
    received, first, second, last = (
        float(row[f"{name}_s"])
        for name in ("received", "first_token", "second_token", "last_token")
    )
    engine, prompt = Engine(), 1008
    steps_s = sum(engine.step_s(1, prompt + k) for k in range(1, 50))
    late_ttft_s = first - received - engine.prefill_s(prompt) - engine.transfer_s(prompt)
    assert 0 <= late_ttft_s < 0.05
    assert abs(last - first - steps_s) < 0.05
    assert first < second < last
    assert row["prompt_tokens"] == "1008"
    assert row["output_tokens"] == "50"
    assert row["outcome"] == "ok"


def mean_tick_late_s(cluster: Emulator) -> float:
    page = cluster.get("/metrics")
    sums = {
        name: float(line.rpartition(" ")[2])
        for name in ("sum", "count")
        for line in page.splitlines()
        if line.startswith(f"emulator:tick_late_seconds_{name}")
    }
    return sums["sum"] / sums["count"]


@pytest.mark.parametrize("admission", ["early", "sequential"])
def test_live_and_virtual_time_agree(admission: str) -> None:
    """What came in, played again by ``simulate``, gives the moments of the log; the log is never
    early, and late by what a busy machine adds (the emulator counts how late it wakes up)."""
    rng = random.Random(5)
    lengths = [(rng.randint(50, 1500), rng.randint(2, 60)) for _ in range(24)]
    options = ("--decode", "1", "--max-running-requests", "6", "--admission", admission)
    with emulator(*options) as cluster:
        connections = []
        for k, (words, tokens) in enumerate(lengths):
            connection = connect(cluster)
            ask = json.dumps(chat(words=0, stream=True, max_tokens=tokens))
            ask = ask.replace('"content": ""', json.dumps({"content": f"{k} " * words})[1:-1])
            connection.request("POST", "/v1/chat/completions", ask, {"x-request-id": str(k)})
            connections.append(connection)
        for connection in connections:
            connection.getresponse().read()
            connection.close()
        truth = sorted(cluster.truth().values(), key=lambda row: row["received_s"])
        tick_late_s = mean_tick_late_s(cluster)
    arrivals = [
        Arrival(row["received_s"], int(row["prompt_tokens"]), int(row["output_tokens"]))
        for row in truth
    ]
    played = simulate(arrivals, Deployment(1, 1, 6, admission=admission))
    for name in ("first_token_s", "second_token_s", "last_token_s"):
        late_s = [row[name] - getattr(r, name) for row, r in zip(truth, played, strict=True)]
        assert min(late_s) > -1e-6
        assert statistics.median(late_s) < 0.01 + 5 * tick_late_s
    assert played[-1].last_token_s - played[0].received_s > 1


def test_the_prefix_cache_shows_in_usage_and_in_the_log(cluster: Emulator) -> None:
    ask = chat(words=500, max_tokens=1)
    ask["messages"][0]["content"] = " ".join(f"cached{k}" for k in range(500))
    for _ in range(2):  # one on each P, in turns
        post(cluster, ask)
    _, _, body = post(cluster, ask, x_request_id="again")
    cached = json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == 508 // 16 * 16
    assert truth_of(cluster, "again")["cached_tokens"] == str(cached)


def test_a_client_that_goes_away_frees_its_slot(cluster: Emulator) -> None:
    connection = connect(cluster)
    ask = json.dumps(chat(stream=True, max_tokens=5000))
    connection.request("POST", "/v1/chat/completions", ask, {"x-request-id": "gone"})
    answer = connection.getresponse()
    answer.read(200)
    assert running(cluster) >= 1
    answer.close()
    connection.close()
    post(cluster, chat(max_tokens=3))  # a few steps later
    row = truth_of(cluster, "gone")
    assert row["outcome"] == "aborted"
    assert 0 < int(row["output_tokens"]) < 5000
    assert running(cluster) == 0


def running(cluster: Emulator) -> float:
    page = cluster.get("/metrics")
    lines = [line for line in page.splitlines() if "num_running_reqs{" in line]
    return sum(float(line.split()[-1]) for line in lines if 'engine_type="decode"' in line)


# -- deployment and metrics ----------------------------------------------------------------------------


def test_a_change_of_deployment_keeps_what_is_in_flight_whole() -> None:
    with emulator("--prefill", "3", "--decode", "3", "--max-running-requests", "2") as cluster:
        connections = []
        for k in range(9):
            connection = connect(cluster)
            ask = json.dumps(chat(words=300, stream=True, max_tokens=40))
            connection.request("POST", "/v1/chat/completions", ask, {"x-request-id": f"r{k}"})
            connections.append(connection)
        cluster.put_deployment(prefill_instances=1, decode_instances=1, max_running_requests=1)
        cluster.put_deployment(max_running_requests=4, routing_decode="least-load")
        for connection in connections:
            body = connection.getresponse().read()
            assert len(chunks(body)) == 42
            connection.close()
        told = json.loads(cluster.get("/deployment"))
        assert told == {
            "prefill_instances": 1,
            "decode_instances": 1,
            "max_running_requests": 4,
            "routing_prefill": "round-robin",
            "routing_decode": "least-load",
            "admission": "early",
        }
        used = {truth_of(cluster, f"r{k}")["decode_instance"] for k in range(9)}
        assert used == {"0", "1", "2"}
        assert 'instance="decode-1"' not in cluster.get("/metrics")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"prefill_instances": 0}', "prefill_instances: found 0, allowed is a whole number"),
        (b'{"decode": 3}', "decode: unknown, allowed are prefill_instances"),
        (b'{"admission": "sequential"}', "admission: fixed when the cluster starts."),
        (b"[]", "must be a JSON object"),
    ],
)
def test_a_wrong_deployment_is_refused(cluster: Emulator, body: bytes, words: str) -> None:
    before = cluster.get("/deployment")
    connection = connect(cluster)
    connection.request("PUT", "/deployment", body)
    answer = connection.getresponse()
    assert answer.status == 400
    assert words in json.loads(answer.read())["error"]["message"]
    connection.close()
    assert cluster.get("/deployment") == before


def test_every_instance_has_its_metrics_under_sglang_s_names(cluster: Emulator) -> None:
    post(cluster, chat(stream=True, max_tokens=3))
    prefill, decode = cluster.get("/prefill/0/metrics"), cluster.get("/decode/1/metrics")
    for name in (
        "num_prefill_bootstrap_queue_reqs",
        "num_queue_reqs",
        "kv_transfer_latency_ms_sum",
    ):
        assert f"sglang:{name}{{" in prefill
    for name in ("num_running_reqs", "num_decode_prealloc_queue_reqs", "token_usage",
                 "num_decode_transfer_queue_reqs", "max_running_requests", "num_retracted_reqs",
                 "inter_token_latency_seconds_bucket"):  # fmt: skip
        assert f"sglang:{name}{{" in decode
    assert 'engine_type="decode"' not in prefill
    assert 'instance="decode-0"' not in decode
    everything = cluster.get("/metrics")
    instances = ("prefill-0", "prefill-1", "decode-0", "decode-1")
    assert all(f'instance="{instance}"' in everything for instance in instances)


# -- faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("401", 401, "Incorrect API key"),
        ("expired", 401, "expired"),
        ("404-model", 404, "does not exist"),
        ("no-choices", 200, '"id"'),
        ("429", 429, "Too many requests"),
        ("503", 503, "still loading"),
        ("local-proxy-failed", 502, "local proxy failed: dial tcp: connection refused"),
    ],
)
def test_a_fault_before_the_answer(fault: str, status: int, words: str) -> None:
    with emulator("--fault", f"{fault}=1") as cluster:
        got, headers, body = post(cluster, chat(stream=True, max_tokens=9), x_request_id="f")
        assert got == status
        assert words in body.decode()
        assert "choices" not in json.loads(body)
        assert (headers.get("retry-after") is not None) == (fault == "429")
        assert truth_of(cluster, "f")["outcome"] == fault


def test_faults_in_the_middle_of_a_stream() -> None:
    with emulator("--fault", "truncated=1") as cluster:
        status, _, body = post(cluster, chat(stream=True, max_tokens=10), x_request_id="f")
        assert status == 200
        assert len(events(body)) == 1 + 5
        assert truth_of(cluster, "f")["outcome"] == "truncated"
        assert truth_of(cluster, "f")["output_tokens"] == "5"
    with emulator("--fault", "error-in-stream=1") as cluster:
        status, _, body = post(cluster, chat(stream=True, max_tokens=10), x_request_id="f")
        assert status == 200
        assert json.loads(events(body)[-2])["error"]["code"] == 500
        assert events(body)[-1] == "[DONE]"
        assert truth_of(cluster, "f")["outcome"] == "error-in-stream"
        assert post(cluster, chat(max_tokens=10))[0] == 500
    with emulator("--fault", "reset=1") as cluster:
        with pytest.raises(ConnectionResetError):
            post(cluster, chat(stream=True, max_tokens=10), x_request_id="f")
        assert truth_of(cluster, "f")["outcome"] == "reset"


def test_a_stalled_stream_stays_open_and_silent() -> None:
    with emulator("--fault", "stall=1") as cluster:
        connection = connect(cluster)
        ask = json.dumps(chat(stream=True, max_tokens=10))
        connection.request("POST", "/v1/chat/completions", ask, {"x-request-id": "f"})
        answer = connection.getresponse()
        got = b""
        while got.count(b"data:") < 6:
            got += answer.read1()
        ready, _, _ = select.select([connection.sock], [], [], 0.2)
        assert not ready
        assert truth_of(cluster, "f")["outcome"] == "stall"
        answer.close()
        connection.close()


def test_faults_are_a_share_of_the_requests_and_the_same_for_the_same_seed() -> None:
    outcomes = []
    for seed in ("1", "1", "2"):
        with emulator("--fault", "429=0.3", "--fault", "truncated=0.2", "--seed", seed) as cluster:
            for k in range(60):
                post(cluster, chat(stream=True, max_tokens=1), x_request_id=str(k))
            outcomes.append([row["outcome"] for row in cluster.truth().values()])
    assert outcomes[0] == outcomes[1] != outcomes[2]
    assert 9 <= outcomes[0].count("429") <= 28
    assert 4 <= outcomes[0].count("truncated") <= 22


# -- keys and gateways ---------------------------------------------------------------------------------


def test_a_key_is_asked_for_and_never_told(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("sk-very-secret\n")
    key_file.chmod(0o600)
    with emulator("--api-key-file", str(key_file)) as cluster:
        right = {"authorization": "Bearer sk-very-secret"}
        assert post(cluster, chat(max_tokens=1), x_request_id="in", **right)[0] == 200
        for wrong in ("", "Bearer", "Bearer sk-very-secre", "Bearer Bearer sk-very-secret"):
            status, _, body = post(
                cluster, chat(max_tokens=1), x_request_id="out", authorization=wrong
            )
            assert status == 401
            assert b"secret" not in body
        assert truth_of(cluster, "out")["outcome"] == "401"
        assert cluster.get("/health") == "{}"
        assert "secret" not in cluster.get("/metrics") + cluster.get("/truth")
        command_line = Path(f"/proc/{cluster.process.pid}/cmdline")
        if command_line.exists():
            assert b"secret" not in command_line.read_bytes()


def test_a_key_can_expire_in_mid_run() -> None:
    with emulator("--key-expires", "0") as cluster:
        status, _, body = post(cluster, chat(max_tokens=1), x_request_id="late")
        assert (status, json.loads(body)["error"]["message"]) == (401, "OAuth token has expired.")
        assert truth_of(cluster, "late")["outcome"] == "expired"


def test_a_gateway_has_its_own_path_key_and_way_to_say_no() -> None:
    with emulator("--gateway", "taotoken") as cluster:
        key = {"authorization": "Bearer sk-anything"}
        path = "/api/v1/chat/completions"
        assert post(cluster, chat(max_tokens=1), path, **key)[0] == 200
        assert post(cluster, chat(max_tokens=1), path)[0] == 401
        status, headers, body = post(cluster, chat(max_tokens=1), **key)
        assert (status, headers["content-type"]) == (404, "text/html")
        assert b"<html>" in body
        status, _, body = post(cluster, chat(model="emulatd", max_tokens=1), path, **key)
        assert status == 200
        assert "choices" not in json.loads(body)


# -- start and end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--prefill", "0"], "--prefill: found 0, allowed is a whole number from 1 to 10000."),
        (["--decode", "x"], "--decode: found 'x', allowed is a whole number."),
        (["--routing-decode", "sticky"], "--routing-decode: found 'sticky', allowed are random"),
        (["--admission", "late"], "--admission: found 'late', allowed are early, sequential."),
        (["--fault", "402=1"], "--fault: found '402', allowed are 401,"),
        (["--fault", "429=2"], "--fault 429: found '2', allowed is a share from 0 to 1."),
        (["--fault", "429=1", "--fault", "503=1"], "--fault: the shares add up to more than 1."),
        (["--prefill-ms", "1,2"], "--prefill-ms: found '1,2', allowed are 3 numbers"),
        (["--decode-ms", "0,1,1"], "--decode-ms: found '0,1,1', the first number must be over 0."),
        (["--prefil", "2"], "--prefil: unknown option; did you mean --prefill?"),
        (["--gateway", "x"], "--gateway: found 'x', allowed are taotoken."),
        (["--base-path", "api"], "--base-path: found 'api', allowed is a path such as /api."),
        (["--api-key-env", "NOT_SET"], "--api-key-env: the variable NOT_SET is not set."),
        (["--api-key-file", "/none"], "--api-key-file: /none: no such file or directory."),
        (["--port", "70000"], "--port: found 70000, allowed is 0 to 65535."),
        (["--step-jitter", "2"], "--step-jitter: found 2.0, allowed is 0 to 0.3."),
        (["--host", "256.0.0.1"], "cannot listen on 256.0.0.1:0: "),
    ],
)
def test_a_wrong_option_is_one_sentence(arguments: list[str], sentence: str) -> None:
    command = [sys.executable, "-m", "emulator", "--port", "0", *arguments]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"error: {sentence}")
    assert ended.stderr.count("\n") == 1


def test_every_option_says_what_it_is_for() -> None:
    command = [sys.executable, "-m", "emulator", "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for option in ("--prefill-ms", "--kv-tokens", "--fault", "--exit-with-parent", "--gateway"):
        assert option in text
    assert "(default: None)" not in text


def test_a_port_in_use_is_said(cluster: Emulator) -> None:
    port = urlsplit(cluster.url).port
    command = [sys.executable, "-m", "emulator", "--port", str(port)]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr == f"error: cannot listen on 127.0.0.1:{port}: address already in use.\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    with emulator() as cluster:
        cluster.process.send_signal(number)
        assert cluster.process.wait(timeout=5) == 0


def test_it_ends_when_the_process_that_started_it_is_killed() -> None:
    """Whoever started it holds the other end of its standard input."""
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'emulator', '--port', '0',"
        " '--exit-with-parent'], stdin=subprocess.PIPE)\n"
        "child.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().startswith("emulator listening on http://127.0.0.1:")
        parent.kill()
        assert parent.stdout.read() == ""  # the pipe is closed: the emulator has gone too


def test_it_ends_with_its_parent_even_when_a_fork_holds_the_pipe() -> None:
    """As when locust --processes is killed and its workers live on for a while."""
    script = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'emulator', '--port', '0',"
        " '--exit-with-parent'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
        "child.stdout.readline()\n"
        "if os.fork():\n"
        "    os._exit(0)\n"
        "print(child.pid, child.stdout.read(), flush=True)\n"  # until the emulator has gone
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=10, check=True
    )
    assert int(ended.stdout) > 0


def test_it_starts_without_the_heavy_libraries() -> None:
    """A child of every test must be there at once."""
    script = (
        "import sys, emulator.__main__; print({'numpy', 'pydantic', 'gevent'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", script]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env, check=True)
    assert ended.stdout == "set()\n"
