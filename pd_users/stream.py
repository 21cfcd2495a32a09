"""What a token stream means: bytes and moments in, one result out. Pure.

The decoder has no socket and no clock, and raises on no input: whatever comes, ``end`` gives a
success or one named failure (failures.py). The definitions are those of DESIGN 1:

first token   the first event with non-empty content, reasoning_content, reasoning, tool_calls or
              text; never a role-only, empty, comment or usage event
n             usage.completion_tokens, else the counted token events ("estimated")
n_first       tokens in the first token event: its own usage where the server sends one per chunk;
              else 1 when there are at least n token events; else (a server that merges tokens) n
              times the share of the text that came in the first event, at least 1
success       HTTP 2xx, at least one token, a finish_reason or [DONE], and no error
"""

from array import array
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

import orjson

from pd_users.delta import cached_tokens, characters_of, count
from pd_users.evidence import BODY_BYTES, error_message, evidence
from pd_users.failures import failure_of_status
from pd_users.inflate import Inflate
from pd_users.records import OK, UNFINISHED
from pd_users.sse import SseDecoder
from pd_users.template import Template, learn, plain

COMPLETE = "complete"  # the body ended as HTTP says it ends
CLOSED = "closed"  # the connection ended in the middle of the body

MAX_EVENT_BYTES = 16 * 1024 * 1024
_BROKEN_FINISH = ("error", "abort")  # finish reasons with which an engine gives up


@dataclass(frozen=True, slots=True)
class StreamResult:
    """One request as the client saw it. Moments are seconds of CLOCK_MONOTONIC, nan: never came."""

    outcome: str  # "ok" or a name of failures.FAILURES
    status: int = 0  # of HTTP; 0 without an answer
    evidence: str = ""
    sent: float = nan
    first_token: float = nan
    second_token: float = nan
    last_token: float = nan
    done: float = nan
    input_tokens: int = -1
    cached_tokens: int = -1
    output_tokens: int = -1
    n_first: int = -1
    token_source: str = ""  # "usage" or "estimated"
    clock: str = "user"  # "kernel", "user", "coalesced" or "jumped": whose moments these are
    token_events: int = 0
    malformed_events: int = 0
    gaps: "array[float]" = field(default_factory=lambda: array("d"))  # between token events, s

    @property
    def tokens_per_chunk(self) -> float:
        """Over 1.05, the gaps are per chunk, not per token; nan without tokens."""
        return self.output_tokens / self.token_events if self.token_events else nan

    @property
    def tpot_s(self) -> float:
        """Seconds per output token after the first event; nan where all tokens came in it."""
        if not 1 <= self.n_first < self.output_tokens:
            return nan
        return (self.last_token - self.first_token) / (self.output_tokens - self.n_first)


