"""A workload: a YAML file that says what traffic looks like, read into frozen distributions.

rate_rps: 20
arrivals: {process: poisson}
input:  {dist: fixed, value: 2048}
output: {dist: lognormal, mean: 512, cv: 0.5}
prefix_hit_rate: 0.3
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workloads.arrivals import BLOCK, Block, Constant, Gamma, Gaps, Poisson, Schedule
from workloads.errors import ConfigError
from workloads.lengths import Fixed, Lengths, Lognormal, Quantiles, Uniform

HERE = Path(__file__).resolve().parent
BLOCK_TOKENS = 16  # shared heads end at a multiple of this, so that engines can cache all of them
POOL = 8  # distinct shared heads


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FixedSection(_Section):
    """``{dist: fixed, value: 2048}``."""

    dist: Literal["fixed"]
    value: int = Field(ge=1)

    def build(self) -> Lengths:
        """The distribution."""
        return Fixed(self.value)


class UniformSection(_Section):
    """``{dist: uniform, low: 50, high: 100}``."""

    dist: Literal["uniform"]
    low: int = Field(ge=1)
    high: int = Field(ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> "UniformSection":
        if self.high < self.low:
            raise ValueError(f"high must be at least low ({self.low}), found {self.high}")
        return self

    def build(self) -> Lengths:
        """The distribution."""
        return Uniform(self.low, self.high)


class LognormalSection(_Section):
    """``{dist: lognormal, mean: 512, cv: 0.5, max: 4096}``."""

    dist: Literal["lognormal"]
    mean: float = Field(ge=1)
    cv: float = Field(gt=0)
    max: float | None = Field(default=None, ge=1)

    def build(self) -> Lengths:
        """The distribution."""
        return Lognormal(self.mean, self.cv, self.max if self.max is not None else np.inf)


class QuantilesSection(_Section):
    """``{dist: quantiles, q: [0, 0.5, 1], v: [3, 100, 900]}``."""

    dist: Literal["quantiles"]
    q: tuple[float, ...]
    v: tuple[float, ...]

    @model_validator(mode="after")
    def _increasing(self) -> "QuantilesSection":
        if len(self.q) != len(self.v) or len(self.q) < 2:
            raise ValueError(
                f"q and v must be equally long, at least 2; found {len(self.q)} and {len(self.v)}"
            )
        if (
            self.q[0] != 0
            or self.q[-1] != 1
            or any(b <= a for a, b in zip(self.q, self.q[1:], strict=False))
        ):
            raise ValueError("q must rise from 0 to 1")
        falls = [k for k, (a, b) in enumerate(zip(self.v, self.v[1:], strict=False)) if b < a]
        if falls or self.v[0] < 1:
            k = falls[0] + 1 if falls else 0
            raise ValueError(
                f"v must not fall and start at 1 or more, found {self.v[k]:g} at place {k + 1}"
            )
        return self

    def build(self) -> Lengths:
        """The distribution."""
        return Quantiles(self.q, self.v)


LengthsSection = Annotated[
    FixedSection | UniformSection | LognormalSection | QuantilesSection, Field(discriminator="dist")
]


class ArrivalsSection(_Section):
    """``{process: gamma, cv: 2}``."""

    process: Literal["poisson", "constant", "gamma"] = "poisson"
    cv: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _cv_of_gamma(self) -> "ArrivalsSection":
        if (self.process == "gamma") != (self.cv is not None):
            raise ValueError("cv goes with process: gamma, and only with it")
        return self

    def build(self) -> Gaps:
        """The process."""
        if self.process == "gamma":
            assert self.cv is not None
            return Gamma(self.cv)
        return Poisson() if self.process == "poisson" else Constant()


class SloSection(_Section):
    """``{ttft_p99_ms: 500, tpot_p99_ms: 50}``."""

    ttft_p99_ms: float | None = Field(default=None, gt=0)
    tpot_p99_ms: float | None = Field(default=None, gt=0)


class WorkloadFile(_Section):
    """The whole file."""

    class_name: str | None = Field(default=None, alias="class", min_length=1)
    about: str = ""
    rate_rps: float | None = Field(default=None, gt=0)
    window_s: float | None = Field(default=None, gt=0)
    arrivals: ArrivalsSection = ArrivalsSection()
    input: LengthsSection
    output: LengthsSection
    prefix_hit_rate: float = Field(default=0.0, ge=0, lt=1)
    slo: SloSection = SloSection()


@dataclass(frozen=True)
class Workload:
    """What to send, at which rate by default."""

    name: str
    class_name: str
    rate_rps: float | None
    window_s: float | None
    ttft_p99_ms: float | None
    tpot_p99_ms: float | None
    gaps: Gaps
    input: Lengths
    output: Lengths
    prefix_hit_rate: float
    digest: str

    @property
    def expected_output_tokens(self) -> float:
        """Mean."""
        return self.output.mean

    @property
    def longest_output_tokens(self) -> float:
        """What one request in ten thousand exceeds."""
        return self.output.quantile(0.9999)

    def schedule(self, seed: int, window_s: float, rate_rps: float | None = None) -> Schedule:
        """The arrivals of one run. Raises ConfigError when no rate is known."""
        rate = rate_rps if rate_rps is not None else self.rate_rps
        if rate is None:
            raise ConfigError(f"workload {self.name}: rate_rps is not given; add it or use --rate.")
        return Schedule(_Blocks(self, seed, rate), (self.class_name,), window_s)


@dataclass(frozen=True)
class _Blocks:
    workload: Workload
    seed: int
    rate_rps: float

    def blocks(self) -> Iterator[Block]:
        """Endless blocks; the generators go on from block to block."""
        w = self.workload
        seeds = np.random.SeedSequence(self.seed).spawn(4)
        moments, inputs, outputs, sharing = (np.random.default_rng(s) for s in seeds)
        start, last_s = 0, 0.0
        while True:
            due_s = last_s + np.cumsum(w.gaps.gaps(moments, BLOCK)) / self.rate_rps
            lengths = w.input.draw(inputs.random(BLOCK))
            shared = (lengths * w.prefix_hit_rate).astype(np.int64) // BLOCK_TOKENS * BLOCK_TOKENS
            yield Block(
                start=start,
                due_s=due_s,
                input_tokens=lengths,
                output_tokens=w.output.draw(outputs.random(BLOCK)),
                prefix_tokens=shared,
                prefix_group=sharing.integers(0, POOL, BLOCK),
                class_code=np.zeros(BLOCK, np.int64),
            )
            start, last_s = start + BLOCK, float(due_s[-1])


def names() -> list[str]:
    """The profiles that are shipped."""
    return sorted(p.stem for p in HERE.glob("*.yaml"))


def load_workload(name: str) -> Workload:
    """A shipped profile by name, or a YAML file by path. Raises ConfigError: one sentence."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = HERE / f"{name}.yaml"
        if not path.exists():
            near = get_close_matches(name, names(), 1)
            hint = f"; did you mean {near[0]!r}" if near else ""
            raise ConfigError(
                f"--workload: found {name!r}, allowed are a YAML file or {', '.join(names())}{hint}."
            )
    return _build(path, _parse(path))


