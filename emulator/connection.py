"""One keep-alive HTTP/1.1 connection: bytes into messages, answers into bytes."""

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import httptools

from emulator.openai_api import Refusal, error_body

MAX_BODY = 64 * 1024 * 1024
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Message:
    """One request, read whole at ``received_s`` (CLOCK_MONOTONIC)."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool
    received_s: float


class Stream(Protocol):
    """What a connection is busy with."""

    def disconnected(self) -> None:
        """The client has gone."""


class Connection(asyncio.Protocol):
    """Messages are handled one after the other; one that comes too early waits."""

    def __init__(self, handle: Callable[["Connection", Message], None]) -> None:
        self._handle = handle
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Message] = deque()
        self._stream: Stream | None = None
        self._keep_alive, self._bodiless = True, False
        self._headers: dict[str, str] = {}
        self._url = bytearray()
        self._body = bytearray()

    # -- asyncio -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone: what it waited for is aborted."""
        self._transport = None
        self._parser = None  # the parser refers to us; without this only the collector frees both
        if self._stream is not None:
            self._stream.disconnected()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(400, "This is not HTTP/1.1.")

    # -- httptools ---------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A new request begins."""
        self._headers = {}
        self._url.clear()
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The body follows."""
        if self._headers.get("expect", "").lower() == "100-continue":
            self.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._body += body
        if len(self._body) > MAX_BODY:
            self._refuse(413, f"The body is larger than {MAX_BODY} bytes.")

    def on_message_complete(self) -> None:
        """It is whole."""
        received_s = time.monotonic()
        path = self._url.decode("latin-1").partition("?")[0]
        parser = self._parser
        assert parser is not None
        method, keep = parser.get_method().decode(), parser.should_keep_alive()
        message = Message(method, path, self._headers, bytes(self._body), keep, received_s)
        self._waiting.append(message)
        if len(self._waiting) == 1:
            self._next()

    def _next(self) -> None:
        if self._stream is None and self._waiting and self._transport is not None:
            message = self._waiting.popleft()
            self._keep_alive, self._bodiless = message.keep_alive, message.method == "HEAD"
            self._handle(self, message)

    # -- answers -----------------------------------------------------------------------------------

    def begin_stream(self, stream: Stream) -> None:
        """The connection is busy until ``end``."""
        self._stream = stream

    def end(self, last: bytes = b"") -> None:
        """The answer is over with ``last``; the next message has its turn."""
        self._stream = None
        self.write(last)
        if not self._keep_alive:
            self.close()
        elif self._waiting:  # not now: this may be in the middle of playing the cluster
            asyncio.get_running_loop().call_soon(self._next)

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """A whole answer."""
        fields = {"Server": "pd-emulator", "Content-Type": "application/json", **(headers or {})}
        if not self._keep_alive:
            fields["Connection"] = "close"
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        reason = HTTPStatus(status).phrase
        head = f"HTTP/1.1 {status} {reason}\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        self.end(head.encode("latin-1") + (b"" if self._bodiless else body))

    def refuse(self, refusal: Refusal) -> None:
        """An answer that is no completion."""
        self.answer(refusal.status, refusal.body, refusal.headers)

    def _refuse(self, status: int, sentence: str) -> None:
        self._keep_alive = False
        self.answer(status, error_body(status, "BadRequestError", sentence))

    def write(self, data: bytes) -> None:
        """Bytes to the client, at once."""
        transport = self._transport
        if data and transport is not None and not transport.is_closing():
            transport.write(data)

    def reset(self) -> None:
        """Break the connection without another word: RST, not FIN."""
        self._stream = None
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def close(self) -> None:
        """Close it when all is written."""
        if self._transport is not None:
            self._transport.close()