class StreamDecoder:
    """Feed it the body of one answer, each piece with its moment; then ask for the ``end``.

    Without ``begin`` the answer is taken for a 200 event stream. ``secrets`` are never shown.
    """

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self.finished = False  # a finish_reason came
        self.done = False  # [DONE] came
        self.progress = nan  # moment of the last bytes that held part of an event
        self.token_events = 0
        self._secrets = secrets
        self.status = 200
        self._readable = True  # else the body is the text of an HTTP error
        self._content_type = "text/event-stream"
        self.location = ""
        self._inflate: Inflate | None = None
        self._sse = SseDecoder()
        self._head = b""  # the first bytes, kept until an event comes
        self._events = 0
        self._malformed = 0
        self._error: str | None = None  # what an engine said
        self._broken: str | None = None  # why the body cannot be read
        self._first = self._last = self._ended = nan
        self._gaps = array("d")
        self._characters = self._first_characters = 0
        self._usage: dict[str, Any] = {}
        self._template: Template | None = None
        self._before = self._after = b""  # the template where it may be used now
        self._plain_event: tuple[bytes, dict[str, Any]] | None = None
        self._misses, self._patience = 0, 1
        self._n_first = -1

    # -- in ----------------------------------------------------------------------------------

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """The head of the answer has come; the names of ``headers`` are in lower case."""
        self.status = status
        self._readable = 200 <= status < 300
        self._content_type = headers.get("content-type", "")
        self.location = headers.get("location", "")
        coding = headers.get("content-encoding", "").strip().lower()
        if coding not in ("", "identity"):
            self._inflate = Inflate(coding)

    def feed(self, data: bytes, moment: float) -> None:
        """Bytes of the body, as the server sent them, and when they arrived."""
        if (
            self._before
            and data.startswith(self._before)
            and data.endswith(self._after)
            and (text := plain(data[len(self._before) : len(data) - len(self._after)]))
        ):  # the common event (template.py); all others go the long way
            self._gaps.append(moment - self._last)
            self._last = self.progress = moment
            self.token_events += 1
            self._characters += len(text)
            return
        if self._inflate is None:
            self._read(data, moment)
            return
        for piece in self._inflate.feed(data):
            self._read(piece, moment)
        self._broken = self._broken or self._inflate.broken

    def _read(self, data: bytes, moment: float) -> None:
        if not self._readable or self._broken is not None:
            self._head += data[: BODY_BYTES - len(self._head)]
            self.progress = moment
            return
        sse = self._sse
        was_clean = sse.clean
        self._before, self._plain_event = b"", None
        events = sse.feed(data)
        for name, payload in events:
            self._event(name, payload, moment)
        if sse.progressed:
            self.progress = moment
        if not self._events and len(self._head) < BODY_BYTES:
            self._head += data[: BODY_BYTES - len(self._head)]
        if sse.pending_bytes > MAX_EVENT_BYTES:
            self._broken = f"an event of more than {MAX_EVENT_BYTES >> 20} MiB"
        if was_clean and sse.clean and len(events) == 1 and self._plain_event is not None:
            self._learn(data, *self._plain_event)
        if sse.clean and self._template and not (self.done or self._inflate or self._broken):
            self._before, self._after = self._template

    def _learn(self, data: bytes, payload: bytes, chunk: dict[str, Any]) -> None:
        """Take a new template when the one at hand has missed a few plain events."""
        self._misses += 1
        if self._misses >= self._patience:
            self._misses, self._patience = 0, min(2 * self._patience, 8)
            self._template = learn(data, payload, chunk) or self._template

    # -- one event -----------------------------------------------------------------------------

    def _event(self, name: bytes, payload: bytes, moment: float) -> None:
        self._events += 1
        if self.done or (not payload and not name):
            return
        try:
            chunk = orjson.loads(payload)
        except orjson.JSONDecodeError:
            self._not_json(name, payload, moment)
            return
        if type(chunk) is not dict:
            self._malformed += 1
            return
        if name == b"error" or "choices" not in chunk:
            self._no_choices(name, chunk)
        elif chunk.get("error"):
            self._fail(chunk["error"])
        characters = self._choices(chunk.get("choices"))
        if characters:
            self._token(characters, moment)
            self._plain_event = payload, chunk
        if usage := chunk.get("usage"):
            self._read_usage(usage, first=characters > 0 and self.token_events == 1)

    def _token(self, characters: int, moment: float) -> None:
        self.token_events += 1
        if self.token_events == 1:
            self._first = moment
            self._first_characters = characters
        else:
            self._gaps.append(moment - self._last)
        self._last = moment
        self._characters += characters

    def _choices(self, choices: Any) -> int:
        """How many characters of answer the choices of one event hold; 0: it is no token event."""
        if not choices:
            return 0
        if type(choices) is not list:
            self._malformed += 1
            return 0
        characters = 0
        for choice in choices:
            if type(choice) is not dict:
                self._malformed += 1
                continue
            characters += characters_of(choice)
            if reason := choice.get("finish_reason"):
                self._finish(reason)
            if usage := choice.get("usage"):  # Moonshot
                self._read_usage(usage, first=False)
        return characters

    def _finish(self, reason: Any) -> None:
        self.finished = True
        if reason in _BROKEN_FINISH:
            self._fail(f"finish_reason {reason}")

    def _fail(self, error: Any) -> None:
        if self._error is None:
            self._error = error_message(error)

    def _no_choices(self, name: bytes, chunk: dict[str, Any]) -> None:
        """An error object in one of its shapes; pings and usage chunks are none."""
        if chunk.get("error"):
            self._fail(chunk["error"])
        elif (
            name == b"error"
            or chunk.get("object") == "error"
            or {"message", "code"} <= chunk.keys()
        ):
            self._fail(chunk)
        elif type(groq := chunk.get("x_groq")) is dict and groq.get("usage"):
            self._read_usage(groq["usage"], first=False)

    def _not_json(self, name: bytes, payload: bytes, moment: float) -> None:
        if payload.strip() == b"[DONE]":
            self.done, self._ended = True, moment
        elif name == b"error":
            self._fail((payload or self._sse.comment).decode("utf-8", "replace") or "event: error")
        elif (mended := payload.decode("utf-8", "replace").encode()) != payload:
            # The text says that invalid UTF-8 is replaced, not that the event is lost.
            self._events -= 1
            self._event(name, mended, moment)
        elif name in (b"", b"message"):
            self._malformed += 1

    def _read_usage(self, usage: Any, *, first: bool) -> None:
        if type(usage) is not dict:
            return
        self._usage = usage
        if first and (n := count(usage.get("completion_tokens"))) > 0:
            self._n_first = n

    # -- out -----------------------------------------------------------------------------------

    def end(self, moment: float, how: str = COMPLETE, detail: str = "") -> StreamResult:
        """The answer ended at ``moment``: COMPLETE, CLOSED or by the failure called ``how``."""
        if self._readable and self._broken is None:
            self._flush(moment)
        outcome = self._outcome(how)
        if isnan(self._ended):
            self._ended = moment
        return self._result(outcome, detail, self._ended)

    def partial(self, outcome: str = UNFINISHED) -> StreamResult:
        """What is known while the answer is still coming."""
        return self._result(outcome, "", nan)

    def _flush(self, moment: float) -> None:
        """An event without its blank line counts if it is whole; half of one is no fault."""
        malformed = self._malformed
        for name, payload in self._sse.flush():
            self._event(name, payload, moment)
        self._malformed = malformed

    def _outcome(self, how: str) -> str:
        if failure := failure_of_status(self.status):
            return failure
        if self._error is not None:
            return "engine-error"
        if self._broken is not None:
            return "protocol"
        if self.token_events and (self.finished or self.done):
            return OK
        if how not in (COMPLETE, CLOSED):
            return how
        return self._fruitless(how)

    def _fruitless(self, how: str) -> str:
        """The name of an answer that came to its end and is no success."""
        streamed = "event-stream" in self._content_type
        if not self.token_events and not (self._events and streamed) and self._head.strip():
            return "not-a-stream"
        if self.finished or self.done or (how == COMPLETE and not self._events):
            return "empty"
        return "truncated"

    def _result(self, outcome: str, detail: str, done: float) -> StreamResult:
        gaps = self._gaps
        n, source = count(self._usage.get("completion_tokens")), "usage"
        if n < 1 and self.token_events:
            n, source = self.token_events, "estimated"
        return StreamResult(
            outcome=outcome,
            status=self.status,
            evidence=self._evidence(outcome, detail),
            first_token=self._first,
            second_token=self._first + gaps[0] if gaps else nan,
            last_token=self._last,
            done=done,
            input_tokens=count(self._usage.get("prompt_tokens")),
            cached_tokens=cached_tokens(self._usage),
            output_tokens=n,
            n_first=self._tokens_of_first_event(n),
            token_source=source if n > 0 else "",
            token_events=self.token_events,
            malformed_events=self._malformed,
            gaps=gaps,
        )

    def _tokens_of_first_event(self, n: int) -> int:
        if not self.token_events:
            return -1
        if 0 < self._n_first <= n:
            return self._n_first
        if self.token_events >= n:
            return 1
        return max(1, round(n * self._first_characters / self._characters))

    def _evidence(self, outcome: str, detail: str) -> str:
        if outcome in (OK, UNFINISHED):
            return ""
        label = f"HTTP {self.status}"
        match outcome:
            case "engine-error":
                return evidence(self._error or "", self._secrets, label)
            case "protocol":
                return evidence(self._broken or detail, self._secrets, label)
            case "redirect" if self.location:
                return evidence(detail or f"redirect to {self.location}", self._secrets, label)
            case "not-a-stream":
                label = f"{label} {self._content_type or 'without a content type'}"
        said = detail or self._head
        if not said and self.token_events:
            said = f"after {self.token_events} token events"
        return evidence(said, self._secrets, label)
