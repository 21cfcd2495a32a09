"""Distributions as a workload file writes them."""

import csv
import math
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from workloads.lengths import (
    Empirical,
    Fixed,
    Gamma,
    Lengths,
    Lognormal,
    Mixture,
    Normal,
    Quantiles,
    Spread,
    Uniform,
    Weibull,
)


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


Number = Annotated[float, BeforeValidator(_number)]
Whole = Annotated[int, BeforeValidator(_number)]
Share = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)]


class Section(BaseModel):
    """Unknown keys are refused, so that a misspelt one is not silently without effect."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# -- lengths --------------------------------------------------------------------------------------


class FixedSection(Section):
    """``{dist: fixed, value: 2048}``."""

    dist: Literal["fixed"]
    value: Number = Field(gt=0)

    def build(self) -> Lengths:
        """The distribution."""
        return Fixed(self.value)


class UniformSection(Section):
    """``{dist: uniform, low: 50, high: 100}``."""

    dist: Literal["uniform"]
    low: Number = Field(gt=0)
    high: Number = Field(gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> "UniformSection":
        if self.high < self.low:
            raise ValueError(f"high must be at least low ({self.low:g}), found {self.high:g}")
        return self

    def build(self) -> Lengths:
        """The distribution: of whole numbers, or of times when the ends are not whole."""
        whole = self.low == int(self.low) and self.high == int(self.high) and self.low >= 1
        return Uniform(self.low, self.high) if whole else Spread(self.low, self.high)


class NormalSection(Section):
    """``{dist: normal, mean: 480, sd: 240}``; what falls under 1 is made 1, and its share reported."""

    dist: Literal["normal"]
    mean: Number = Field(gt=0)
    sd: Number = Field(ge=0)
    max: Number = Field(default=math.inf, ge=1)

    def build(self) -> Lengths:
        """The distribution."""
        return Normal(self.mean, self.sd, max=self.max)


class LognormalSection(Section):
    """``{dist: lognormal, mean: 512, cv: 0.5}``, with ``p99`` for ``cv``, or ``mu`` and ``sigma``."""

    dist: Literal["lognormal"]
    mean: Number | None = Field(default=None, gt=0)
    cv: Number | None = Field(default=None, gt=0)
    p99: Number | None = Field(default=None, gt=0)
    mu: Number | None = None
    sigma: Number | None = Field(default=None, ge=0)
    max: Number = Field(default=math.inf, ge=1)

    @model_validator(mode="after")
    def _complete(self) -> "LognormalSection":
        given = {k for k in ("mean", "cv", "p99", "mu", "sigma") if getattr(self, k) is not None}
        if given not in ({"mean", "cv"}, {"mean", "p99"}, {"mu", "sigma"}):
            found = ", ".join(sorted(given)) or "none of them"
            raise ValueError(f"give mean and cv, mean and p99, or mu and sigma, found {found}")
        self.build()
        return self

    def build(self) -> Lengths:
        """The distribution."""
        if self.mu is not None and self.sigma is not None:
            return Lognormal(self.mu, self.sigma, self.max)
        assert self.mean is not None
        if self.cv is not None:
            return Lognormal.of_cv(self.mean, self.cv, self.max)
        assert self.p99 is not None
        return Lognormal.of_p99(self.mean, self.p99, self.max)


class GammaSection(Section):
    """``{dist: gamma, mean: 512, cv: 1.2}``."""

    dist: Literal["gamma"]
    mean: Number = Field(gt=0)
    cv: Number = Field(gt=0)
    max: Number = Field(default=math.inf, ge=1)

    def build(self) -> Lengths:
        """The distribution."""
        return Gamma(1 / self.cv**2, self.mean * self.cv**2, self.max)


class WeibullSection(Section):
    """``{dist: weibull, shape: 0.9, scale: 26}``."""

    dist: Literal["weibull"]
    shape: Number = Field(gt=0)
    scale: Number = Field(gt=0)
    max: Number = Field(default=math.inf, ge=1)

    def build(self) -> Lengths:
        """The distribution."""
        return Weibull(self.shape, self.scale, self.max)


class QuantilesSection(Section):
    """``{dist: quantiles, q: [0, 0.5, 1], v: [3, 100, 900]}``."""

    dist: Literal["quantiles"]
    q: tuple[Number, ...]
    v: tuple[Number, ...]
    max: Number = Field(default=math.inf, ge=1)

    @model_validator(mode="after")
    def _increasing(self) -> "QuantilesSection":
        q, v = self.q, self.v
        if len(q) != len(v) or len(q) < 2:
            raise ValueError(
                f"q and v must be equally long, at least 2; found {len(q)} and {len(v)}"
            )
        if q[0] != 0 or q[-1] != 1 or any(b <= a for a, b in pairwise(q)):
            raise ValueError("q must rise from 0 to 1")
        falls = [k for k, (a, b) in enumerate(pairwise(v)) if b < a]
        if falls or v[0] <= 0:
            k = falls[0] + 1 if falls else 0
            raise ValueError(f"v must not fall and be more than 0, found {v[k]:g} at place {k + 1}")
        return self

    def build(self) -> Lengths:
        """The distribution."""
        return Quantiles(self.q, self.v, self.max)


class EmpiricalSection(Section):
    """``{dist: empirical, file: lengths.csv, column: input_tokens}``; relative to the workload file."""

    dist: Literal["empirical"]
    file: str
    column: str
    values: tuple[float, ...] = Field(default=(), repr=False)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, dict) or not {"file", "column"} <= set(value):
            return value
        folder = (info.context or {}).get("folder", Path())
        path = folder / str(value["file"])
        # The file's name, not its folder: the digest must be the same on every machine.
        return {**value, "file": path.name, "values": _column(path, str(value["column"]))}

    def build(self) -> Lengths:
        """The distribution of the counts in that column."""
        return Empirical(self.values)


class MixturePart(BaseModel):
    """A distribution with its ``weight``."""

    model_config = ConfigDict(frozen=True)
    weight: Number = Field(gt=0)
    of: "LengthsSection"

    @model_validator(mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("a part is written {weight: 0.6, dist: lognormal, ...}")
        rest = {k: v for k, v in value.items() if k != "weight"}
        return {"weight": value.get("weight"), "of": rest}


class MixtureSection(Section):
    """``{dist: mixture, parts: [{weight: 0.6, dist: fixed, value: 20}, ...]}``."""

    dist: Literal["mixture"]
    parts: tuple[MixturePart, ...] = Field(min_length=1)

    def build(self) -> Lengths:
        """The distribution."""
        return Mixture(tuple(p.of.build() for p in self.parts), tuple(p.weight for p in self.parts))


LengthsSection = Annotated[
    Union[  # noqa: UP007  (a forward reference: parts of a mixture are lengths again)
        FixedSection,
        UniformSection,
        NormalSection,
        LognormalSection,
        GammaSection,
        WeibullSection,
        QuantilesSection,
        EmpiricalSection,
        MixtureSection,
    ],
    Field(discriminator="dist"),
]
MixturePart.model_rebuild()
LENGTHS = {
    "fixed": FixedSection,
    "uniform": UniformSection,
    "normal": NormalSection,
    "lognormal": LognormalSection,
    "gamma": GammaSection,
    "weibull": WeibullSection,
    "quantiles": QuantilesSection,
    "empirical": EmpiricalSection,
    "mixture": MixtureSection,
}


def _column(file: Path, column: str) -> tuple[float, ...]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.DictReader(lines)
            if column not in (rows.fieldnames or ()):
                there = ", ".join(rows.fieldnames or ()) or "none"
                raise ValueError(f"{file} has no column {column!r}, it has {there}")
            counts = tuple(_count(file, rows.line_num, row[column]) for row in rows)
            if not counts:
                raise ValueError(f"{file} holds no rows")
            return counts
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None


def _count(file: Path, line: int, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{file}, line {line}: found {text!r}, allowed is a number more than 0")
    return value
