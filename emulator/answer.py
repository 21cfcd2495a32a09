"""The wire, outwards: the bytes of one answer, streamed or whole. Pure."""

from typing import Any

import orjson

from emulator.openai_api import Ask

WORDS = tuple(
    b" the| of| and| to| in| is| that| for| it| was| on| with| as| be| at| by| this| have| from| or"
    b"| one| had| not| but| what| all| were| when| we| there| can| an| your| which| their".split(
        b"|"
    )
)
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nServer: pd-emulator\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
STREAM_TAIL = b"0\r\n\r\n"


def text_of(start: int, count: int) -> bytes:
    """The words of tokens ``start`` to ``start + count``: short ones, of various lengths."""
    return b"".join(WORDS[k % len(WORDS)] for k in range(start, start + count))


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


class Answer:
    """Renders the events of one answer, each as an HTTP chunk."""

    def __init__(self, ask: Ask, answer_id: str, created: int) -> None:
        kind = "chat.completion.chunk" if ask.chat else "text_completion"
        base = {"id": answer_id, "object": kind, "created": created, "model": ask.model}
        self._chat = ask.chat
        self._base = base
        self._opening = b"data: " + orjson.dumps(base)[:-1] + b","
        text = b'{"index":0,"delta":{"content":"' if ask.chat else b'{"index":0,"text":"'
        closing = b'"},"finish_reason":null}]' if ask.chat else b'","finish_reason":null}]'
        self._before = self._opening + b'"choices":[' + text
        self._after = closing + b"}\n\n"
        self._fixed = len(self._before) + len(self._after)

    def token(self, text: bytes) -> bytes:
        """A chunk with text."""
        return b"%x\r\n%b%b%b\r\n" % (self._fixed + len(text), self._before, text, self._after)

    def token_with_usage(self, text: bytes, usage: dict[str, Any]) -> bytes:
        """A chunk with text and the usage so far."""
        end = self._after[:-3] + b',"usage":' + orjson.dumps(usage) + b"}\n\n"
        return http_chunk(self._before + text + end)

    def role(self) -> bytes:
        """The first chunk of a chat: a role and no text."""
        delta = b'"delta":{"role":"assistant","content":""}'
        return self._event(b'"choices":[{"index":0,' + delta + b',"finish_reason":null}]')

    def finish(self, reason: bytes) -> bytes:
        """finish_reason in its own chunk."""
        middle = b'"delta":{}' if self._chat else b'"text":""'
        return self._event(b'"choices":[{"index":0,%b,"finish_reason":"%b"}]' % (middle, reason))

    def usage(self, usage: dict[str, Any]) -> bytes:
        """Usage in its own chunk."""
        return self._event(b'"choices":[],"usage":' + orjson.dumps(usage))

    def _event(self, rest: bytes) -> bytes:
        return http_chunk(self._opening + rest + b"}\n\n")

    def whole(self, text: bytes, reason: bytes, usage: dict[str, Any]) -> bytes:
        """The body of an answer that is not streamed."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason.decode()}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text.decode()}
        else:
            choice["text"] = text.decode()
        kind = "chat.completion" if self._chat else "text_completion"
        return orjson.dumps({**self._base, "object": kind, "choices": [choice], "usage": usage})


DONE = http_chunk(b"data: [DONE]\n\n")
