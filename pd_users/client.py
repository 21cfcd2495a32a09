"""A streaming HTTP/1.1 client for gevent that says when each token came, and fails by name only.

    client = Client(parse_base_url("http://127.0.0.1:8000"))
    result = client.stream("/v1/chat/completions", body)      # a StreamResult, never an exception
    answer = client.request("GET", "/v1/models")              # a Response, or TargetError

A connection goes back to the pool when its answer has ended; one that the server closed meanwhile
is replaced once, silently, as long as no byte of the answer had come. A redirect that keeps method
and body (307, 308) is followed once, and never to another server.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isnan, nan

import gevent

from pd_users.coalesced import coalesced
from pd_users.connection import Dialer
from pd_users.endpoint import Endpoint
from pd_users.errors import TargetError
from pd_users.evidence import evidence
from pd_users.exchange import Exchange, Sink
from pd_users.failures import ExchangeError
from pd_users.head import close_head, render_head
from pd_users.kernel_clock import KernelClock
from pd_users.loop_lag import LoopLag
from pd_users.pool import Pool
from pd_users.records import UNFINISHED
from pd_users.redirect import KEEPING, MOVING, redirected
from pd_users.stream import COMPLETE, StreamDecoder, StreamResult
from pd_users.timeouts import Timeouts
from pd_users.whole import Response, Whole


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
        self.retried = 0  # requests sent again because a pooled connection was closed
        self._lag = lag or LoopLag.shared()
        self._dialer = Dialer(endpoint, self.clock)
        self._pool = Pool(self._dialer, self.timeouts.connect_s)
        self._running: set[Exchange] = set()
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
        target, sink = self.endpoint.target(path), Whole()
        shown = target.partition("?")[0]  # a query may hold a key
        what = f"{method} {self.endpoint.origin}{shown}"
        headers = headers or {}
        try:
            exchange, how = self.exchange(method, target, body, headers, sink)
            if sink.status in KEEPING + MOVING:
                location = sink.headers.get("location", "")
                target = redirected(self.endpoint, target, sink.status, location, method)
                sink = Whole()
                exchange, how = self.exchange(method, target, body, headers, sink)
        except ExchangeError as error:
            raise TargetError(f"{what}: {self.shown(error.detail)}.") from None
        if how != COMPLETE or sink.broken:
            raise TargetError(f"{what}: {self.shown(sink.broken or exchange.detail or how)}.")
        return sink.response()

    def warm(self, count: int) -> int:
        """Open connections ahead, up to ``count`` idle ones; how many there are then."""
        return self._pool.warm(count)

    def facts(self) -> dict[str, int]:
        """Counts of how this client fared, for the report."""
        return {
            "coalesced": self.coalesced,
            "jumped": self.jumped,
            "retried": self.retried,
            "connections": self._pool.connected,
        }

    def close(self) -> None:
        """Close every connection; what is in flight ends as ``reset``."""
        self._tick.stop()
        self._tick.close()
        for exchange in tuple(self._running):
            exchange.abort("the client was closed")
        self._pool.close()
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
        request = close_head(self._head(method, target), headers, body) + (body or b"")
        pooled = self._pool.take()
        connection = pooled or self._pool.dial()
        while True:
            exchange = Exchange(connection, sink, self.timeouts, self._lag)
            if watch is not None:
                watch(exchange)
            self._running.add(exchange)
            try:
                how = exchange.run(request)
            finally:
                self._running.discard(exchange)
                self._pool.give_back(connection, reusable=exchange.reusable)
            if how != "reset" or exchange.answered or pooled is None:
                return exchange, how
            self.retried += 1
            pooled, connection = None, self._pool.dial()

    def _head(self, method: str, target: str) -> bytes:
        key = (method, target)
        if key not in self._heads:
            header = self._dialer.proxy_header
            self._heads[key] = render_head(self.endpoint, method, target, header)
        return self._heads[key]

    def judged(self, result: StreamResult, exchange: Exchange, jumps: int) -> StreamResult:
        """``result`` with what this client itself may have done to its moments."""
        if len(result.gaps) and result.gaps[0] == 0.0:
            result = coalesced(result, exchange.late_s, exchange.unseen_s)
        self.clock.refresh()
        if result.clock != "user" and self.clock.jumps != jumps:
            result = replace(result, clock="jumped")
        self.coalesced += result.clock == "coalesced"
        self.jumped += result.clock == "jumped"
        return result


class Reading:
    """One streaming request. ``run`` it in one greenlet; any other may ask for the ``partial``."""

    def __init__(self, client: Client, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        self._client = client
        self._target = client.endpoint.target(path)
        self._body = body
        self._headers = headers
        self._decoder = StreamDecoder(client.endpoint.secrets, status=0)
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
        except ExchangeError as error:
            return StreamResult(
                outcome=error.name,
                status=self._decoder.status,
                evidence=self._client.shown(error.detail),
                sent=began if isnan(self.sent) else self.sent,
                done=time.monotonic(),
            )

    def partial(self, outcome: str = UNFINISHED) -> StreamResult:
        """What is known of a request that has not ended."""
        return self._stamped(self._decoder.partial(outcome))

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
            self._decoder = StreamDecoder(client.endpoint.secrets, status=0)
            exchange, how = self._once()
        result = self._decoder.end(exchange.ended, how, exchange.detail)
        return client.judged(self._stamped(result), exchange, jumps)

    def _once(self) -> tuple[Exchange, str]:
        def watch(exchange: Exchange) -> None:
            self._exchange = exchange

        return self._client.exchange(
            "POST", self._target, self._body, self._headers, self._decoder, watch
        )

    def _stamped(self, result: StreamResult) -> StreamResult:
        stamped = self._exchange is not None and self._exchange.stamped
        return replace(result, sent=self.sent, clock="kernel" if stamped else "user")
