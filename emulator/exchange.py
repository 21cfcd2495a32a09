"""One completion between the cluster and a connection: sends its tokens, notes when."""

import time
from itertools import count
from math import isnan

from emulator.answer import DONE, STREAM_HEAD, STREAM_TAIL, Answer, http_chunk, text_of, usage_of
from emulator.connection import Connection
from emulator.live import LiveCluster
from emulator.model import Request
from emulator.openai_api import Ask, error_body
from emulator.truth import Entry

_numbers = count()
BROKEN = error_body(500, "internal_error", "KV transfer failed: connection to prefill lost")


class Exchange:
    """The client of one request of the cluster, and what its connection is busy with."""

    def __init__(
        self,
        live: LiveCluster,
        connection: Connection,
        ask: Ask,
        entry: Entry,
        tokens_per_chunk: int,
        fault: str,
    ) -> None:
        self._live, self._connection = live, connection
        self._ask, self._entry = ask, entry
        self._request = request = self._request_of(entry)
        request.client = self
        answer_id = f"{'chatcmpl' if ask.chat else 'cmpl'}-{next(_numbers)}"
        self._answer = Answer(ask, answer_id, int(time.time()))
        self._chunk = min(tokens_per_chunk, request.output_tokens)
        self._next = self._chunk  # tokens that must have been made before anything is sent
        self._fault = fault
        self._fault_at = max(request.output_tokens // 2, 1) if fault else 0
        connection.begin_stream(self)

    @staticmethod
    def _request_of(entry: Entry) -> Request:
        assert entry.request is not None
        return entry.request

    # -- from the cluster --------------------------------------------------------------------------

    def produce(self, made: int) -> None:
        """The cluster has made ``made`` tokens so far: send those that are new."""
        while made >= self._next:
            if self._fault_at and self._next > self._fault_at:
                self._break()
                return
            self._send(self._next - self._entry.sent_tokens)

    def _send(self, tokens: int) -> None:
        entry, ask = self._entry, self._ask
        sent = entry.sent_tokens
        text = text_of(sent, tokens)
        entry.sent_tokens = sent + tokens
        left = self._request.output_tokens - sent - tokens
        self._next = sent + tokens + max(min(self._chunk, left), 1)
        if ask.stream:
            data = self._answer.token(text) if not ask.running_usage else self._with_usage(text)
            if not sent:
                data = STREAM_HEAD + (self._answer.role() if ask.chat else b"") + data
        now = time.monotonic()
        if not sent:
            entry.first_token_s = now
        elif isnan(entry.second_token_s):
            entry.second_token_s = now
        entry.last_token_s = now
        if ask.stream:
            self._connection.write(data)

    def _with_usage(self, text: bytes) -> bytes:
        return self._answer.token_with_usage(text, self._usage())

    def _usage(self) -> dict[str, object]:
        request = self._request
        return usage_of(request.prompt_tokens, request.cached_tokens, self._entry.sent_tokens)

    def end(self) -> None:
        """The cluster is done with it."""
        request = self._request
        if request.outcome != "ok":
            self._entry.outcome = request.outcome
            return
        self.produce(request.output_tokens)
        if self._entry.outcome:  # a fault on the last token
            return
        if self._fault:  # too short an answer to break in the middle of
            self._break()
            return
        self._entry.outcome = "ok"
        reason = b"length" if request.output_tokens >= self._ask.max_tokens else b"stop"
        if self._ask.stream:
            tail = self._answer.finish(reason)
            if self._ask.usage:
                tail += self._answer.usage(self._usage())
            self._connection.end(tail + DONE + STREAM_TAIL)
        else:
            text = text_of(0, request.output_tokens)
            self._connection.answer(200, self._answer.whole(text, reason, self._usage()))

    # -- endings that are not whole ------------------------------------------------------------------

    def disconnected(self) -> None:
        """The client has gone."""
        if not self._entry.outcome:
            self._entry.outcome = "aborted"
            self._live.abort(self._request, "aborted")

    def _break(self) -> None:
        """The fault strikes; the cluster need not go on."""
        fault, connection, stream = self._fault, self._connection, self._ask.stream
        self._entry.outcome = fault
        self._fault_at, self._next = 0, self._request.output_tokens + 1
        self._live.abort(self._request, fault)
        match fault:
            case "reset":
                connection.reset()
            case "error-in-stream" if stream:
                connection.end(http_chunk(b"data: " + BROKEN + b"\n\n") + DONE + STREAM_TAIL)
            case "error-in-stream":
                connection.answer(500, BROKEN)
            case "truncated" if stream:
                connection.end(STREAM_TAIL)  # a clean end of the body, but no [DONE]
            case "truncated":
                connection.close()
            case _:  # stall: open, and silent for ever
                pass
