"""The plan: the JSON template of the method, key for key, and further optional keys. Read and written here."""

import json
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from planner.errors import PlanError

Routing = Literal["random", "round-robin", "least-load"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SloSection(_Section):
    """What must hold, at which rate."""

    ttft_p99_ms: float = Field(gt=1)
    tpot_p99_ms: float = Field(gt=0.5)
    target_qps: float | None = Field(default=None, gt=0)


class WorkloadSection(_Section):
    """Mean traffic."""

    avg_input_tokens: float = Field(ge=1)
    avg_output_tokens: float = Field(ge=1)
    prefix_cache_hit_rate: float = Field(default=0.0, ge=0, lt=1)


class _Instance(_Section):
    instance_type: str | None = None
    required_instances: int | None = Field(default=None, ge=1)
    tp_size: int = Field(default=1, ge=1)
    pp_size: int = Field(default=1, ge=1)
    dp_size: int = Field(default=1, ge=1)
    gpus_per_instance: int | None = Field(default=None, ge=1)

    @property
    def gpus(self) -> int:
        """GPUs of one instance."""
        return self.gpus_per_instance or self.tp_size * self.pp_size


class PrefillSection(_Instance):
    """One prefill instance."""

    max_prefill_throughput_tokens_per_s: float | None = Field(default=None, gt=0)
    effective_input_tokens: int | None = Field(default=None, ge=1)


class DecodeSection(_Instance):
    """One decode instance; the curve is [[batch, tpot_ms], ...]."""

    max_batch_size_at_slo: int | None = Field(default=None, ge=1)
    throughput_at_slo_tokens_per_s: float | None = Field(default=None, gt=0)
    curve: list[tuple[float, float]] | None = None

    @model_validator(mode="after")
    def _rising(self) -> "DecodeSection":
        if self.curve is None:
            return self
        if len(self.curve) < 2:
            raise ValueError("curve needs two points [batch, tpot_ms] or more")
        for (b0, t0), (b1, t1) in zip(self.curve, self.curve[1:], strict=False):
            if b1 <= b0 or t1 < t0:
                raise ValueError(f"curve must rise, found [{b0:g}, {t0:g}] before [{b1:g}, {t1:g}]")
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
    found = "" if first["type"] == "missing" else f", found {json.dumps(first['input'])[:80]}"
    return f"{key}: {first['msg'].removeprefix('Value error, ')}{found}{_meant(first)}."


def _meant(first: Any) -> str:
    """The likely slip: seconds where milliseconds are asked for."""
    if (
        str(first["loc"][-1]).endswith("_ms")
        and isinstance(first["input"], int | float)
        and 0 < first["input"] <= 1
    ):
        return f" (seconds? {1000 * first['input']:g} would be that in ms)"
    return ""


def _keys_at(loc: tuple[Any, ...]) -> list[str]:
    section: type[BaseModel] = Plan
    for part in loc:
        annotation = section.model_fields[str(part)].annotation
        options = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
        section = next(o for o in options if isinstance(o, type) and issubclass(o, BaseModel))
    return list(section.model_fields)
