"""One request and its answer on one connection.

Reading happens in the loop's own callback, without a switch to the request's greenlet: bytes go
from the socket through llhttp into the sink, and only the end of the answer wakes the greenlet. So
the cost of a token is one system call and its decoding, and nothing waits for anything.
"""

import time
from typing import Protocol

import gevent
from gevent.hub import Waiter
from httptools import HttpParserError, HttpResponseParser

from pd_users.connection import WOULD_BLOCK, Connection
from pd_users.loop_lag import LoopLag
from pd_users.stream import CLOSED, COMPLETE
from pd_users.timeouts import Timeouts

MAX_HEAD_BYTES = 256 * 1024


class Sink(Protocol):
    """Where the body of an answer goes."""

    done: bool  # the answer is complete, whatever HTTP says
    progress: float  # moment of the last bytes that count as progress

    @property
    def token_events(self) -> int:
        """How many tokens have come, or 0 where the body is none of tokens."""

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """The head of the answer has come."""

    def feed(self, data: bytes, moment: float) -> None:
        """A piece of the body."""


class Exchange:
    """Send one request, pass its answer on to ``sink``. ``run`` once; then read the attributes."""

    def __init__(
        self, connection: Connection, sink: Sink, timeouts: Timeouts, lag: LoopLag
    ) -> None:
        self.sent = float("nan")
        self.ended = float("nan")
        self.detail = ""  # of a failure
        self.answered = False  # any byte came back
        self.reusable = False
        self.late_s = 0.0  # how late the loop was when the first token was read
        self.unseen_s = 0.0  # and how long it had not looked
        self._connection = connection
        self._sink = sink
        self._timeouts = timeouts
        self._lag = lag
        self._moment = 0.0
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._head_complete = False
        self._complete = False
        self._keep_alive = False
        self._until_close = False
        self._awaiting_token = True
        self._done_at = 0.0
        self._how = ""
        self._bug: Exception | None = None
        self._parser = HttpResponseParser(self)
        self._waiter = Waiter()
        self._timer = gevent.get_hub().loop.timer(0)

    @property
    def stamped(self) -> bool:
        """Whether every moment so far is the kernel's."""
        return self._connection.stamped

    # -- in the request's greenlet ---------------------------------------------------------------

    def run(self, request: bytes) -> str:
        """How it ended: COMPLETE, CLOSED, or the name of a failure."""
        connection = self._connection
        connection.begin()
        self.sent = time.monotonic()
        try:
            connection.send(request, self._timeouts.first_byte_s)
        except TimeoutError:
            self.ended, self.detail = time.monotonic(), "the server did not take the request"
            return "stalled"
        except OSError:
            pass  # there may still be an answer to read, such as a 413
        try:
            self._arm()
            connection.io.start(self._on_readable_tls if connection.tls else self._on_readable)
            self._waiter.get()
        finally:
            connection.io.stop()
            self._timer.close()
            # The parser holds methods of this object: with it, 8 kB a request would wait for the
            # garbage collector, tens of megabytes between two full collections.
            del self._parser
        if self._bug is not None:
            raise self._bug
        return self._how

    def abort(self, detail: str) -> None:
        """End it now, from another greenlet."""
        self._break_off("reset", detail)
        gevent.get_hub().loop.run_callback(self._waiter.switch, None)

    # -- in the loop -----------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            self._read()
        except WOULD_BLOCK:
            return
        except Exception as error:  # a bug of ours belongs to the greenlet, not to the hub
            self._bug = error
            self._stop("bug")
        if self._how:
            self._waiter.switch(None)

    def _on_readable_tls(self) -> None:
        """The socket says nothing of what TLS has already taken off it."""
        self._on_readable()
        while not self._how and self._connection.holds_more():
            self._on_readable()

    def _read(self) -> None:
        try:
            data, moment = self._connection.receive()
        except WOULD_BLOCK:
            raise
        except OSError as error:
            self._break_off("reset", error.strerror or str(error))
            return
        if not data:
            self._on_close()
            return
        self._moment = moment
        self.answered = True
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._on_bad_http(error)
        if self._awaiting_token:
            self._before_first_token(len(data))
        if self._complete:
            self._stop(COMPLETE)
        elif self._sink.done and not (self._done_at or self._how):
            self._done_at = time.monotonic()
            self._arm()

    def _before_first_token(self, size: int) -> None:
        if self._sink.token_events:
            self._awaiting_token = False
            self.late_s, self.unseen_s = self._lag.now_s(), self._lag.unseen_s()
            self._arm()  # from here on another limit holds
        elif not self._head_complete:
            self._head_bytes += size
            if self._head_bytes > MAX_HEAD_BYTES:
                self._break_off("protocol", f"a head of more than {MAX_HEAD_BYTES >> 10} KiB")

    def _on_close(self) -> None:
        if self._until_close:
            self._stop(COMPLETE)
        elif self._head_complete:
            self._break_off(CLOSED, "the connection was closed in the middle of the body")
        else:
            where = "in the head of the answer" if self.answered else "without an answer"
            self._break_off("reset", f"the connection was closed {where}")

    def _on_bad_http(self, error: Exception) -> None:
        cause = error.__context__
        if cause is not None and not isinstance(cause, HttpParserError):
            raise cause
        if not self._complete:  # junk behind a complete answer only costs the connection
            self._break_off("protocol", f"not valid HTTP: {error}")
        self._keep_alive = False

    def _break_off(self, how: str, detail: str) -> None:
        self.detail = detail
        self._stop(how)

    def _stop(self, how: str) -> None:
        if self._how:
            return
        self._how = how
        self.ended = time.monotonic()
        self.reusable = how == COMPLETE and self._complete and self._keep_alive
        self._connection.io.stop()
        self._timer.stop()

    # -- timeouts --------------------------------------------------------------------------------

    def _arm(self) -> None:
        wait_s = max(self._deadline()[0] - time.monotonic(), 0.001)
        self._timer.close()
        self._timer = gevent.get_hub().loop.timer(wait_s)
        self._timer.start(self._on_timer, update=True)

    def _deadline(self) -> tuple[float, str, str]:
        limits, sink = self._timeouts, self._sink
        total = self.sent + limits.total_s
        if self._done_at:
            return self._done_at + limits.linger_s, COMPLETE, ""
        if sink.token_events:
            quiet, limit_s, what = sink.progress, limits.between_bytes_s, "no event"
        else:
            quiet, limit_s, what = self.sent, limits.first_byte_s, "no answer"
        if quiet + limit_s < total:
            return quiet + limit_s, "stalled", f"{what} for {limit_s:g} s"
        return total, "timeout", f"not complete within {limits.total_s:g} s"

    def _on_timer(self) -> None:
        deadline, how, detail = self._deadline()
        if time.monotonic() < deadline:
            self._arm()
        else:
            self._break_off(how, detail)
            self._waiter.switch(None)

    # -- called by the parser --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A head begins: of an interim answer, of the answer, or of junk behind it."""
        if self._complete:
            self._keep_alive = False
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole; interim answers (1xx) are passed over."""
        status = self._parser.get_status_code()
        if status < 200 or self._complete:
            return
        headers = self._headers
        self._head_complete = True
        self._keep_alive = self._parser.should_keep_alive()
        self._until_close = (
            "content-length" not in headers
            and "chunked" not in headers.get("transfer-encoding", "").lower()
        )
        self._sink.begin(status, headers)

    def on_body(self, data: bytes) -> None:
        """A piece of the body, without its framing."""
        if not self._complete:
            self._sink.feed(data, self._moment)

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was an interim one."""
        if self._head_complete:
            self._complete = True
