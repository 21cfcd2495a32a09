"""Benchmark files of others as an engine profile: SGLang and vLLM. Told apart by what they hold.

SGLang ``bench_one_batch --result-filename`` and ``bench_serving --output-file`` append one JSON
object a line; vLLM ``bench serve --save-result`` writes one object, ``bench sweep`` a list of them.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.engine_profile import (
    DecodePoint,
    DecodeProfile,
    EngineProfile,
    Kind,
    PrefillProfile,
    read_profile,
)
from planner.engine_profile_fits import fit_prefill
from planner.errors import PlanError

Row = dict[str, Any]
DEFAULT_CHUNK = 8192  # SGLang's and vLLM's on large GPUs


def load_profile(
    path: str | Path, prefill_instances: int = 1, decode_instances: int = 1
) -> EngineProfile:
    """engine.json or a benchmark's file. Raises PlanError: one sentence.

    A serving benchmark saw the whole cluster: its throughput and its batch are shared out over so
    many instances.
    """
    rows = _rows(path)
    if any(key in rows[0] for key in ("prefill", "decode")) and len(rows) == 1:
        return read_profile(path, rows[0])
    kinds = {_kind(path, number, row) for number, row in enumerate(rows, start=1)}
    if len(kinds) > 1:
        raise PlanError(f"{path}: found lines of {' and '.join(sorted(kinds))}, allowed is one.")
    kind = kinds.pop()
    if kind == "bench_one_batch":
        profile = _one_batch(path, rows)
    else:
        profile = _serving(path, rows, kind, (prefill_instances, decode_instances))
    if profile.prefill is None and profile.decode is None:
        raise PlanError(
            f"{path}: {kind} without prefill at concurrency 1 or output length 1, and without TPOT: "
            "nothing to take from it."
        )
    return profile


def _rows(path: str | Path) -> list[Row]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise PlanError(f"{path}: is not text, expected JSON or JSON lines.") from None
    try:
        whole = json.loads(text)
        rows = whole if isinstance(whole, list) else [whole]
    except json.JSONDecodeError:
        rows = [_line(path, k, line) for k, line in _lines(text)]
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise PlanError(f"{path}: holds no JSON object, expected the result of a benchmark.")
    return rows


def _lines(text: str) -> list[tuple[int, str]]:
    return [(k, line) for k, line in enumerate(text.splitlines(), start=1) if line.strip()]


def _line(path: str | Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise PlanError(f"{path}, line {number}: is not JSON: {error.msg}.") from None


def _kind(path: str | Path, number: int, row: Row) -> Kind:
    if "prefill_latency" in row and "batch_size" in row:
        return "bench_one_batch"
    if "total_output_tokens" in row and "duration" in row:
        # SGLang counts the answer's tokens again, and names the load by its data set.
        sglang = any(k in row for k in ("total_output_tokens_retokenized", "sharegpt_output_len"))
        return "bench_serving" if sglang else "vllm"
    raise PlanError(
        f"{path}, object {number}: found the keys {', '.join(list(row)[:6])}, allowed are results of "
        "SGLang bench_one_batch (prefill_latency), bench_serving or vLLM bench serve "
        "(total_output_tokens, duration), or an engine.json (prefill, decode)."
    )


def _number(path: str | Path, row: Row, key: str) -> float:
    value = row.get(key)
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not math.isfinite(float(value or 0)) or float(value or 0) <= 0:
        shown = "nothing" if key not in row else json.dumps(value, default=str)[:40]
        raise PlanError(f"{path}: {key}: found {shown}, allowed is a number more than 0.")
    return float(value or 0)


# -- a static batch --------------------------------------------------------------------------------


def _one_batch(path: str | Path, rows: Sequence[Row]) -> EngineProfile:
    """Seconds; prefill of the whole batch at once, the median decode step after it."""
    source = f"SGLang bench_one_batch, {path}"
    points = []
    for row in rows:
        if row.get("median_decode_latency") is None:
            continue  # output length 1
        context = _number(path, row, "input_len") + float(row.get("output_len") or 0) / 2
        points.append(
            DecodePoint(
                batch=_number(path, row, "batch_size"),
                tpot_ms=1000 * _number(path, row, "median_decode_latency"),
                context_tokens=context,
            )
        )
    alone = [row for row in rows if row["batch_size"] == 1]
    fastest = max(
        _number(path, r, "batch_size")
        * _number(path, r, "input_len")
        / _number(path, r, "prefill_latency")
        for r in rows
    )
    lengths = np.array([_number(path, r, "input_len") for r in alone])
    times = np.array([_number(path, r, "prefill_latency") for r in alone])
    return EngineProfile(
        prefill=_prefill("bench_one_batch", source, lengths, times, fastest),
        decode=DecodeProfile(kind="bench_one_batch", source=source, points=points)
        if points
        else None,
    )


def _prefill(kind: Kind, source: str, lengths: Any, times: Any, tps: float | None) -> Any:
    """With S(L) where there are two lengths or more, else the throughput alone.

    The bare engine has no network or transfer in it: the whole intercept is its own.
    """
    if len(set(lengths.tolist())) < 2:
        if tps is None:
            return None
        return PrefillProfile(kind=kind, source=source, max_throughput_tokens_per_s=round(tps, 2))
    found = fit_prefill(lengths, times, tps, DEFAULT_CHUNK)
    update: dict[str, Any] = {"kind": kind, "source": source, "chunk_tokens": None}
    if kind == "bench_one_batch":
        whole = (found.setup_ms or 0.0) + (found.overhead_ms or 0.0)
        update |= {"setup_ms": whole, "overhead_ms": None}
    return found.model_copy(update=update)


# -- a server under load ---------------------------------------------------------------------------


def _serving(
    path: str | Path, rows: Sequence[Row], kind: Kind, instances: tuple[int, int]
) -> EngineProfile:
    name = "SGLang bench_serving" if kind == "bench_serving" else "vLLM bench serve"
    source = f"{name}, {path}"
    points, lengths, times, best_tps = [], [], [], 0.0
    for row in rows:
        served, taken_s = _number(path, row, "completed"), _number(path, row, "duration")
        inputs = _number(path, row, "total_input_tokens")
        outputs = _number(path, row, "total_output_tokens")
        if outputs <= 2 * served:  # output length 1: P alone
            best_tps = max(best_tps, inputs / taken_s / instances[0])
        else:
            points.append(_serving_point(path, row, instances[1]))
        if row.get("max_concurrency") == 1:
            lengths.append(inputs / served)
            times.append(_number(path, row, "median_ttft_ms") / 1000)
    prefill = _prefill(kind, source, np.array(lengths), np.array(times), best_tps or None)
    decode = DecodeProfile(kind=kind, source=source, points=points) if points else None
    return EngineProfile(prefill=prefill, decode=decode)


def _serving_point(path: str | Path, row: Row, decode_instances: int) -> DecodePoint:
    """Little: the mean batch is the rate of tokens after the first, times the time of one."""
    served, taken_s = _number(path, row, "completed"), _number(path, row, "duration")
    outputs = _number(path, row, "total_output_tokens")
    mean_ms = _number(path, row, "mean_tpot_ms")
    running = (outputs - served) / taken_s * mean_ms / 1000
    mean_context = (_number(path, row, "total_input_tokens") + outputs / 2) / served
    return DecodePoint(
        batch=round(max(running / decode_instances, 1e-6), 3),
        tpot_ms=mean_ms,
        tpot_p99_ms=_number(path, row, "p99_tpot_ms") if "p99_tpot_ms" in row else None,
        context_tokens=mean_context,
        samples=int(served),
    )
