"""One answer, event by event: its tokens, its counts, its end, its error. Pure.

A token event is one with non-empty content, reasoning_content, reasoning, tool_calls or text; never
a role-only, empty or usage event.
"""

from array import array
from math import nan
from typing import Any

import orjson

from pd_users.delta import cached_tokens, characters_of, count
from pd_users.evidence import error_message

PlainEvent = tuple[bytes, dict[str, Any]]  # the payload of a token event, and what it parses to

_BROKEN_FINISH = ("error", "abort")  # finish reasons with which an engine gives up


class Answer:
    """Tell it the events; it raises on none."""

    def __init__(self) -> None:
        self.events = 0  # of any kind, without those of the template
        self.malformed = 0  # not JSON, or not of the form of a chunk
        self.token_events = 0
        self.first = self.last = nan  # moments of the first and the last token event
        self.gaps = array("d")  # between token events, s
        self.finished = False  # a finish_reason came
        self.done_at = nan  # moment of [DONE]
        self.error: str | None = None  # what the engine said
        self.token_event: PlainEvent | None = None  # the latest, if the last event was one
        self._characters = self._first_characters = 0
        self._usage: dict[str, Any] = {}
        self._told_first = -1  # n_first as the usage of the first token event has it

    @property
    def done(self) -> bool:
        """Whether [DONE] came; what comes after it is not looked at."""
        return self.done_at == self.done_at

    def token(self, characters: int, moment: float) -> None:
        """A token event with so many characters of text."""
        if self.token_events:
            self.gaps.append(moment - self.last)
        else:
            self.first, self._first_characters = moment, characters
        self.token_events += 1
        self.last = moment
        self._characters += characters

    def event(self, name: bytes, payload: bytes, comment: bytes, moment: float) -> None:
        """One event; ``comment`` is the last comment line before it."""
        self.events += 1
        self.token_event = None
        if self.done or not (payload or name):
            return
        try:
            chunk = orjson.loads(payload)
        except orjson.JSONDecodeError:
            self._not_json(name, payload, comment, moment)
            return
        if type(chunk) is dict:
            self._chunk(name, payload, chunk, moment)
        elif name == b"error":
            self._fail(chunk)
        else:
            self.malformed += 1

    def _chunk(self, name: bytes, payload: bytes, chunk: dict[str, Any], moment: float) -> None:
        if name == b"error" or "choices" not in chunk or chunk.get("error"):
            self._without_choices(name, chunk)
        characters = self._choices(chunk.get("choices"))
        if characters:
            self.token(characters, moment)
            self.token_event = payload, chunk
        if usage := chunk.get("usage"):
            self._read_usage(usage, first=characters > 0 and self.token_events == 1)

    def _choices(self, choices: Any) -> int:
        """How many characters of answer the choices of one event hold; 0: it is no token event."""
        if type(choices) is not list:
            self.malformed += choices is not None
            return 0
        characters = 0
        for choice in choices:
            if type(choice) is not dict:
                self.malformed += 1
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
        if self.error is None:
            self.error = error_message(error)

    def _without_choices(self, name: bytes, chunk: dict[str, Any]) -> None:
        """An error object in one of its shapes; pings and usage chunks are none."""
        bare = chunk.get("object") == "error" or {"message", "code"} <= chunk.keys()
        if chunk.get("error"):
            self._fail(chunk["error"])
        elif name == b"error" or bare:
            self._fail(chunk)
        elif type(groq := chunk.get("x_groq")) is dict and groq.get("usage"):
            self._read_usage(groq["usage"], first=False)

    def _not_json(self, name: bytes, payload: bytes, comment: bytes, moment: float) -> None:
        if payload.strip() == b"[DONE]":
            self.done_at = moment
        elif name == b"error":
            self._fail((payload or comment).decode("utf-8", "replace") or "event: error")
        elif (mended := payload.decode("utf-8", "replace").encode()) != payload:
            # The text says that invalid UTF-8 is replaced, not that the event is lost.
            self.events -= 1
            self.event(name, mended, comment, moment)
        elif name in (b"", b"message"):
            self.malformed += 1

    def _read_usage(self, usage: Any, *, first: bool) -> None:
        if type(usage) is not dict:
            return
        self._usage = usage
        if first:
            self._told_first = count(usage.get("completion_tokens"))

    # -- the counts ------------------------------------------------------------------------------

    @property
    def input_tokens(self) -> int:
        """Prompt tokens by usage; -1: not told."""
        return count(self._usage.get("prompt_tokens"))

    @property
    def cached_tokens(self) -> int:
        """Those that came from the prefix cache; -1: not told."""
        return cached_tokens(self._usage)

    def output_tokens(self) -> tuple[int, str]:
        """n by usage, else the counted token events, and which of the two it is."""
        n = count(self._usage.get("completion_tokens"))
        if n > 0:
            return n, "usage"
        return (self.token_events, "estimated") if self.token_events else (n, "")

    def n_first(self, n: int) -> int:
        """Tokens in the first token event, of ``n``; -1 without one.

        By its own usage where the server sends one per chunk; else 1 when there are at least n
        events; else (a server that merges tokens) by the share of the text in the first event.
        """
        if not self.token_events:
            return -1
        if 0 < self._told_first <= n:
            return self._told_first
        if self.token_events >= n:
            return 1
        return max(1, round(n * self._first_characters / self._characters))
