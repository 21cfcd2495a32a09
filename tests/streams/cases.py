"""The stream dialects and faults that servers are known to produce, and what each must give.

``python -m tests.streams.build`` writes them out as raw bodies and ``expected.json``. A case is a
list of pieces (ms after the request, bytes) and how the answer ends; the text is always the same
ten tokens, the first at 200 ms and then one every 20 ms, unless the case is about just that.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

WORDS = ["The", " quick", " brown", " fox", " jumps", " over", " the", " lazy", " dog", "."]
FIRST_MS, GAP_MS = 200, 20
Piece = tuple[float, bytes]

OK = {
    "outcome": "ok",
    "ttft_ms": 200.0,
    "last_ms": 380.0,
    "output_tokens": 10,
    "n_first": 1,
    "tpot_ms": 20.0,
    "token_source": "usage",
    "input_tokens": 32,
    "malformed_events": 0,
}


@dataclass(frozen=True)
class Case:
    """One answer: its pieces, its head, its end, and what it means."""

    name: str
    pieces: list[Piece]
    expect: dict[str, Any]
    why: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    end: str = "complete"  # or closed, reset, stalled

    @property
    def body(self) -> bytes:
        """All pieces as one."""
        return b"".join(data for _, data in self.pieces)


# -- the building blocks -------------------------------------------------------------------------


def compact(value: Any) -> str:
    """JSON as most servers write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def event(value: Any, end: str = "\n", field_name: str = "data: ") -> bytes:
    """One event; a str is sent as it is, anything else as compact JSON."""
    text = value if isinstance(value, str) else compact(value)
    return f"{field_name}{text}{end}{end}".encode()


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chat chunk with one choice, as vLLM sends it."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more}


