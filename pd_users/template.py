"""A shortcut for the common event: one that differs from an earlier one only inside a string. Pure.

Servers send thousands of events that are alike byte for byte but for the token's text. Once an
event has been parsed and understood, the bytes before and after its text are a template: other
bytes that begin and end with them, and hold a plain piece of a JSON string between (valid UTF-8,
nothing escaped, no quote, no control character), must parse to the same thing with another text.
That holds by the grammars of JSON and SSE, so nothing is guessed, and a token costs a comparison
instead of a parse.
"""

from typing import Any

import orjson

Template = tuple[bytes, bytes]  # what comes before the text, and after

_MAX_PATIENCE = 8
_PROBE = "[another text]"
_FIELDS = ("content", "reasoning_content", "reasoning")


class Learner:
    """Takes a new template when the one at hand has missed a few plain events in a row or so."""

    def __init__(self) -> None:
        self.template: Template = b"", b""  # the empty one fits nothing
        self._misses, self._patience = 0, 1

    def miss(self, data: bytes, payload: bytes, chunk: dict[str, Any]) -> None:
        """``data``, one whole token event, went the long way: ``payload`` parsed as ``chunk``."""
        self._misses += 1
        if self._misses >= self._patience:
            self._misses, self._patience = 0, min(2 * self._patience, _MAX_PATIENCE)
            self.template = learn(data, payload, chunk) or self.template


def learn(data: bytes, payload: bytes, chunk: dict[str, Any]) -> Template | None:
    """The template of ``data``, which is one whole event with ``payload``, parsed as ``chunk``."""
    if (holder := _holder(chunk)) is None:
        return None
    where, field = holder
    literal = b'"%b"' % where[field].encode("utf-8", "replace")
    start = data.find(payload)
    if start < 0 or payload.count(literal) != 1:
        return None
    begin = start + payload.index(literal) + 1
    end = begin + len(literal) - 2
    template = data[:begin], data[end:]
    # The proof: with another text there, all else is the same.
    where[field] = _PROBE
    probe = data[start:begin] + _PROBE.encode() + data[end : start + len(payload)]
    try:
        return template if orjson.loads(probe) == chunk else None
    except orjson.JSONDecodeError:
        return None


def plain(piece: bytes) -> str:
    """The text that ``piece`` of a JSON string stands for; '' where it is not plainly itself."""
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() and '"' not in text and "\\" not in text else ""


def _holder(chunk: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """Where the text of a plain token event is; None for an event that holds more than that."""
    choices = chunk.get("choices")
    if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
        return None
    choice = choices[0]
    delta = choice.get("delta")
    if any(chunk.get(key) for key in ("usage", "error")) or any(
        choice.get(key) for key in ("usage", "finish_reason")
    ):
        return None
    if type(delta) is not dict:
        return (choice, "text") if type(choice.get("text")) is str and choice["text"] else None
    filled = [field for field in (*_FIELDS, "tool_calls") if delta.get(field)]
    if len(filled) == 1 and type(delta[filled[0]]) is str:
        return delta, filled[0]
    return None
