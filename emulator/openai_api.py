"""The wire: what an OpenAI-compatible request asks for, and the bytes of the answer. Pure."""

import random
from dataclasses import dataclass
from typing import Any

import orjson

WORDS = tuple(
    b" the| of| and| to| in| is| that| for| it| was| on| with| as| be| at| by| this| have| from| or"
    b"| one| had| not| but| what| all| were| when| we| there| can| an| your| which| their".split(
        b"|"
    )
)


class BadRequestError(Exception):
    """A request that the server refuses: HTTP status, error type, sentence."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion request, read."""

    chat: bool
    stream: bool
    usage: bool
    model: str
    words: list[str] | list[int]
    max_tokens: int
    min_tokens: int
    ignore_eos: bool

    def answer_tokens(self, rng: random.Random) -> int:
        """How long the answer will be: as asked where it is pinned, else as the model likes."""
        if self.ignore_eos:
            return self.max_tokens
        natural = max(round(rng.lognormvariate(5.0, 0.6)), self.min_tokens, 1)
        return min(natural, self.max_tokens)


def read_ask(path: str, body: bytes, served_model: str) -> Ask:
    """The request in ``body``. Raises BadRequestError."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequestError(400, "invalid_request_error", f"Body is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise BadRequestError(400, "invalid_request_error", "Body must be a JSON object.")
    model = asked.get("model")
    if model != served_model:
        raise BadRequestError(404, "NotFoundError", f"The model `{model}` does not exist.")
    chat = path.endswith("/chat/completions")
    words = _words_of_chat(asked) if chat else _words_of_prompt(asked)
    limit = _whole(asked, "max_completion_tokens", None)
    limit = _whole(asked, "max_tokens", 256) if limit is None else limit
    options = asked.get("stream_options")
    return Ask(
        chat=chat,
        stream=bool(asked.get("stream")),
        usage=bool(isinstance(options, dict) and options.get("include_usage")),
        model=served_model,
        words=words,
        max_tokens=limit or 256,
        min_tokens=_whole(asked, "min_tokens", 0) or 0,
        ignore_eos=bool(asked.get("ignore_eos")),
    )


def _whole(asked: dict[str, Any], name: str, default: int | None) -> int | None:
    value = asked.get(name, default)
    if value is None:
        return default
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or value < (0 if name == "min_tokens" else 1)
    ):
        raise BadRequestError(
            400, "invalid_request_error", f"{name} must be at least 1, got {value!r}."
        )
    return value


def _words_of_chat(asked: dict[str, Any]) -> list[str]:
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError(400, "invalid_request_error", "messages must be a non-empty list.")
    words: list[str] = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            content = " ".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
        if not isinstance(content, str):
            raise BadRequestError(400, "invalid_request_error", "each message needs a content.")
        words += content.split()
    return words


def _words_of_prompt(asked: dict[str, Any]) -> list[str] | list[int]:
    prompt = asked.get("prompt")
    if isinstance(prompt, str):
        return prompt.split()
    if isinstance(prompt, list) and prompt and all(isinstance(t, int) for t in prompt):
        return prompt
    raise BadRequestError(
        400, "invalid_request_error", "prompt must be text or a list of token ids."
    )


def block_hashes(words: list[str] | list[int], size: int) -> tuple[int, ...]:
    """Chained hashes of the whole leading blocks."""
    chain, hashes = 0, []
    for start in range(0, len(words) - size + 1, size):
        chain = hash((chain, *words[start : start + size]))
        hashes.append(chain)
    return tuple(hashes)


class Answer:
    """Renders the events of one answer; each as an HTTP chunk."""

    def __init__(self, ask: Ask, request_id: str, created: int) -> None:
        kind = "chat.completion.chunk" if ask.chat else "text_completion"
        base = {"id": request_id, "object": kind, "created": created, "model": ask.model}
        self._base = orjson.dumps(base)[:-1]
        self._chat = ask.chat
        opening = b'{"index":0,"delta":{"content":"' if ask.chat else b'{"index":0,"text":"'
        closing = b'"},"finish_reason":null}]}' if ask.chat else b'","finish_reason":null}]}'
        self._before = b"data: " + self._base + b',"choices":[' + opening
        self._after = closing + b"\n\n"
        self._fixed = len(self._before) + len(self._after)

    def token(self, text: bytes) -> bytes:
        """A chunk with text."""
        return b"%x\r\n%b%b%b\r\n" % (self._fixed + len(text), self._before, text, self._after)

    def role(self) -> bytes:
        """The first chunk of a chat: a role and no text."""
        return self.event(
            b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]'
        )

    def finish(self) -> bytes:
        """finish_reason in its own chunk."""
        middle = b'"delta":{}' if self._chat else b'"text":""'
        return self.event(b'"choices":[{"index":0,' + middle + b',"finish_reason":"length"}]')

    def usage(self, usage: dict[str, Any]) -> bytes:
        """Usage in its own chunk."""
        return self.event(b'"choices":[],"usage":' + orjson.dumps(usage))

    def event(self, rest: bytes) -> bytes:
        """Any event, from its keys after the common ones."""
        return http_chunk(b"data: " + self._base + b"," + rest + b"}\n\n")

    def whole(self, text: str, usage: dict[str, Any]) -> bytes:
        """The body of an answer that is not streamed."""
        body = orjson.loads(self._base + b"}")
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        if self._chat:
            body["object"] = "chat.completion"
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        return orjson.dumps({**body, "choices": [choice], "usage": usage})


def http_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def usage_of(prompt: int, cached: int, output: int) -> dict[str, Any]:
    """The usage object."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def error_body(status: int, kind: str, message: str) -> bytes:
    """An error in OpenAI's shape."""
    return orjson.dumps({"error": {"message": message, "type": kind, "code": status}})
