"""HTTP in front of the cluster: one asyncio protocol, real time, its own log of what it wrote when."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isnan, nan
from typing import Any

import httptools
import orjson

from emulator.cluster import Cluster
from emulator.faults import IN_STREAM, REFUSALS, Faults
from emulator.instances import Decode
from emulator.metrics_text import metrics_text
from emulator.model import Deployment, Engine, Request
from emulator.openai_api import (
    WORDS,
    Answer,
    Ask,
    BadRequestError,
    block_hashes,
    error_body,
    http_chunk,
    read_ask,
    usage_of,
)

TRUTH = (
    "request_id,received_s,first_token_s,second_token_s,last_token_s,prompt_tokens,cached_tokens,"
    "output_tokens,prefill_instance,decode_instance,outcome"
)
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
}
MAX_BODY = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    model: str = "emulated"
    template_tokens: int = 8
    tokens_per_chunk: int = 1
    key: str = ""
    faults: Faults = Faults()
    seed: int = 0
    base_path: str = ""


class Exchange:
    """One completion on one connection: sends its tokens, notes when."""

    def __init__(self, server: "Server", connection: "Connection", ask: Ask, fault: str) -> None:
        self.ask, self.fault = ask, fault
        self.connection = connection
        self.first = self.second = self.last = nan
        self.sent = 0
        self._pending = b""
        self._server = server
        self._answer = Answer(ask, f"cmpl-{next_id()}", int(time.time()))
        self._fault_at = 0
        self.request: Request | None = None

    def begin(self, request: Request) -> None:
        """The cluster has the request; a stream opens with its head and the role."""
        self.request = request
        if self.fault in IN_STREAM:
            self._fault_at = max(request.output_tokens // 2, 1)

    def produce(self, made: int) -> None:
        """The cluster has made ``made`` tokens so far: send those that are new."""
        if self.fault and self.sent >= self._fault_at > 0:
            self._break()
            return
        chunk = self._server.settings.tokens_per_chunk
        while made - self.sent >= chunk or (made > self.sent and made == self._total):
            self._send(min(chunk, made - self.sent))

    @property
    def _total(self) -> int:
        return self.request.output_tokens if self.request else 0

    def _send(self, tokens: int) -> None:
        text = b"".join(WORDS[(self.sent + k) % len(WORDS)] for k in range(tokens))
        if not self.ask.stream:
            self._note(tokens)
            return
        head = b""
        if self.sent == 0:
            head = self.connection.stream_head() + (self._answer.role() if self.ask.chat else b"")
        data = head + self._answer.token(text)
        self._note(tokens)
        self.connection.write(data)

    def _note(self, tokens: int) -> None:
        now = time.monotonic()
        if self.sent == 0:
            self.first = now
        elif isnan(self.second):
            self.second = now
        self.last = now
        self.sent += tokens

    def _break(self) -> None:
        """Half way: the fault strikes."""
        request, connection, fault = self.request, self.connection, self.fault
        if request is None or request.outcome:
            return
        self._server.cluster.abort(request, time.monotonic())
        request.outcome = fault
        if fault == "stall":
            return
        if fault == "reset":
            connection.reset()
            return
        if fault == "error-in-stream":
            error = error_body(500, "internal_error", "KV transfer failed")
            connection.write(
                http_chunk(b"data: " + error + b"\n\n") + http_chunk(b"data: [DONE]\n\n")
            )
        connection.write(b"0\r\n\r\n")
        connection.exchange = None

    def end(self, request: Request) -> None:
        """The cluster is done with it."""
        if request.outcome != "ok":
            return
        self.produce(request.produced)
        if request.outcome != "ok":  # a fault on the last token
            return
        usage = usage_of(request.prompt_tokens, request.cached_tokens, request.produced)
        if self.ask.stream:
            tail = self._answer.finish()
            tail += self._answer.usage(usage) if self.ask.usage else b""
            self.connection.write(tail + http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        else:
            text = b"".join(WORDS[k % len(WORDS)] for k in range(request.produced)).decode()
            self.connection.answer(200, self._answer.whole(text, usage))
        self.connection.exchange = None


_ids = iter(range(10**12))


def next_id() -> int:
    """A number for a completion's id."""
    return next(_ids)


