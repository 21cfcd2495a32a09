"""The plan: the JSON template of the method, key for key, and further optional keys. Read and written here."""

import json
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from planner.errors import PlanError

Routing = Literal["random", "round-robin", "least-load"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class SloSection(_Section):
    """What must hold, at which rate."""

    ttft_p99_ms: float = Field(gt=1)
    tpot_p99_ms: float = Field(gt=0.5)
    target_qps: float | None = Field(default=None, gt=0)


class WorkloadSection(_Section):
    """Mean traffic, and how it spreads: ``input_cv`` of prompt lengths, ``arrival_cv`` of gaps."""

    avg_input_tokens: float = Field(ge=1)
    avg_output_tokens: float = Field(ge=1)
    prefix_cache_hit_rate: float = Field(default=0.0, ge=0, lt=1)
    input_cv: float = Field(default=0.0, ge=0, le=5)
    arrival_cv: float = Field(default=1.0, ge=0.05, le=20)


class _Instance(_Section):
    instance_type: str | None = None
    required_instances: int | None = Field(default=None, ge=1)
    tp_size: int = Field(default=1, ge=1)
    pp_size: int = Field(default=1, ge=1)
    dp_size: int = Field(default=1, ge=1)
    gpus_per_instance: int | None = Field(default=None, ge=1)

    @property
    def gpus(self) -> int:
        """GPUs of one instance; the ranks of attention DP share those of tensor parallelism."""
        return self.gpus_per_instance or max(self.tp_size, self.dp_size) * self.pp_size


class PrefillSection(_Instance):
    """One prefill instance."""

    max_prefill_throughput_tokens_per_s: float | None = Field(default=None, gt=0)
    effective_input_tokens: int | None = Field(default=None, ge=1)


class DecodeSection(_Instance):
    """One decode instance; the curve is [[batch, tpot_ms], ...]."""

    max_batch_size_at_slo: int | None = Field(default=None, ge=1)
    throughput_at_slo_tokens_per_s: float | None = Field(default=None, gt=0)
    curve: list[tuple[float, float]] | None = None

    @field_validator("curve")
    @classmethod
    def _rising(cls, curve: list[tuple[float, float]] | None) -> list[tuple[float, float]] | None:
        if curve is None:
            return None
        if len(curve) < 2:
            raise ValueError(
                "needs two points [batch, tpot_ms] or more: one says nothing of other batches"
            )
        if curve[0][0] < 1 or curve[0][1] <= 0:
            raise ValueError("batches start at 1 and tpot_ms is more than 0, in [batch, tpot_ms]")
        for (b0, t0), (b1, t1) in pairwise(curve):
            if b1 <= b0 or t1 < t0:
                raise ValueError(
                    f"the curve must rise, found [{b0:g}, {t0:g}] before [{b1:g}, {t1:g}] (noise in the "
                    "measurement, or not [batch, tpot_ms]?)"
                )
        if curve[-1][1] < 0.5:
            raise ValueError(
                f"{curve[-1][1]:g} ms a token at batch {curve[-1][0]:g} is too fast (seconds? "
                f"{1000 * curve[-1][1]:g} would be that in ms)"
            )
        return curve

    @model_validator(mode="after")
    def _cap_on_the_curve(self) -> "DecodeSection":
        cap = self.max_batch_size_at_slo
        if self.curve and cap is not None and cap > self.curve[-1][0]:
            raise ValueError(
                f"max_batch_size_at_slo: {cap} is above the curve, which ends at batch {self.curve[-1][0]:g}; "
                "measure the curve up to it, or lower it"
            )
        return self


class RatioSection(_Section):
    """``3:4``."""

    prefill_to_decode: str = Field(pattern=r"^\d+:\d+$")


class DeploymentSection(_Section):
    """What runs now."""

    prefill_instances: int = Field(ge=1)
    decode_instances: int = Field(ge=1)
    max_running_requests: int | None = Field(default=None, ge=1)


class RoutingSection(_Section):
    """Who gets which request."""

    prefill: Routing | None = None
    decode: Routing | None = None


class Plan(_Section):
    """The whole file; everything but ``slo`` may be missing."""

    slo: SloSection
    workload: WorkloadSection | None = None
    prefill: PrefillSection = PrefillSection()
    decode: DecodeSection = DecodeSection()
    ratio: RatioSection | None = None
    deployment: DeploymentSection | None = None
    overhead_ms: float = Field(default=0.0, ge=0)
    headroom: float | None = Field(default=None, ge=0, le=2)
    routing: RoutingSection = RoutingSection()
    engine: str | None = None
    chunk_tokens: int | None = Field(default=None, ge=1)
    iteration_overhead_ms: float = Field(default=0.0, ge=0)
    model_path: str | None = None
    history: list[dict[str, Any]] = Field(default_factory=list)

    @field_validator("overhead_ms", "iteration_overhead_ms")
    @classmethod
    def _milliseconds(cls, ms: float) -> float:
        if 0 < ms <= 0.1:
            raise ValueError(
                "too little for a network or an iteration, allowed are 0 and above 0.1"
            )
        return ms


def load_plan(path: str | Path) -> Plan:
    """The plan in a JSON file. Raises PlanError: file, key, found, allowed."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: is not JSON: {error}.") from None
    if not isinstance(content, dict):
        raise PlanError(
            f"{path}: found {type(content).__name__}, expected an object with the key slo."
        )
    try:
        return Plan.model_validate(content)
    except ValidationError as error:
        raise PlanError(f"{path}: {_sentence(error)}") from None


def dump_plan(plan: Plan) -> str:
    """The plan as JSON, with what was not given left out."""
    return json.dumps(plan.model_dump(mode="json", exclude_unset=True), indent=2) + "\n"


def _sentence(error: ValidationError) -> str:
    complaints = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    first = complaints[0]  # a misspelt key explains a missing one
    key = ".".join(str(part) for part in first["loc"]) or "the file"
    if first["type"] == "extra_forbidden":
        allowed = _keys_at(first["loc"][:-1])
        near = get_close_matches(str(first["loc"][-1]), allowed, 1)
        hint = f"; did you mean {near[0]!r}" if near else ""
        return f"unknown key {key!r}, allowed are {', '.join(allowed)}{hint}."
    said = first["msg"].removeprefix("Value error, ")
    if key == "decode" and said.startswith("max_batch_size_at_slo"):
        return f"decode.{said}."
    if key.startswith("decode.curve."):
        place, found = first["loc"][2], json.dumps(first["input"])[:80]
        return f"decode.curve: point {place} must be two numbers [batch, tpot_ms], found {found}."
    found = "" if first["type"] == "missing" else f", found {json.dumps(first['input'])[:80]}"
    return f"{key}: {said}{found}{_meant(first)}."


# What a figure that cannot be is likely to mean.
_MEANT_ZERO = {
    "max_prefill_throughput_tokens_per_s": "an instance that computes nothing; leave the key out if it is not known",
    "throughput_at_slo_tokens_per_s": "an instance that computes nothing; leave the key out if it is not known",
    "target_qps": "no traffic needs no instances; leave the key out if the rate is not known",
    "prefill_instances": "without P nothing is computed; a deployment that is not split has no plan",
    "decode_instances": "without D nothing is computed; a deployment that is not split has no plan",
    "max_running_requests": "leave the key out for no cap",
}
_SHARES = ("prefix_cache_hit_rate", "headroom")


def _meant(first: Any) -> str:
    """The likely slip: seconds for milliseconds, percent for a share, zero for not known."""
    key, found = str(first["loc"][-1]), first["input"]
    if not isinstance(found, int | float) or isinstance(found, bool):
        return ""
    if key.endswith("_ms") and 0 < found <= 1:
        return f" (seconds? {1000 * found:g} would be that in ms)"
    if key in _SHARES and 1 <= found <= 100:
        return f" (percent? {found / 100:g} would be that as a share)"
    if found == 0 and key in _MEANT_ZERO:
        return f" ({_MEANT_ZERO[key]})"
    return ""


def _keys_at(loc: tuple[Any, ...]) -> list[str]:
    section: type[BaseModel] = Plan
    for part in loc:
        annotation = section.model_fields[str(part)].annotation
        options = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
        section = next(o for o in options if isinstance(o, type) and issubclass(o, BaseModel))
    return list(section.model_fields)