def usage(n: int = 10, prompt: int = 32, **more: Any) -> dict[str, Any]:
    """A usage object."""
    total = {"prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt + n}
    return {**total, **more}


USAGE = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": usage()}
ROLE = chunk({"role": "assistant", "content": ""})
DONE = "[DONE]"


def tokens(words: Iterable[str] = WORDS, **more: Any) -> list[tuple[float, Any]]:
    """One chunk per word, 20 ms apart, the first at 200 ms."""
    return [
        (FIRST_MS + GAP_MS * i, chunk({"content": word}, **more)) for i, word in enumerate(words)
    ]


def tail(
    at_ms: float = 382, *, finish: bool = True, use: Any = USAGE, done: bool = True
) -> Iterator[tuple[float, Any]]:
    """What comes after the last token."""
    if finish:
        yield at_ms, chunk({}, "stop")
    if use:
        yield at_ms, use
    if done:
        yield at_ms, DONE


def sent(*parts: Iterable[tuple[float, Any]], end: str = "\n", name: str = "data: ") -> list[Piece]:
    """Values as the pieces that a server sends; bytes are sent as they are."""
    return [
        (at_ms, value if isinstance(value, bytes) else event(value, end, name))
        for part in parts
        for at_ms, value in part
    ]


def plain(**more: Any) -> list[Piece]:
    """The healthy stream."""
    return sent([(100, ROLE)], tokens(), tail(), **more)


def failure(outcome: str, evidence: str = "", **more: Any) -> dict[str, Any]:
    """A request that fails."""
    return {"outcome": outcome, "evidence": evidence, **more}


def estimated(**more: Any) -> dict[str, Any]:
    """The healthy result where nobody told the counts."""
    return {**OK, "token_source": "estimated", "input_tokens": -1, **more}


# -- the grammar of event streams ----------------------------------------------------------------


def _line_ends() -> Iterator[Case]:
    yield Case("plain", plain(), OK)
    yield Case("no_space", plain(name="data:"), OK, "the space after the colon is optional")
    yield Case("crlf", plain(end="\r\n"), OK)
    yield Case("cr", plain(end="\r"), OK)
    mixed = [
        (at, data[:-2] + (b"\n\n", b"\r\n\n", b"\r\r", b"\n\r\n", b"\r\n\r\n", b"\r\n\r")[i % 6])
        for i, (at, data) in enumerate(plain())
    ]
    yield Case("mixed_line_ends", mixed, OK)
    yield Case(
        "bom", [(200, b"\xef\xbb\xbf" + event(tokens()[0][1])), *sent(tokens()[1:], tail())], OK
    )
    pretty = [
        (at, "".join(f"data: {line}\n" for line in json.dumps(value, indent=1).split("\n")) + "\n")
        for at, value in [(100, ROLE), *tokens(), *tail(done=False)]
    ]
    yield Case(
        "multi_line_data", sent([(at, text.encode()) for at, text in pretty], [(382, DONE)]), OK
    )
    extra = [(at, b"id: 7\nretry: 10\nevent: message\nfoo: bar\nbaz\n" + d) for at, d in plain()]
    yield Case("other_fields", extra, OK, "id, retry, event and unknown fields around the data")
    late = [(100, event(ROLE)[:-1])]
    for at, value in [*tokens(), *tail(done=False)]:
        late.append((at, b"\n" + event(value)[:-1]))
    late.append((382, b"\n" + event(DONE)))
    yield Case(
        "late_blank_line",
        late,
        {**OK, "ttft_ms": 220.0, "last_ms": 382.0, "tpot_ms": 18.0},
        "an event is complete at its blank line, which comes with the next event",
    )
    bare = plain()
    yield Case("done_unclosed", [*bare[:-1], (382, b"data: [DONE]")], OK, "no line end at the end")
    unclosed = sent([(100, ROLE)], tokens(), tail(use=None, done=False))
    unclosed[-1] = (382, unclosed[-1][1].rstrip(b"\n"))
    yield Case("finish_unclosed", unclosed, estimated())


def _comments_and_pings() -> Iterator[Case]:
    beat = [(at, b": keep-alive\n\n") for at in (20, 120, 320)]
    yield Case("comments", sorted([*beat, *plain()], key=lambda piece: piece[0]), OK)
    glued = [(at, b":\n: a\r\n" + data) for at, data in plain()]
    yield Case("comments_glued", glued, OK, "a comment in the same write as each event")
    again = [(20, event(": OPENROUTER PROCESSING")), (120, event(": OPENROUTER PROCESSING"))]
    yield Case(
        "comment_as_data",
        [*again, *plain()],
        {**OK, "malformed_events": 2},
        "a gateway that turns comments into data",
    )
    pings = [
        (10, b"data:\n\n"),
        (20, b"data\n\n"),
        (30, event({})),
        (40, b"event: ping\ndata: {}\n\n"),
        (50, b"event: ping\ndata: ping\n\n"),
        (60, b"event: heartbeat\n\n"),
        (70, event(chunk({}))),
        (80, event({"type": "ping"})),
    ]
    yield Case("pings", [*pings, *plain()], OK)
    odd = [
        (10, event("5")),
        (20, event("[1]")),
        (30, event('"x"')),
        (40, event("null")),
        (50, event({"choices": "none"})),
        (60, event({"choices": [None, 7]})),
        (70, event("{broken")),
    ]
    yield Case("malformed", [*odd, *plain()], {**OK, "malformed_events": 8})


# -- the dialects of engines and gateways --------------------------------------------------------


def _choices() -> Iterator[Case]:
    azure = {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    yield Case("empty_choices_first", [(60, event(azure)), *plain()], OK, "Azure")
    yield Case("null_choices", [(60, event({"choices": None})), *plain()], OK)
    yield Case("no_choices", [(60, event({"id": "x", "object": "chunk"})), *plain()], OK)
    yield Case("null_delta", [(60, event(chunk(None))), *plain()], OK)
    null_role = chunk({"role": "assistant", "content": None})
    yield Case("role_null_content", sent([(30, null_role)], tokens(), tail()), OK, "llama-server")
    with_first = [(200, chunk({"role": "assistant", "content": "The"}))]
    yield Case("role_with_first", sent(with_first, tokens()[1:], tail()), OK, "Dynamo")
    last = [*tokens()[:-1], (380, chunk({"content": "."}, "stop"))]
    yield Case("finish_with_text", sent([(200, ROLE)], last, tail(finish=False)), OK, "vLLM")
    sglang = [
        (at, chunk({**value["choices"][0]["delta"], "reasoning_content": None, "tool_calls": None}))
        for at, value in tokens()
    ]
    yield Case("null_fields", sent([(200, ROLE)], sglang, tail()), OK, "SGLang")
    gaps = [(250.0, chunk({"content": ""})), (310.0, chunk({"content": None}))]
    mixed = sorted([*tokens(), *gaps], key=lambda piece: piece[0])
    yield Case("empty_content_between", sent(mixed, tail()), OK, "special tokens")
    both = {
        "choices": [
            {"index": 0, "delta": {"content": "a"}, "finish_reason": None},
            {"index": 1, "delta": {"content": "b"}, "finish_reason": None},
        ]
    }
    second = [(at, both) for at, _ in tokens()]
    yield Case(
        "two_choices",
        sent(second, tail(use={"choices": [], "usage": usage(20)})),
        {**OK, "output_tokens": 20, "n_first": 2, "tpot_ms": 10.0},
        "two answers at once: ten events with two tokens each",
    )
    text = [
        (at, {"object": "text_completion", "choices": [{"index": 0, "text": word}]})
        for (at, _), word in zip(tokens(), WORDS, strict=True)
    ]
    end = [(382, {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})]
    yield Case("completions", sent(text, end, tail(finish=False)), OK, "/v1/completions")


def _reasoning_and_tools() -> Iterator[Case]:
    for name in ("reasoning_content", "reasoning"):
        think = [
            (at, chunk({name: word, "content": ""} if i < 6 else {"content": word}))
            for i, ((at, _), word) in enumerate(zip(tokens(), WORDS, strict=True))
        ]
        yield Case(name, sent([(100, ROLE)], think, tail()), OK, "thinking is answering")
    twice = [(at, chunk({"reasoning": w, "reasoning_content": w})) for (at, _), w in _timed()]
    yield Case("reasoning_twice", sent(twice, tail()), OK, "both names at once")
    call = {"index": 0, "id": "c1", "type": "function"}
    calls = [
        (
            at,
            chunk(
                {"tool_calls": [{**call, "function": {"name": "f", "arguments": ""}}]}
                if i == 0
                else {"tool_calls": [{"index": 0, "function": {"arguments": word}}]}
            ),
        )
        for i, ((at, _), word) in enumerate(_timed())
    ]
    empty = [(150, chunk({"role": "assistant", "content": None, "tool_calls": []}))]
    yield Case("tool_calls", sent(empty, calls, tail()), OK)
    parts = [(at, chunk({"content": [{"type": "text", "text": w}]})) for (at, _), w in _timed()]
    yield Case("content_parts", sent(parts, tail()), OK, "Mistral")


def _timed() -> list[tuple[tuple[float, Any], str]]:
    return list(zip(tokens(), WORDS, strict=True))


def _usage() -> Iterator[Case]:
    def with_tail(name: str, *last: Any, **expect: Any) -> Case:
        end = [(382.0, value) for value in last]
        return Case(name, sent([(100, ROLE)], tokens(), end), {**OK, **expect})

    yield with_tail("usage_with_finish", chunk({}, "stop", usage=usage()), DONE)
    moonshot = chunk({}, "stop")
    moonshot["choices"][0]["usage"] = usage()
    yield with_tail("usage_in_choice", moonshot, DONE)
    groq = {"id": "1", "x_groq": {"usage": usage()}}
    yield with_tail("usage_of_groq", chunk({}, "stop"), groq, DONE)
    details = usage(prompt_tokens_details={"cached_tokens": 16})
    cached = {"choices": [], "usage": details}
    yield with_tail("cached_tokens", chunk({}, "stop"), cached, DONE, cached_tokens=16)
    deepseek = {"choices": [], "usage": usage(prompt_cache_hit_tokens=16)}
    yield with_tail("cached_deepseek", chunk({}, "stop"), deepseek, DONE, cached_tokens=16)
    null = sent([(100, ROLE)], tokens(usage=None), tail())
    yield Case("usage_null_in_each", null, OK)
    each = [(at, {**value, "usage": usage(i + 1)}) for i, (at, value) in enumerate(tokens())]
    role = [(100, {**ROLE, "usage": usage(0)})]
    yield Case("usage_in_each", sent(role, each, tail(use=None)), OK, "continuous_usage_stats")
    yield Case("usage_first", sent([(100, USAGE)], tokens(), tail(use=None)), OK)
    yield Case("no_usage", sent([(100, ROLE)], tokens(), tail(use=None)), estimated())
    for name, value in (
        ("usage_zero", usage(0, 0)),
        ("usage_strings", {"completion_tokens": "10", "prompt_tokens": None}),
        ("usage_huge", {"completion_tokens": 10**12, "prompt_tokens": -5}),
    ):
        told = {"input_tokens": 0} if name == "usage_zero" else {}
        end = tail(use={"choices": [], "usage": value})
        yield Case(name, sent([(100, ROLE)], tokens(), end), estimated(**told))
    late = sent([(100, ROLE)], tokens(), [(382, chunk({}, "stop"))], tail(880, finish=False))
    yield Case("late_usage", late, OK, "the clock stops at the last token, not at usage or [DONE]")


def _ends() -> Iterator[Case]:
    yield Case("no_done", sent([(100, ROLE)], tokens(), tail(done=False)), OK)
    dropped = sent([(100, ROLE)], tokens(), tail(finish=False, use=None))
    yield Case("finish_dropped", dropped, estimated())
    yield Case("closed_after_done", plain(), OK, "no last HTTP chunk", end="closed")
    yield Case("reset_after_done", plain(), OK, end="reset")
    yield Case("hangs_after_done", plain(), OK, "the connection stays open", end="stalled")
    after = [*plain(), (400, event(chunk({"content": "more"})))]
    yield Case("tokens_after_done", after, OK, "nothing counts behind [DONE]")
    one = sent([(100, ROLE)], tokens(["Yes"]), tail(202, use={"choices": [], "usage": usage(1)}))
    yield Case("one_token", one, {**OK, "output_tokens": 1, "last_ms": 200.0, "tpot_ms": None})


def _merged() -> Iterator[Case]:
    burst = sent([(100, ROLE)], [(200 + 80 * (i // 4), chunk({"content": "x"})) for i in range(16)])
    yield Case(
        "burst",
        [*burst, *sent(tail(442, use={"choices": [], "usage": usage(16)}))],
        {**OK, "output_tokens": 16, "last_ms": 440.0, "tpot_ms": 16.0},
        "four events in one write: they came together, so n_first stays 1",
    )
    five = [(200 + 80 * i, chunk({"content": " abc" * 4})) for i in range(5)]
    truth = {**OK, "output_tokens": 20, "n_first": 4, "last_ms": 520.0}
    end = list(tail(522, use={"choices": [], "usage": usage(20)}))
    yield Case("merged", sent(five, end), truth, "four tokens a chunk: 320 ms for 16 tokens")
    told = [(at, {**value, "usage": usage(4 * i + 4)}) for i, (at, value) in enumerate(five)]
    yield Case("merged_usage_in_each", sent(told, tail(522, use=None)), truth)
    lengths = [2, 4, 4, 4, 6]
    uneven = [
        (200 + 20 * sum(lengths[1 : i + 1]), chunk({"content": " abc" * n}))
        for i, n in enumerate(lengths)
    ]
    last_ms = 200.0 + 20 * sum(lengths[1:])
    yield Case(
        "merged_unevenly",
        sent(uneven, tail(last_ms, use={"choices": [], "usage": usage(20)})),
        {**OK, "output_tokens": 20, "n_first": 2, "last_ms": last_ms},
    )
    long_first = ["Internationalization", *WORDS[1:]]
    yield Case(
        "longest_first",
        sent([(100, ROLE)], tokens(long_first), tail()),
        OK,
        "one token an event: a long first one is still one",
    )


# -- what is not a healthy stream ----------------------------------------------------------------


def _errors() -> Iterator[Case]:
    quota = {"error": {"message": "quota exceeded for this key", "code": 429}}
    said = failure("engine-error", "quota exceeded for this key")
    yield Case("error_first", sent([(100, quota), (100, DONE)]), said)
    some = tokens(WORDS[:5])
    down = {"error": {"message": "Service temporarily unavailable", "code": 503}}
    lost = failure("engine-error", "Service temporarily unavailable")
    yield Case("error_in_the_middle", sent(some, [(290, down), (290, DONE)]), lost, "Dynamo")
    yield Case("error_after_finish", sent(some, [(290, chunk({}, "stop")), (291, down)]), lost)
    yield Case(
        "error_as_string", sent(some, [(290, {"error": "boom"})]), failure("engine-error", "boom")
    )
    old = {"object": "error", "message": "boom", "code": 500}
    yield Case("error_bare", sent(some, [(290, old)]), failure("engine-error", "boom"))
    coded = {"message": "boom", "type": "internal", "code": 500}
    yield Case("error_coded", sent(some, [(290, coded)]), failure("engine-error", "boom"))
    with_choices = {**chunk({"content": ""}), "error": {"message": "boom"}}
    yield Case(
        "error_with_choices", sent(some, [(290, with_choices)]), failure("engine-error", "boom")
    )
    for name, data in (
        ("error_event", b'event: error\ndata: {"message":"boom"}\n\n'),
        ("error_event_text", b"event: error\ndata: boom\n\n"),
        ("error_event_json_string", b'event: error\ndata: "boom"\n\n'),
        ("error_event_comment", b"event: error\n: boom\n\n"),
    ):
        yield Case(name, sent(some, [(290, data)]), failure("engine-error", "boom"))
    for reason in ("error", "abort"):
        end = [(290, chunk({}, reason)), (290, DONE)]
        yield Case(f"finish_{reason}", sent(some, end), failure("engine-error", reason))
    null = [(at, {**value, "error": None}) for at, value in tokens()]
    yield Case("error_null", sent(null, tail()), OK, "an error of null is none")


def _cut_short() -> Iterator[Case]:
    some = sent([(100, ROLE)], tokens(WORDS[:5]))
    after = "after 5 token events"
    yield Case("truncated", some, failure("truncated", after, ttft_ms=200.0))
    yield Case("truncated_closed", some, failure("truncated", after), end="closed")
    half = [*some, (300, event(chunk({"content": "half"}))[:40])]
    yield Case("truncated_in_event", half, failure("truncated", "5 token events"), end="closed")
    yield Case("truncated_before_token", sent([(100, ROLE)]), failure("truncated"))
    yield Case("reset", some, failure("reset"), end="reset")
    yield Case("stalled", some, failure("stalled", ttft_ms=200.0), end="stalled")
    beats = [*some, *[(300.0 + 20 * i, b": still here\n\n") for i in range(30)]]
    yield Case("stalled_with_heartbeats", beats, failure("stalled"), end="stalled")
    nothing = tail(201, use={"choices": [], "usage": usage(0)})
    yield Case("zero_tokens", sent([(100, ROLE)], nothing), failure("empty"))
    yield Case("nothing_but_done", sent([(100, DONE)]), failure("empty"))
    yield Case("empty_body", [], failure("empty"))
    yield Case("only_comments", [(100, b": a\n\n: b\n\n")], failure("not-a-stream"))


def _not_streams() -> Iterator[Case]:
    page = b"<!DOCTYPE html>\n<html><title>Sign in</title><body>data: none\n\n</body></html>"
    html = {"Content-Type": "text/html; charset=utf-8"}
    yield Case("html", [(5, page)], failure("not-a-stream", "text/html"), headers=html)
    yield Case("html_as_stream", [(5, page)], failure("not-a-stream", "Sign in"))
    whole = {"object": "chat.completion", "choices": [{"message": {"content": "Hi"}}]}
    json_type = {"Content-Type": "application/json"}
    body = json.dumps(whole).encode()
    yield Case("json", [(5, body)], failure("not-a-stream", "application/json"), headers=json_type)
    sad = b'{"error":{"message":"model overloaded"}}'
    yield Case(
        "json_error", [(5, sad)], failure("not-a-stream", "model overloaded"), headers=json_type
    )
    for name, kind in (("plain", "text/plain"), ("json", "application/json"), ("octets", "")):
        headers = {"Content-Type": kind} if kind else {}
        yield Case(f"mislabelled_{name}", plain(), OK, "the body is a stream", headers=headers)


def _statuses() -> Iterator[Case]:
    for status, outcome in {
        400: "http-4xx",
        401: "auth",
        403: "auth",
        404: "not-found",
        413: "http-4xx",
        422: "http-4xx",
        429: "rate-limited",
        500: "http-5xx",
        501: "http-5xx",
        502: "unavailable",
        503: "unavailable",
        504: "unavailable",
    }.items():
        body = json.dumps(
            {"error": {"message": f"当前负载已饱和 {status}", "code": status}}
        ).encode()
        expect = failure(outcome, f"HTTP {status}: 当前负载已饱和 {status}")
        headers = {"Content-Type": "application/json"}
        yield Case(f"http_{status}", [(5, body)], expect, status=status, headers=headers)
    page = [(5.0, b"<html>Bad gateway</html>")]
    yield Case("http_502_html", page, failure("unavailable", "Bad gateway"), status=502, headers={})
    streamed = sent(tokens(), tail())
    yield Case("http_500_stream", streamed, failure("http-5xx"), "a status of 500 wins", status=500)
    gone = {"Location": "/elsewhere"}
    yield Case("http_302", [], failure("redirect", "/elsewhere"), status=302, headers=gone)
    echo = b'{"error":{"message":"bad key sk-abcdef0123456789 in Bearer sk-abcdef0123456789"}}'
    yield Case("key_echo", [(5, echo)], failure("auth", "bad key ***"), status=401, headers={})


# -- bytes ---------------------------------------------------------------------------------------


def _characters() -> Iterator[Case]:
    chinese = ["你", "好", "、", "世", "界", "😀", "é", "—", "ok", "。"]
    cut = []
    for at, data in sent(tokens(chinese), tail()):
        middle = max((i for i, byte in enumerate(data) if byte >= 0x80), default=2)
        cut += [(at, data[:middle]), (at, data[middle:])]
    yield Case("utf8_cut", cut, OK, "cuts inside characters and inside 'data'")
    odd = ["a\u2028b", "c\u0085d", "e\u2029f", "\x1f", "\\", '"', "\n", "\r\n", "\t", "\ufeff"]
    yield Case("odd_characters", sent(tokens(odd), tail()), OK, "no line ends but LF, CR, CRLF")
    escaped = [(at, json.dumps(v).encode()) for at, v in tokens(chinese)]
    yield Case("escaped", sent([(at, b"data: " + v + b"\n\n") for at, v in escaped], tail()), OK)
    broken = sent([(100, ROLE)], tokens())
    broken[3] = (broken[3][0], broken[3][1].replace(b" brown", b" br\xffown"))
    yield Case("invalid_utf8", [*broken, *sent(tail())], OK, "is replaced, not lost")
    long_event = chunk({"content": "x"}, padding="y" * 20_000)
    big = [*tokens()[:9], (380, long_event)]
    yield Case("long_event", sent(big, tail()), OK)


def _compressed() -> Iterator[Case]:
    for name, wbits, coding in (("gzip", 31, "gzip"), ("deflate", 15, "deflate")):
        packer = zlib.compressobj(wbits=wbits)
        flushed = [
            (at, packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)) for at, data in plain()
        ]
        flushed.append((382, packer.flush()))
        headers = {"Content-Type": "text/event-stream", "Content-Encoding": coding}
        yield Case(name, flushed, OK, "flushed per event", headers=headers)
    gzip = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
    members = [(at, _gzip(data)) for at, data in plain()]
    yield Case("gzip_members", members, OK, "one gzip member per event", headers=gzip)
    yield Case("gzip_not", plain(), failure("protocol", "compression"), headers=gzip)
    brotli = {**gzip, "Content-Encoding": "br"}
    yield Case("brotli", [(5, b"\x8b\x02\x80")], failure("protocol", "'br'"), headers=brotli)
    refused = [(5, _gzip(b'{"error":{"message":"no"}}'))]
    yield Case("gzip_401", refused, failure("auth", "no"), status=401, headers=gzip)


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


CASES = [
    case
    for group in (
        _line_ends,
        _comments_and_pings,
        _choices,
        _reasoning_and_tools,
        _usage,
        _ends,
        _merged,
        _errors,
        _cut_short,
        _not_streams,
        _statuses,
        _characters,
        _compressed,
    )
    for case in group()
]
