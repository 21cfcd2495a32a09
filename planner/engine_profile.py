"""What an engine can do, with its source: prefill S(L) and its throughput, decode t(batch).

Sources differ in worth. What was measured through the service at the workload's own lengths comes
first, a benchmark of the bare engine next, one of a server under some other load after it, and the
plan's figures last: the best one present wins, part by part, and is named.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.config import Plan
from planner.errors import PlanError

Kind = Literal["prefill-probe", "decode-sweep", "bench_one_batch", "bench_serving", "vllm", "plan"]
WORTH: dict[str, int] = {
    "prefill-probe": 0,
    "decode-sweep": 0,
    "bench_one_batch": 1,
    "bench_serving": 2,
    "vllm": 2,
    "plan": 3,
}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    source: str  # for a reader: which run, which file


class PrefillProfile(_Part):
    """S(L) = setup_ms + ms_per_token * L + ms_per_token2 * L^2 on P, overhead_ms beside it."""

    setup_ms: float | None = Field(default=None, ge=0)
    ms_per_token: float | None = Field(default=None, ge=0)
    ms_per_token2: float | None = Field(default=None, ge=0)
    overhead_ms: float | None = Field(default=None, ge=0)
    chunk_tokens: int | None = Field(default=None, ge=1)
    max_throughput_tokens_per_s: float | None = Field(default=None, gt=0)
    points: list[tuple[float, float]] = Field(default_factory=list)  # tokens, ms without load

    def service_ms(self, tokens: float) -> float:
        """S(L) in ms; nan where there was no low load to fit it from."""
        if self.setup_ms is None or self.ms_per_token is None:
            return float("nan")
        return self.setup_ms + self.ms_per_token * tokens + (self.ms_per_token2 or 0) * tokens**2


class DecodePoint(BaseModel):
    """One step of a sweep: the batch as it was on one instance, and the TPOT there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch: float = Field(gt=0)
    tpot_ms: float = Field(gt=0)  # mean
    tpot_p99_ms: float | None = Field(default=None, gt=0)
    context_tokens: float | None = Field(default=None, gt=0)
    samples: int | None = Field(default=None, ge=1)


class DecodeProfile(_Part):
    """t(batch) of one decode instance."""

    points: list[DecodePoint]

    def curve(self, context_tokens: float | None = None) -> list[tuple[float, float]]:
        """[[batch, tpot_ms], ...] as a plan has it: rising, one point a batch.

        Of several contexts those near the wanted one are taken (without one: near the longest).
        Neighbours that fall, by noise, share their mean (pool adjacent violators), so that the
        curve is the nearest one that does not fall.
        """
        known = [p.context_tokens for p in self.points if p.context_tokens is not None]
        rows = self.points
        if known:
            wanted = context_tokens or max(known)
            nearest = min(known, key=lambda tokens: abs(tokens - wanted))
            rows = [p for p in rows if abs((p.context_tokens or 0.0) - nearest) <= 0.2 * nearest]
        batches = sorted({round(p.batch, 2) for p in rows})
        tpots = [
            float(np.mean([p.tpot_ms for p in rows if round(p.batch, 2) == batch]))
            for batch in batches
        ]
        return [(b, round(t, 4)) for b, t in zip(batches, _rising(tpots), strict=True)]


P = TypeVar("P", bound=_Part)


class EngineProfile(BaseModel):
    """engine.json: either part may be missing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prefill: PrefillProfile | None = None
    decode: DecodeProfile | None = None


def _rising(values: Sequence[float]) -> list[float]:
    pools: list[list[float]] = []
    for value in values:
        pools.append([value])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [[*pools[-2], *pools[-1]]]
    return [float(np.mean(pool)) for pool in pools for _ in pool]


# -- which source wins -----------------------------------------------------------------------------


def best(profiles: Sequence[EngineProfile]) -> tuple[EngineProfile, list[str]]:
    """The best source of each part, and a sentence for each that says who won over whom."""
    prefill, said_p = _winner("prefill", [p.prefill for p in profiles if p.prefill])
    decode, said_d = _winner("decode", [p.decode for p in profiles if p.decode])
    return EngineProfile(prefill=prefill, decode=decode), [*said_p, *said_d]


def _winner(name: str, parts: list[P]) -> tuple[P | None, list[str]]:
    if not parts:
        return None, []
    ranked = sorted(parts, key=lambda part: WORTH[part.kind])  # stable: of equals the first
    losers = f" (over {'; '.join(p.source for p in ranked[1:])})" if ranked[1:] else ""
    return ranked[0], [f"{name}: from {ranked[0].source}{losers}"]


def of_plan(plan: Plan) -> EngineProfile:
    """The figures that a plan itself holds."""
    prefill = decode = None
    if plan.prefill.max_prefill_throughput_tokens_per_s is not None:
        prefill = PrefillProfile(
            kind="plan",
            source="the plan",
            overhead_ms=plan.overhead_ms,
            chunk_tokens=plan.chunk_tokens,
            max_throughput_tokens_per_s=plan.prefill.max_prefill_throughput_tokens_per_s,
        )
    if plan.decode.curve is not None:
        points = [DecodePoint(batch=b, tpot_ms=t) for b, t in plan.decode.curve]
        decode = DecodeProfile(kind="plan", source="the plan", points=points)
    return EngineProfile(prefill=prefill, decode=decode)


def into_plan(plan: Plan, profiles: Sequence[EngineProfile]) -> tuple[Plan, list[str]]:
    """The plan with the best figures filled in under its own keys, and where they came from."""
    found, said = best([*profiles, of_plan(plan)])
    update: dict[str, object] = {}
    if found.prefill is not None and found.prefill.kind != "plan":
        update |= _prefill_keys(plan, found.prefill)
    if found.decode is not None and found.decode.kind != "plan":
        w = plan.workload
        context = w.avg_input_tokens + w.avg_output_tokens / 2 if w is not None else None
        curve = found.decode.curve(context)
        if len(curve) < 2:
            said.append(f"decode: {found.decode.source} has one batch only, a curve needs two")
        else:
            # What was filled in for another curve must not stand beside this one.
            keep = plan.decode.model_dump(
                exclude_unset=True,
                exclude={"curve", "max_batch_size_at_slo", "throughput_at_slo_tokens_per_s"},
            )
            update["decode"] = type(plan.decode)(**keep, curve=curve)
    return plan.model_copy(update=update), said


def _prefill_keys(plan: Plan, prefill: PrefillProfile) -> dict[str, object]:
    keys: dict[str, object] = {
        "overhead_ms": prefill.overhead_ms,
        "iteration_overhead_ms": prefill.setup_ms,
        "chunk_tokens": prefill.chunk_tokens,
    }
    if prefill.max_throughput_tokens_per_s is not None:
        keys["prefill"] = plan.prefill.model_copy(
            update={"max_prefill_throughput_tokens_per_s": prefill.max_throughput_tokens_per_s}
        )
    return {key: value for key, value in keys.items() if value is not None}


# -- files -----------------------------------------------------------------------------------------


def dump_profile(profile: EngineProfile) -> str:
    """engine.json's text."""
    return json.dumps(profile.model_dump(mode="json", exclude_none=True), indent=2) + "\n"


def read_profile(path: str | Path, content: object) -> EngineProfile:
    """engine.json from its parsed content. Raises PlanError: file, key, what was found."""
    try:
        return EngineProfile.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        found = json.dumps(first["input"], default=str)[:80]
        raise PlanError(f"{path}: {key}: {first['msg']}, found {found}.") from None
