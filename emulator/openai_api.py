"""The wire, inwards: what an OpenAI-compatible request asks for, and how it is refused. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson

DEFAULT_MAX_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Refusal:
    """A whole answer that is no completion."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class BadRequestError(Exception):
    """A request that the server refuses: HTTP status, error type, sentence."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(status, kind, message, param)


def error_body(status: int, kind: str, message: str, param: str | None = None) -> bytes:
    """An error in OpenAI's shape, as vLLM fills it."""
    error = {"message": message, "type": kind, "param": param, "code": status}
    return orjson.dumps({"error": error})


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion request, read."""

    chat: bool
    model: str
    stream: bool
    usage: bool  # in a chunk of its own at the end
    running_usage: bool  # in every chunk
    prompt: Sequence[object]  # words, or token ids
    max_tokens: int
    min_tokens: int
    ignore_eos: bool

    def answer_tokens(self, rng: Random) -> int:
        """How long the answer will be: as asked where that is pinned, else as the model likes."""
        natural = max(round(rng.lognormvariate(5.0, 0.6)), 1)
        if self.ignore_eos:
            return self.max_tokens
        return min(max(natural, self.min_tokens), self.max_tokens)


def read_ask(chat: bool, body: bytes, served_model: str) -> Ask:
    """The request in ``body``. Raises BadRequestError."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _bad(f"The body is not JSON: {error}.") from None
    if not isinstance(asked, dict):
        raise _bad("The body must be a JSON object.")
    _check_model(asked.get("model"), served_model)
    options = asked.get("stream_options")
    options = options if isinstance(options, dict) else {}
    limit = _count(asked, "max_completion_tokens", 1)
    limit = _count(asked, "max_tokens", 1) if limit is None else limit
    limit = DEFAULT_MAX_TOKENS if limit is None else limit
    minimum = _count(asked, "min_tokens", 0) or 0
    if minimum > limit:
        raise _bad(f"min_tokens must not exceed max_tokens={limit}, got {minimum}.", "min_tokens")
    return Ask(
        chat=chat,
        model=served_model,
        stream=bool(asked.get("stream")),
        usage=bool(options.get("include_usage")),
        running_usage=bool(options.get("continuous_usage_stats")),
        prompt=_chat_words(asked) if chat else _prompt_tokens(asked),
        max_tokens=limit,
        min_tokens=minimum,
        ignore_eos=bool(asked.get("ignore_eos")),
    )


def _bad(message: str, param: str | None = None) -> BadRequestError:
    return BadRequestError(400, "BadRequestError", message, param)


def _check_model(model: Any, served: str) -> None:
    if model is not None and model != served:
        raise BadRequestError(404, "NotFoundError", f"The model `{model}` does not exist.", "model")


def _count(asked: dict[str, Any], name: str, least: int) -> int | None:
    value = asked.get(name)
    if value is None:
        return None
    if type(value) is not int or value < least:
        raise _bad(f"{name} must be at least {least}, got {value!r}.", name)
    return value


def _chat_words(asked: dict[str, Any]) -> list[str]:
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _bad("messages must be a list with at least one message.", "messages")
    words: list[str] = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            content = " ".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
        if not isinstance(content, str):
            raise _bad("each message needs a content of text.", "messages")
        words += content.split()
    return words


def _prompt_tokens(asked: dict[str, Any]) -> Sequence[object]:
    prompt = asked.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]  # a batch of one
    if isinstance(prompt, str) and prompt.strip():
        return prompt.split()
    if isinstance(prompt, list) and prompt and all(type(t) is int and t >= 0 for t in prompt):
        return prompt
    raise _bad("prompt must be text, or a list of token ids, and not empty.", "prompt")