def _parse(path: Path) -> WorkloadFile:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())[:200]}.") from None
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path}: found {type(content).__name__}, expected keys such as input and output."
        )
    try:
        return WorkloadFile.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_sentence(error)}") from None


def _sentence(error: ValidationError) -> str:
    """The first complaint: key, what was found, what is allowed."""
    complaints = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    first = complaints[0]  # a misspelt key explains a missing one
    tags = {"fixed", "uniform", "lognormal", "quantiles"}
    key = ".".join(str(part) for part in first["loc"] if part not in tags) or "the file"
    found = f", found {first['input']!r}" if not isinstance(first["input"], dict) else ""
    if first["type"] == "extra_forbidden":
        allowed = _keys_at(first["loc"])
        near = get_close_matches(str(first["loc"][-1]), allowed, 1)
        hint = f"; did you mean {near[0]!r}" if near else ""
        return f"unknown key {key!r}, allowed are {', '.join(allowed)}{hint}."
    if first["type"] == "union_tag_invalid":
        tag = first["ctx"]["tag"]
        near = get_close_matches(str(tag), sorted(tags), 1)
        hint = f"; did you mean {near[0]!r}" if near else ""
        return f"{key}.dist: found {tag!r}, allowed are {', '.join(sorted(tags))}{hint}."
    return f"{key}: {first['msg'].removeprefix('Value error, ')}{found}."


def _keys_at(loc: tuple[Any, ...]) -> list[str]:
    sections: dict[str, type[_Section]] = {
        "fixed": FixedSection,
        "uniform": UniformSection,
        "lognormal": LognormalSection,
        "quantiles": QuantilesSection,
        "arrivals": ArrivalsSection,
        "slo": SloSection,
    }
    section = next((sections[p] for p in reversed(loc[:-1]) if p in sections), WorkloadFile)
    return [f.alias or name for name, f in section.model_fields.items()]


def _build(path: Path, file: WorkloadFile) -> Workload:
    canonical = json.dumps(file.model_dump(mode="json", exclude={"about"}), sort_keys=True)
    return Workload(
        name=path.stem,
        class_name=file.class_name or path.stem,
        rate_rps=file.rate_rps,
        window_s=file.window_s,
        ttft_p99_ms=file.slo.ttft_p99_ms,
        tpot_p99_ms=file.slo.tpot_p99_ms,
        gaps=file.arrivals.build(),
        input=file.input.build(),
        output=file.output.build(),
        prefix_hit_rate=file.prefix_hit_rate,
        digest=hashlib.sha256(canonical.encode()).hexdigest()[:16],
    )
