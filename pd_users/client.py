"""A streaming HTTP/1.1 client for gevent that says when each token came, and fails by name only.

    client = Client(parse_base_url("http://127.0.0.1:8000"))
    result = client.stream("/v1/chat/completions", body)      # a StreamResult, never an exception
    answer = client.request("GET", "/v1/models")              # a Response, or TargetError

A connection goes back to the pool when its answer has ended; one that the server closed meanwhile
is replaced once, silently, as long as no byte of the answer had come. A redirect that keeps method
and body (307, 308) is followed once, never to another host with a key.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isnan, nan

import gevent

from pd_users import VERSION
from pd_users.coalesced import coalesced
from pd_users.connection import Connection, Dialer
from pd_users.endpoint import Endpoint
from pd_users.errors import TargetError
from pd_users.evidence import evidence
from pd_users.exchange import Exchange, Sink
from pd_users.failures import ExchangeError
from pd_users.inflate import Inflate
from pd_users.kernel_clock import KernelClock
from pd_users.loop_lag import LoopLag
from pd_users.records import UNFINISHED
from pd_users.redirect import KEEPING, MOVING, redirected
from pd_users.stream import COMPLETE, StreamDecoder, StreamResult
from pd_users.timeouts import Timeouts

IDLE_S = 60.0  # an idle connection older than this is not used again
MAX_RESPONSE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Response:
    """A small answer, whole."""

    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


class Client:
    """Talks to one endpoint; any number of greenlets may use it at once."""

    def __init__(
        self, endpoint: Endpoint, timeouts: Timeouts | None = None, lag: LoopLag | None = None
    ) -> None:
        self.endpoint = endpoint
        self.timeouts = timeouts or Timeouts()
        self.clock = KernelClock()
        self.coalesced = 0  # results whose first read we had held up
        self.jumped = 0  # results during which the wall clock was set
        self.retried = 0  # requests sent again on a fresh connection
        self.connected = 0  # connections opened
        self._lag = lag or LoopLag.shared()
        self._dialer = Dialer(endpoint, self.clock)
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._heads: dict[tuple[str, str], bytes] = {}
        self._tick = gevent.get_hub().loop.timer(1.0, 1.0, ref=False)
        self._tick.start(self.clock.refresh)

    # -- what a user calls -----------------------------------------------------------------------

    def stream(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> StreamResult:
        """POST ``body`` and read the token stream that answers it."""
        return self.reading(path, body, headers).run()

    def reading(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> "Reading":
        """A request not sent yet: ``run`` it, and ask for its ``partial`` when it was killed."""
        return Reading(self, path, body, headers or {})

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """A small request; TargetError when there is no whole answer (a 4xx is an answer)."""
        what = f"{method} {self.endpoint.origin}{path}"
        target, sink = self.endpoint.target(path), _Whole()
        try:
            exchange, how = self.exchange(method, target, body, headers or {}, sink)
            if sink.status in KEEPING + MOVING:
                target = redirected(self.endpoint, target, sink.status, sink.location, method)
                sink = _Whole()
                exchange, how = self.exchange(method, target, body, headers or {}, sink)
        except ExchangeError as failed:
            raise TargetError(f"{what}: {self.shown(failed.detail)}.") from None
        if how != COMPLETE or sink.broken:
            raise TargetError(f"{what}: {self.shown(sink.broken or exchange.detail or how)}.")
        return Response(sink.status, sink.headers, bytes(sink.body))

    def warm(self, count: int) -> int:
        """Open connections ahead, up to ``count`` idle ones; how many there are then."""
        try:
            while len(self._idle) < count:
                self._idle.append(self._dial())
        except ExchangeError:
            pass  # the first request will say why
        return len(self._idle)

    def facts(self) -> dict[str, int]:
        """Counts of how this client fared, for the report."""
        return {
            "coalesced": self.coalesced,
            "jumped": self.jumped,
            "retried": self.retried,
            "connections": self.connected,
        }

    def close(self) -> None:
        """Close every connection, also those in use."""
        self._tick.stop()
        self._tick.close()
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        self._busy.clear()
        self.clock.close()

    def shown(self, text: str) -> str:
        """``text`` without any secret, on one line."""
        return evidence(text, self.endpoint.secrets)

    # -- one request on the wire -----------------------------------------------------------------

    def exchange(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        sink: Sink,
        watch: Callable[[Exchange], None] | None = None,
    ) -> tuple[Exchange, str]:
        """Send once, on a pooled connection or a new one, read to the end; or ExchangeError.

        ``watch`` is shown the exchange before it begins.
        """
        data = self._head(method, target, headers, body) + (body or b"")
        while True:
            connection = self._take() or self._dial()
            exchange = Exchange(connection, sink, self.timeouts, self._lag)
            self._busy.add(connection)
            if watch is not None:
                watch(exchange)
            try:
                how = exchange.run(data)
            finally:
                self._busy.discard(connection)
                self._give_back(connection, reusable=exchange.reusable)
            if how == "reset" and not exchange.answered and connection.used:
                self.retried += 1
                continue
            return exchange, how

    def _head(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> bytes:
        key = (method, target)
        if (head := self._heads.get(key)) is None:
            head = self._heads[key] = self._render_head(method, target)
        extra = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        if "\r" in extra.replace("\r\n", "") or extra.count("\n") != len(headers):
            raise ValueError("a header holds a line end")
        if body is not None or method == "POST":
            extra += f"Content-Length: {len(body or b'')}\r\n"
        return head + extra.encode("latin-1") + b"\r\n"

    def _render_head(self, method: str, target: str) -> bytes:
        endpoint = self.endpoint
        fields = {
            "Host": endpoint.authority,
            "User-Agent": f"pd-load-test/{VERSION}",
            "Accept": "text/event-stream" if method == "POST" else "*/*",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json" if method == "POST" else "",
            "Authorization": f"Bearer {endpoint.key}" if endpoint.key else "",
        }
        given = {name.lower() for name in endpoint.headers}
        fields = {n: v for n, v in fields.items() if v and n.lower() not in given}
        lines = "".join(f"{n}: {v}\r\n" for n, v in (fields | dict(endpoint.headers)).items())
        plainly_by_proxy = endpoint.proxy and endpoint.scheme == "http"
        target = endpoint.origin + target if plainly_by_proxy else target
        head = f"{method} {target} HTTP/1.1\r\n{lines}{self._dialer.proxy_header}"
        return head.encode("latin-1")

    def judged(self, result: StreamResult, late_s: float, jumps: int) -> StreamResult:
        """``result`` with what this client itself may have done to its moments."""
        if len(result.gaps) and result.gaps[0] == 0.0:
            result = coalesced(result, late_s)
        self.clock.refresh()
        if result.clock != "user" and self.clock.jumps != jumps:
            result = replace(result, clock="jumped")
        self.coalesced += result.clock == "coalesced"
        self.jumped += result.clock == "jumped"
        return result

    # -- the pool --------------------------------------------------------------------------------

    def _take(self) -> Connection | None:
        """An idle connection that is still open, the latest used first."""
        oldest = time.monotonic() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since > oldest and connection.is_alive():
                return connection
            connection.close()
        return None

    def _dial(self) -> Connection:
        connection = self._dialer.dial(self.timeouts.connect_s)
        connection.idle_since = time.monotonic()
        self.connected += 1
        return connection

    def _give_back(self, connection: Connection, *, reusable: bool) -> None:
        if not reusable:
            connection.close()
            return
        connection.used += 1
        connection.idle_since = time.monotonic()
        self._idle.append(connection)


class Reading:
    """One streaming request. ``run`` it in one greenlet; any other may ask for the ``partial``."""

    def __init__(self, client: Client, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        self._client = client
        self._target = client.endpoint.target(path)
        self._body = body
        self._headers = headers
        self._decoder = StreamDecoder(client.endpoint.secrets)
        self._exchange: Exchange | None = None
        self._sent = nan  # when it was sent to where it was redirected from

    def run(self) -> StreamResult:
        """Send, read to the end; trouble with the target is an outcome, never an exception.

        When the greenlet is killed or a gevent.Timeout of the caller strikes, the connection is
        closed, the exception goes through, and ``partial`` says how far it had come.
        """
        began = time.monotonic()
        try:
            return self._run()
        except ExchangeError as failed:
            return StreamResult(
                outcome=failed.name,
                evidence=self._client.shown(failed.detail),
                sent=began if isnan(self.sent) else self.sent,
                done=time.monotonic(),
            )

    def partial(self, outcome: str = UNFINISHED) -> StreamResult:
        """What is known of a request that has not ended."""
        return replace(self._decoder.partial(outcome), sent=self.sent)

    @property
    def sent(self) -> float:
        """Right before the first byte was written; of a redirected request, the first time."""
        if not isnan(self._sent) or self._exchange is None:
            return self._sent
        return self._exchange.sent

    def _run(self) -> StreamResult:
        client = self._client
        jumps = client.clock.jumps
        exchange, how = self._once()
        if self._decoder.status in KEEPING:
            self._sent = exchange.sent
            self._target = redirected(
                client.endpoint, self._target, self._decoder.status, self._decoder.location, "POST"
            )
            self._decoder = StreamDecoder(client.endpoint.secrets)
            exchange, how = self._once()
        result = self._decoder.end(exchange.ended, how, exchange.detail)
        result = replace(result, sent=self.sent, clock="kernel" if exchange.stamped else "user")
        return client.judged(result, exchange.late_s, jumps)

    def _once(self) -> tuple[Exchange, str]:
        def watch(exchange: Exchange) -> None:
            self._exchange = exchange

        return self._client.exchange(
            "POST", self._target, self._body, self._headers, self._decoder, watch
        )


class _Whole:
    """A sink that keeps the body of a small answer."""

    def __init__(self) -> None:
        self.done = False
        self.progress = nan
        self.token_events = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.broken = ""
        self._inflate: Inflate | None = None

    @property
    def location(self) -> str:
        """Of a redirect."""
        return self.headers.get("location", "")

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers = status, headers
        coding = headers.get("content-encoding", "").strip().lower()
        if coding not in ("", "identity"):
            self._inflate = Inflate(coding)

    def feed(self, data: bytes, moment: float) -> None:
        for piece in self._inflate.feed(data) if self._inflate else (data,):
            if len(self.body) < MAX_RESPONSE_BYTES:
                self.body += piece
            else:
                self.broken = f"an answer of more than {MAX_RESPONSE_BYTES >> 20} MiB"
        if self._inflate and self._inflate.broken:
            self.broken = self._inflate.broken
        self.progress = moment
