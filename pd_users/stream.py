"""What a token stream means: bytes and moments in, one result out. Pure.

The decoder has no socket and no clock, and raises on no input: whatever comes, ``end`` gives a
success or one named failure (failures.py). Success is HTTP 2xx, at least one token, a finish_reason
or [DONE], and no error. The first token, n and n_first are those of DESIGN 1 (answer.py).
"""

from array import array
from dataclasses import dataclass, field
from math import isnan, nan

from pd_users.answer import Answer
from pd_users.evidence import BODY_BYTES, evidence
from pd_users.failures import failure_of_status
from pd_users.inflate import Inflate
from pd_users.records import OK, UNFINISHED
from pd_users.sse import SseDecoder
from pd_users.template import Learner, plain

COMPLETE = "complete"  # the body ended as HTTP says it ends
CLOSED = "closed"  # the connection ended in the middle of the body

MAX_EVENT_BYTES = 16 * 1024 * 1024


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
    clock: str = ""  # "kernel", "user", "coalesced" or "jumped": whose moments these are
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

    Without ``begin`` the answer is taken for a 200 event stream, or, with ``status`` 0, for one
    that never came. ``secrets`` are never shown.
    """

    def __init__(self, secrets: tuple[str, ...] = (), status: int = 200) -> None:
        self.status = status
        self.location = ""  # of a redirect
        self.done = False  # [DONE] came
        self.progress = nan  # moment of the last bytes that held part of an event
        self._secrets = secrets
        self._content_type = "text/event-stream"
        self._readable = True  # else the body is the text of an HTTP error
        self._inflate: Inflate | None = None
        self._sse = SseDecoder()
        self._answer = Answer()
        self._learner = Learner()
        self._before = self._after = b""  # the template, where it may be used now
        self._head = b""  # the first bytes, kept until an event comes
        self._broken: str | None = None  # why the body cannot be read

    @property
    def token_events(self) -> int:
        """How many events with tokens there were so far."""
        return self._answer.token_events

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
            self.progress = moment
            self._answer.token(len(text), moment)
        elif self._inflate is None:
            self._read(data, moment)
        else:
            for piece in self._inflate.feed(data):
                self._read(piece, moment)
            self._broken = self._broken or self._inflate.broken

    def _read(self, data: bytes, moment: float) -> None:
        if not self._readable or self._broken is not None:
            self._head += data[: BODY_BYTES - len(self._head)]
            self.progress = moment
            return
        sse, answer = self._sse, self._answer
        was_clean = sse.clean
        events = sse.feed(data)
        for name, payload in events:
            answer.event(name, payload, sse.comment, moment)
        if sse.progressed:
            self.progress = moment
        if not answer.events and len(self._head) < BODY_BYTES:
            self._head += data[: BODY_BYTES - len(self._head)]
        if sse.pending_bytes > MAX_EVENT_BYTES:
            self._broken = f"an event of more than {MAX_EVENT_BYTES >> 20} MiB"
        self.done = answer.done
        if was_clean and sse.clean and len(events) == 1 and answer.token_event is not None:
            self._learner.miss(data, *answer.token_event)
        usable = sse.clean and not (self.done or self._broken or self._inflate)
        self._before, self._after = self._learner.template if usable else (b"", b"")

    # -- out -----------------------------------------------------------------------------------

    def end(self, moment: float, how: str = COMPLETE, detail: str = "") -> StreamResult:
        """The answer ended at ``moment``: COMPLETE, CLOSED or by the failure called ``how``."""
        if self._readable and self._broken is None:
            self._flush(moment)
        done_at = self._answer.done_at
        return self._result(self._outcome(how), detail, moment if isnan(done_at) else done_at)

    def partial(self, outcome: str = UNFINISHED) -> StreamResult:
        """What is known while the answer is still coming."""
        return self._result(outcome, "", nan)

    def _flush(self, moment: float) -> None:
        """An event without its blank line counts if it is whole; half of one is no fault."""
        malformed = self._answer.malformed
        for name, payload in self._sse.flush():
            self._answer.event(name, payload, self._sse.comment, moment)
        self._answer.malformed = malformed

    def _outcome(self, how: str) -> str:
        if not self.status:
            return "reset" if how in (COMPLETE, CLOSED) else how
        return failure_of_status(self.status) or self._outcome_of_stream(how)

    def _outcome_of_stream(self, how: str) -> str:
        answer = self._answer
        if answer.error is not None:
            return "engine-error"
        if self._broken is not None:
            return "protocol"
        if answer.finished or answer.done:
            return OK if answer.token_events else "empty"
        return how if how not in (COMPLETE, CLOSED) else self._fruitless(how)

    def _fruitless(self, how: str) -> str:
        """The name of a body that is over, and neither finished nor broken."""
        events = self._answer.events
        streamed = events and "event-stream" in self._content_type
        if not self._answer.token_events and not streamed and self._head.strip():
            return "not-a-stream"
        return "empty" if how == COMPLETE and not events else "truncated"

    def _result(self, outcome: str, detail: str, done: float) -> StreamResult:
        answer = self._answer
        n, source = answer.output_tokens()
        return StreamResult(
            outcome=outcome,
            status=self.status,
            evidence=self._evidence(outcome, detail),
            first_token=answer.first,
            second_token=answer.first + answer.gaps[0] if answer.gaps else nan,
            last_token=answer.last,
            done=done,
            input_tokens=answer.input_tokens,
            cached_tokens=answer.cached_tokens,
            output_tokens=n,
            n_first=answer.n_first(n),
            token_source=source,
            token_events=answer.token_events,
            malformed_events=answer.malformed,
            gaps=answer.gaps,
        )

    def _evidence(self, outcome: str, detail: str) -> str:
        if outcome in (OK, UNFINISHED):
            return ""
        label = f"HTTP {self.status}" if self.status else ""
        # Of a stream nothing is shown: it is the answer's text.
        said: str | bytes = detail or (b"" if self._answer.events else self._head)
        match outcome:
            case "engine-error":
                said = self._answer.error or ""
            case "protocol":
                said = self._broken or detail
            case "redirect":
                said = detail or f"redirect to {self.location or 'nowhere'}"
            case "not-a-stream":
                label = f"{label} {self._content_type or 'without a content type'}"
        if not said and self._answer.events:
            said = f"after {self.token_events} token events"
        return evidence(said, self._secrets, label)
