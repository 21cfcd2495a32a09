"""Records in columns: how a worker's rows travel to the master, and how the master keeps them.

A batch is one blob: the columns below, one after the other, little endian, deflated. Moments are
whole nanoseconds from the start of the run, stored as differences to the moment before, so that
nothing is rounded over a run of any length and the high bytes vanish in the deflate (about 45
bytes a request on the wire). Names (class, outcome, ...) travel once per batch.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pd_users.records import RequestRecord

MOMENTS = ("due_s", "sent_s", "first_token_s", "second_token_s", "last_token_s", "done_s")
COUNTS = (
    "planned_input_tokens",
    "planned_output_tokens",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "n_first",
)
NAMES = ("class_name", "token_source", "clock", "outcome")
NEVER = np.iinfo(np.int64).min  # nan, as nanoseconds

Columns = dict[str, NDArray[Any]]


def pack(records: Sequence[RequestRecord]) -> bytes:
    """Rows of one worker as one blob."""
    n = len(records)
    types = {"index": "<i8", **dict.fromkeys(MOMENTS, "<f8"), **dict.fromkeys(COUNTS, "<i4")}
    columns: Columns = {
        name: np.fromiter((getattr(r, name) for r in records), dtype, n)
        for name, dtype in types.items()
    }
    columns |= {name: np.array([getattr(r, name) for r in records], object) for name in NAMES}
    columns["worker"] = np.full(n, records[0].worker if n else -1, "<i4")
    return pack_columns(columns)


def pack_columns(columns: Columns) -> bytes:
    """Columns of one worker as one blob."""
    n = len(columns["index"])
    parts = [columns["index"].astype("<i8").tobytes()]
    before = np.zeros(n, "<i8")
    for name in MOMENTS:
        moments = columns[name]
        never = np.isnan(moments)
        ns = np.where(never, 0, np.rint(np.where(never, 0.0, moments) * 1e9)).astype("<i8")
        parts.append(np.where(never, NEVER, ns - before).tobytes())
        before = np.where(never, before, ns)
    parts += [columns[name].astype("<i4").tobytes() for name in COUNTS]
    names: dict[str, list[str]] = {}
    for name in NAMES:
        values = columns[name].tolist()
        names[name] = sorted(set(values))
        code = {value: k for k, value in enumerate(names[name])}
        parts.append(np.fromiter((code[v] for v in values), "<u2", n).tobytes())
    worker = int(columns["worker"][0]) if n else -1
    head = orjson.dumps({"n": n, "worker": worker, "names": names})
    return len(head).to_bytes(4, "little") + head + zlib.compress(b"".join(parts), 1)


def unpack(blob: bytes) -> Columns:
    """The columns of a batch; moments as seconds, names as arrays of str."""
    size = int.from_bytes(blob[:4], "little")
    head = orjson.loads(blob[4 : 4 + size])
    n, data, at = head["n"], zlib.decompress(blob[4 + size :]), 0

    def take(dtype: str) -> NDArray[np.generic]:
        nonlocal at
        column = np.frombuffer(data, dtype, n, at)
        at += column.nbytes
        return column

    columns: Columns = {"index": take("<i8"), "worker": np.full(n, head["worker"], "<i4")}
    before = np.zeros(n, "<i8")
    for name in MOMENTS:
        delta = take("<i8")
        never = delta == NEVER
        ns = np.where(never, 0, delta) + before
        columns[name] = np.where(never, np.nan, ns / 1e9)
        before = np.where(never, before, ns)
    for name in COUNTS:
        columns[name] = take("<i4")
    for name in NAMES:
        columns[name] = np.array(head["names"][name] or [""], dtype=object)[take("<u2")]
    return columns


def concatenate(batches: Sequence[Columns]) -> Columns:
    """All batches as one, in the order given; with none, empty columns."""
    if not batches:
        return unpack(pack([]))
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
