"""Opening a trace: which format it has, and its rows as they come out of the file."""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO, cast

import orjson

from workloads.errors import ConfigError
from workloads.servegen import is_servegen, read_servegen
from workloads.trace_csv import TABLES, read_csv, table_of
from workloads.trace_documents import read_sharegpt, read_weka, weka_block_tokens
from workloads.trace_json import LINES, head_of, lines_of, read_lines
from workloads.trace_rows import Rows, WrongRowError

FORMATS = (*TABLES, *LINES, "sharegpt", "weka", "servegen")
SNIFFED = 100  # rows that are looked at first


@dataclass(frozen=True)
class Opened:
    """A trace whose format is known. ``unit_s`` is that of the moments in ``rows``."""

    path: Path
    format: str
    about: str
    rows: Rows
    unit_s: float = 1.0
    block_tokens: int = 0
    row_is: str = "line"
    estimated: bool = False  # lengths, from texts
    clock: bool = False  # moments are a wall clock's
    whole_seconds: bool = False  # its clock has no finer moments


def open_trace(path: Path, format: str | None, limit: int | None) -> Opened:
    """The trace at ``path``. Raises ConfigError: cannot be read, unknown format."""
    if format is not None and format not in FORMATS:
        near = get_close_matches(format, FORMATS, 1)
        hint = f"; did you mean {near[0]!r}" if near else ""
        raise ConfigError(
            f"trace format: found {format!r}, allowed are {', '.join(FORMATS)}{hint}."
        )
    try:
        if path.is_dir():
            return _folder(path, limit)
        lines = _lines(path)
        first = list(islice(lines, SNIFFED))
    except OSError as error:
        raise ConfigError(f"--trace: {path} cannot be read: {error.strerror or error}.") from None
    return _file(path, format, first, chain(first, lines))


def _folder(path: Path, limit: int | None) -> Opened:
    if is_servegen(path):
        about = "ServeGen, requests drawn from rates and lengths of its clients"
        return Opened(path, "servegen", about, read_servegen(path, limit))
    files = sorted(path.glob("*.json"))
    if not files:
        raise ConfigError(
            f"{path}: is a folder without chunk-<i>-trace.csv (ServeGen) or *.json (WEKA)."
        )
    return _weka(path, files)


def _weka(path: Path, files: list[Path]) -> Opened:
    size = weka_block_tokens(files[0])
    about = "WEKA, agent sessions"
    return Opened(path, "weka", about, read_weka(files), block_tokens=size, row_is="file")


def _file(path: Path, asked: str | None, first: list[str], lines: Iterator[str]) -> Opened:
    begin = next((text for text in first if not text.isspace()), "")
    if not begin:
        raise ConfigError(f"{path}: holds no requests.")
    if asked == "sharegpt" or (asked is None and begin.lstrip().startswith("[")):
        about = "conversations"
        rows = read_sharegpt("".join(lines))
        return Opened(path, "sharegpt", about, rows, row_is="conversation", estimated=True)
    objects = [row for text in first if (row := _object(text)) is not None]
    if asked == "weka" or (asked is None and _is_weka(begin, objects)):
        return _weka(path, [path])
    if asked in TABLES or (asked is None and not objects):
        return _csv(path, asked, begin, lines)
    return _jsonl(path, asked, objects, lines)


def _is_weka(begin: str, objects: list[dict[str, Any]]) -> bool:
    return (begin.lstrip().startswith("{") and not objects) or any(
        "requests" in row for row in objects
    )


def _csv(path: Path, asked: str | None, begin: str, lines: Iterator[str]) -> Opened:
    header = next(csv.reader([begin]), [])
    name = asked or table_of(header)
    if name is None:
        raise _unknown(path, f"the columns {', '.join(header)[:120]!r}")
    table = TABLES[name]
    rows = read_csv(lines, table)
    try:
        ahead = next(rows, None)
    except WrongRowError as wrong:
        raise ConfigError(
            f"{path}, line 1: {wrong.reason}, found {wrong.found}, expected {wrong.allowed}."
        ) from None
    return Opened(
        path,
        name,
        table.about,
        chain(() if ahead is None else (ahead,), rows),
        table.unit_s,
        clock=name == "azure",
        whole_seconds=name == "burstgpt",
    )


def _jsonl(
    path: Path, asked: str | None, objects: list[dict[str, Any]], lines: Iterator[str]
) -> Opened:
    name = asked or lines_of(objects)
    if name is None:
        keys = sorted({key for row in objects for key in row})
        raise _unknown(path, f"the keys {', '.join(keys)[:120]!r}")
    head = head_of(name, objects, asked is not None)
    texts = ("text", "texts", "prompt", "text_input")
    return Opened(
        path,
        name,
        LINES[name].about,
        read_lines(lines, name, head),
        head.unit_s,
        head.block_tokens,
        estimated=any(key in row for row in objects for key in texts),
    )


def _unknown(path: Path, found: str) -> ConfigError:
    return ConfigError(
        f"{path}: no known format has {found}; allowed are {', '.join(FORMATS)} "
        "(format= says which it is)."
    )


def _object(text: str) -> dict[str, Any] | None:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return row if isinstance(row, dict) else None


def _lines(path: Path) -> Iterator[str]:
    """Lines of a text file, ``.gz`` or not. Raises OSError at once, ConfigError when it breaks off."""
    opener = cast(Callable[..., TextIO], gzip.open if path.suffix == ".gz" else open)
    n = 0
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
            for line in lines:
                n += 1
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ConfigError(f"{path}: the compressed file is broken after line {n}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}, line {n + 1}: is not text in UTF-8.") from None