class Server:
    """The cluster in real time, and the log of every request."""

    def __init__(self, engine: Engine, deployment: Deployment, settings: Settings) -> None:
        self.settings = settings
        self.cluster = Cluster(
            engine, deployment, settings.seed, stepwise=True, on_step=self._step, on_end=self._end
        )
        self.log: list[tuple[Request, Exchange]] = []
        self._rng = random.Random(settings.seed)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    # -- completions -----------------------------------------------------------------------------

    def complete(
        self, connection: "Connection", path: str, body: bytes, headers: dict[str, str]
    ) -> None:
        """A completion request has come in whole."""
        received = connection.received
        fault = self.settings.faults.draw(self._rng)
        request_id = headers.get("x-request-id") or f"anonymous-{len(self.log)}"
        ask = read_ask(path, body, self.settings.model)
        exchange = Exchange(self, connection, ask, fault)
        prompt = len(ask.words) + self.settings.template_tokens
        request = Request(
            request_id,
            received,
            prompt,
            ask.answer_tokens(self._rng),
            block_hashes(ask.words, self.cluster.engine.block_tokens),
            exchange,
        )
        self.log.append((request, exchange))
        if fault in REFUSALS:
            request.outcome = fault
            status, extra, answer = REFUSALS[fault]
            connection.answer(status, answer, extra)
            return
        connection.exchange = exchange
        exchange.begin(request)
        now = time.monotonic()
        self.cluster.advance(now)
        self.cluster.submit(request, now)
        self._set_timer()

    def abort(self, exchange: Exchange) -> None:
        """The client closed its connection."""
        if exchange.request is not None:
            self.cluster.abort(exchange.request, time.monotonic())
            self._set_timer()

    def _step(self, decode: Decode) -> None:
        for request in decode.running:
            request.client.produce(decode.produced(request))

    def _end(self, request: Request) -> None:
        request.client.end(request)

    def _set_timer(self) -> None:
        due = self.cluster.next_event()
        if due == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at, self._timer = due, None
        if due < inf:
            self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, inf
        self.cluster.advance(time.monotonic())
        self._set_timer()

    # -- everything else ---------------------------------------------------------------------------

    def page(self, method: str, path: str, body: bytes) -> tuple[int, bytes, str]:
        """Status, body and content type of the pages that are no completions."""
        pages: dict[str, Callable[[], tuple[int, bytes, str]]] = {
            "/v1/models": self._models,
            "/health": lambda: (200, b"{}", "application/json"),
            "/get_server_info": self._info,
            "/truth": lambda: (200, self.truth().encode(), "text/csv"),
        }
        if path == "/deployment":
            return self._deployment(method, body)
        if method != "GET":
            return (
                405,
                error_body(405, "method_not_allowed", f"{method} {path}"),
                "application/json",
            )
        if path.endswith("/metrics"):
            return self._metrics(path)
        if path not in pages:
            return 404, error_body(404, "not_found", f"no such path: {path}"), "application/json"
        return pages[path]()

    def _metrics(self, path: str) -> tuple[int, bytes, str]:
        parts = path.strip("/").split("/")
        role, number = (
            (parts[0], int(parts[1])) if len(parts) == 3 and parts[1].isdigit() else ("", -1)
        )
        text = metrics_text(self.cluster, self.settings.model, role, number)
        return 200, text.encode(), "text/plain; version=0.0.4"

    def _models(self) -> tuple[int, bytes, str]:
        model = {"id": self.settings.model, "object": "model", "owned_by": "emulator"}
        return 200, orjson.dumps({"object": "list", "data": [model]}), "application/json"

    def _info(self) -> tuple[int, bytes, str]:
        cap = self.cluster.deployment.max_running_requests
        return (
            200,
            orjson.dumps({"max_running_requests": cap, "version": "emulator"}),
            "application/json",
        )

    def _deployment(self, method: str, body: bytes) -> tuple[int, bytes, str]:
        if method == "PUT":
            try:
                keys = orjson.loads(body)
                if not isinstance(keys, dict):
                    raise ValueError("the body must be a JSON object.")
                changed = self.cluster.deployment.changed(**keys)
            except (ValueError, TypeError) as error:
                return 400, error_body(400, "invalid_request_error", str(error)), "application/json"
            self.cluster.advance(time.monotonic())
            self.cluster.apply(changed)
        elif method != "GET":
            return 405, error_body(405, "method_not_allowed", method), "application/json"
        deployment = self.cluster.deployment
        keys = {name: getattr(deployment, name) for name in deployment.__slots__}
        return 200, orjson.dumps(keys), "application/json"

    def truth(self) -> str:
        """Every request so far, with the moments at which its tokens were written."""
        rows = [TRUTH]
        for request, exchange in self.log:
            moments = (request.received, exchange.first, exchange.second, exchange.last)
            cells: list[Any] = [
                request.id.replace(",", " "),
                *("" if isnan(m) else f"{m:.9f}" for m in moments),
                *(request.prompt_tokens, request.cached_tokens, exchange.sent),
                *(request.prefill_instance, request.decode_instance, request.outcome or "running"),
            ]
            rows.append(",".join(str(cell) for cell in cells))
        return "\n".join(rows) + "\n"


