"""Traces as JSON lines: Mooncake and its relatives, Qwen-Bailian, and inputs of benchmark tools."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from workloads.trace_rows import Row, Rows, WrongRowError, number, tokens

LATIN, OTHER = 3.9, 1.7  # characters per token, measured: English text; Chinese text
SIZES = (512, 16, 64, 32, 128, 256, 1024)  # tokens of a block, the usual ones first


@dataclass(frozen=True)
class Lines:
    """One JSONL format. ``unit_s`` and ``block_tokens`` 0: told by the file itself."""

    about: str
    row: Callable[[dict[str, Any], "Head"], Row]
    marks: tuple[tuple[str, ...], ...]  # one of these sets of keys is in its rows
    unit_s: float = 0.001
    block_tokens: int = 0


@dataclass(frozen=True)
class Head:
    """What the first rows of a file say about all of it."""

    timed: bool  # rows have moments: then every one must, unless it is a later turn
    block_tokens: int
    unit_s: float


def estimated_tokens(text: str) -> int:
    """Tokens of a text, from its characters: within 10 % for prose, 30 % for code."""
    wide = (len(text.encode(errors="replace")) - len(text)) / 2  # of three bytes each, mostly
    return max(round((len(text) - wide) / LATIN + wide / OTHER), 1)


# -- rows -------------------------------------------------------------------------------------------


def _mooncake(row: dict[str, Any], head: Head) -> Row:
    """Mooncake, vLLM's timed_trace, AIPerf's mooncake_trace."""
    session = row.get("session_id")
    moment, think_s = _when(row, head, session)
    inputs = tokens(row.get("input_length"), "input_length") if "text_input" not in row else None
    if inputs is None:
        inputs = _written(row, "text_input")
    return Row(
        0,
        moment,
        inputs,
        tokens(row.get("output_length"), "output_length"),
        _blocks(row, inputs, head.block_tokens),
        session,
        think_s,
    )


def _bailian(row: dict[str, Any], head: Head) -> Row:
    """Qwen-Bailian; ``session`` is (chat, parent) and settled by the caller."""
    inputs = tokens(row.get("input_length"), "input_length")
    return Row(
        0,
        number(row.get("timestamp"), "timestamp"),
        inputs,
        tokens(row.get("output_length"), "output_length"),
        _blocks(row, inputs, head.block_tokens),
        (row.get("chat_id"), row.get("parent_chat_id", -1)),
    )


def _single_turn(row: dict[str, Any], head: Head) -> Row:
    """AIPerf's single_turn: texts whose length must be estimated."""
    session = row.get("session_id")
    moment, think_s = _when(row, head, session)
    name = "texts" if "texts" in row else "text"
    return Row(
        0,
        moment,
        _written(row, name),
        tokens(row.get("output_length"), "output_length"),
        session=session,
        think_s=think_s,
    )


def _custom(row: dict[str, Any], head: Head) -> Row:
    """vLLM's custom data set: prompts without moments."""
    del head
    return Row(
        0, math.nan, _written(row, "prompt"), tokens(row.get("output_tokens"), "output_tokens")
    )


def _llmservingsim(row: dict[str, Any], head: Head) -> Row:
    moment = number(row.get("arrival_time_ns"), "arrival_time_ns") if head.timed else math.nan
    return Row(
        0,
        moment,
        tokens(row.get("input_toks"), "input_toks"),
        tokens(row.get("output_toks"), "output_toks"),
    )


LINES = {
    "bailian": Lines(
        "Qwen-Bailian",
        *(_bailian, (("chat_id", "input_length"),)),
        unit_s=1.0,
        block_tokens=16,
    ),
    "mooncake": Lines(
        "Mooncake",
        *(_mooncake, (("timestamp", "input_length", "hash_ids"),)),
        block_tokens=512,
    ),
    "timed_trace": Lines("vLLM timed_trace", _mooncake, (), unit_s=1, block_tokens=16),
    "aiperf": Lines(
        "AIPerf mooncake_trace",
        *(_mooncake, (("input_length",), ("text_input", "output_length"))),
        block_tokens=512,
    ),
    "single_turn": Lines("AIPerf single_turn", _single_turn, (("text",), ("texts",))),
    "custom": Lines("vLLM custom", _custom, (("prompt",),)),
    "llmservingsim": Lines("LLMServingSim", _llmservingsim, (("input_toks",),), unit_s=1e-9),
}
TOLD_BY_FILE = ("mooncake", "aiperf")  # relatives differ in unit and block size


