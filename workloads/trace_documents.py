"""Traces as whole JSON documents: ShareGPT (one long list) and WEKA (a conversation a file)."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from workloads.trace_json import estimated_tokens
from workloads.trace_rows import BadRow, Row, Rows, WrongRowError, number, tokens

ASKS, ANSWERS = ("human", "user"), ("gpt", "assistant", "chatgpt", "bing", "bard")
_SPACE = " \t\r\n,"


def read_sharegpt(text: str) -> Rows:
    """Turns of all conversations, each with its history; lengths are estimated from characters.

    ``line`` is the number of the conversation. Where the file is cut off, the last row is bad.
    """
    decode = json.JSONDecoder().raw_decode
    at, n = text.find("[") + 1, 0
    while True:
        while at < len(text) and text[at] in _SPACE:
            at += 1
        if at < len(text) and text[at] == "]":
            return
        n += 1
        try:
            talk, at = decode(text, at)
        except json.JSONDecodeError:
            yield BadRow(
                n,
                "the file is cut off or broken here",
                f"{n - 1} whole conversations",
                "a JSON list that ends with ]",
            )
            return
        yield from _turns(n, talk)


def _turns(n: int, talk: Any) -> Rows:
    history = turns = 0
    said = talk.get("conversations") if isinstance(talk, dict) else None
    if not isinstance(said, list):
        yield WrongRowError("no conversations", talk, '{"conversations": [...]}').row(n)
        return
    asked = 0
    for message in said:
        who, text = message.get("from"), message.get("value")
        if not isinstance(text, str) or not text:
            continue
        count = estimated_tokens(text)
        if who in ANSWERS and asked:
            yield Row(n, math.nan, history + asked, count, session=n)
            history, asked, turns = history + asked + count, 0, turns + 1
        elif who in ASKS or who == "system":
            asked += count
    if not turns:
        yield BadRow(n, "no question with an answer", f"{len(said)} messages", "", known=True)


def read_weka(files: list[Path]) -> Rows:
    """Requests of all conversations; ids of blocks hold within one conversation only.

    ``line`` is the number of the file. Requests of a sub-agent are turns of their conversation.
    """
    for n, file in enumerate(files, 1):
        try:
            talk = orjson.loads(file.read_bytes())
            requests = list(_flat(talk["requests"]))
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            yield WrongRowError(
                f"{file.name} is not a conversation", "", "an object with requests"
            ).row(n)
            continue
        local = talk.get("hash_id_scope", "local") == "local"
        for request in requests:
            try:
                yield _request(n, request, n if local else 0)
            except WrongRowError as wrong:
                yield wrong.row(n)


def _flat(requests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for request in requests:
        if request.get("type") == "subagent":
            yield from _flat(request.get("requests", []))
        else:
            yield request


def _request(n: int, request: dict[str, Any], scope: int) -> Row:
    inputs = tokens(request.get("in"), "in")
    think = request.get("think_time")
    if request.get("out") == 0:
        raise WrongRowError("0 out (a failed request)", 0, "1 or more", known=True)
    return Row(
        n,
        math.nan,
        inputs,
        tokens(request.get("out"), "out"),
        [scope << 40 | k for k in request.get("hash_ids") or ()],
        session=n,
        think_s=number(think, "think_time") if think is not None else 0.0,
    )


def weka_block_tokens(file: Path) -> int:
    """Tokens of a block; 64 where the file does not tell."""
    try:
        return int(orjson.loads(file.read_bytes()).get("block_size", 64))
    except (orjson.JSONDecodeError, AttributeError, ValueError, TypeError):
        return 64


__all__ = ["read_sharegpt", "read_weka", "weka_block_tokens"]