class Connection(asyncio.Protocol):
    """One keep-alive HTTP/1.1 connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._headers: dict[str, str] = {}
        self._url = b""
        self._body = bytearray()
        self.exchange: Exchange | None = None
        self.received = nan

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone: what it waited for is aborted."""
        if self.exchange is not None:
            self._server.abort(self.exchange)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.answer(400, error_body(400, "invalid_request_error", "not HTTP/1.1"))
            self.close()

    # -- callbacks of the parser -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A new request begins."""
        self._headers, self._url = {}, b""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._body += body

    def on_message_complete(self) -> None:
        """It is whole: answer it."""
        self.received = time.monotonic()
        path = (
            self._url.decode("latin-1")
            .partition("?")[0]
            .removeprefix(self._server.settings.base_path)
        )
        method = self._parser.get_method().decode()
        try:
            self._answer(method, path)
        except BadRequestError as error:
            self.answer(error.status, error_body(error.status, error.kind, error.message))

    def _answer(self, method: str, path: str) -> None:
        key = self._server.settings.key
        if (
            key
            and path.startswith("/v1/")
            and self._headers.get("authorization") != f"Bearer {key}"
        ):
            raise BadRequestError(401, "authentication_error", "Incorrect API key provided.")
        if path in ("/v1/chat/completions", "/v1/completions") and method == "POST":
            self._server.complete(self, path, bytes(self._body), self._headers)
            return
        status, body, kind = self._server.page(method, path, bytes(self._body))
        self.answer(status, body, {"Content-Type": kind})

    # -- out -----------------------------------------------------------------------------------------

    def stream_head(self) -> bytes:
        """The head of an event stream."""
        return (
            b"HTTP/1.1 200 OK\r\nServer: pd-emulator\r\nContent-Type: text/event-stream\r\n"
            b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """A whole answer."""
        fields = {"Server": "pd-emulator", "Content-Type": "application/json", **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        reason = REASONS.get(status, "Error")
        head = f"HTTP/1.1 {status} {reason}\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        self.write(head.encode("latin-1") + body)

    def write(self, data: bytes) -> None:
        """Bytes to the client, at once."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def reset(self) -> None:
        """Break the connection with an RST."""
        if self._transport is not None:
            self.exchange = None
            self._transport.abort()

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()