def _when(row: dict[str, Any], head: Head, session: Any) -> tuple[float, float]:
    """Moment and pause; a later turn has only a pause, in milliseconds."""
    delay = row.get("delay")
    if delay is not None and session is not None and row.get("timestamp") is None:
        return math.nan, number(delay, "delay") / 1000
    if not head.timed:
        return math.nan, math.nan
    return number(row.get("timestamp"), "timestamp"), math.nan


def _written(row: dict[str, Any], name: str) -> int:
    text = row.get(name)
    parts: list[Any] = text if isinstance(text, list) else [text]
    texts = [part for part in parts if isinstance(part, str) and part]
    if not texts or len(texts) < len(parts):
        raise WrongRowError(f"no {name}", text, "a text that is not empty")
    return sum(map(estimated_tokens, texts))


def _blocks(row: dict[str, Any], inputs: int, size: int) -> Sequence[int]:
    ids = row.get("hash_ids")
    if ids is None:
        return ()
    if not isinstance(ids, list) or not all(type(k) is int for k in ids):
        raise WrongRowError("hash_ids are not whole numbers", ids, "a list of whole numbers")
    if ids and len(ids) not in (-(-inputs // size), inputs // size):
        raise WrongRowError(
            "hash_ids do not fit input_length",
            f"{len(ids)} for {inputs} tokens",
            f"{-(-inputs // size)}, one for {size} tokens",
        )
    return ids


# -- files ------------------------------------------------------------------------------------------


def lines_of(first: list[dict[str, Any]]) -> str | None:
    """The format of these rows."""
    keys = {key for row in first for key in row}
    return next(
        (name for name, f in LINES.items() for marks in f.marks if keys.issuperset(marks)), None
    )


def head_of(name: str, first: list[dict[str, Any]], forced: bool) -> Head:
    """What the first rows tell: of relatives of Mooncake also the unit and the size of blocks."""
    told = LINES[name]
    key = "arrival_time_ns" if name == "llmservingsim" else "timestamp"
    moments = [row[key] for row in first if row.get(key) is not None]
    unit_s, size = told.unit_s, told.block_tokens
    if name in TOLD_BY_FILE and not forced:
        unit_s = 1.0 if _in_seconds(moments) else unit_s
        size = next((s for s in SIZES if all(_fits(row, s) for row in first)), size)
    return Head(bool(moments), size, unit_s)


def _in_seconds(moments: list[Any]) -> bool:
    """Decimals, or seconds since 1970; Mooncake's milliseconds are whole numbers."""
    numbers = [m for m in moments if type(m) in (int, float)]
    return any(type(m) is float for m in numbers) or (
        bool(numbers) and min(numbers) > 1e9 and max(numbers) < 1e11
    )


def _fits(row: dict[str, Any], size: int) -> bool:
    ids, inputs = row.get("hash_ids"), row.get("input_length")
    if not isinstance(ids, list) or type(inputs) is not int or not ids:
        return True
    return len(ids) in (-(-inputs // size), inputs // size)


def read_lines(lines: Iterator[str], name: str, head: Head) -> Rows:
    """Rows of a JSONL file."""
    make = LINES[name].row
    talks: dict[Any, Any] = {}
    for line, text in enumerate(lines, 1):
        if text.isspace():
            continue
        try:
            found = make(_object(text), head)
        except WrongRowError as wrong:
            yield wrong.row(line)
            continue
        if name == "bailian":
            found = found._replace(session=_root(talks, *found.session))  # type: ignore[misc]
        yield found._replace(line=line)


def _root(talks: dict[Any, Any], chat: Any, parent: Any) -> Any:
    """The chat that a tree began with; a parent from before the file counts as one."""
    root = talks.get(parent, parent) if parent not in (-1, None) else chat
    if chat is not None:
        talks[chat] = root
    return root


def _object(text: str) -> dict[str, Any]:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise WrongRowError("not JSON", text.strip(), "one JSON object a line") from None
    if not isinstance(row, dict):
        raise WrongRowError("not a JSON object", row, "one JSON object a line")
    return row
