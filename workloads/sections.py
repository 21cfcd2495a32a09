"""The sections of a workload file: what may stand there."""

import math
from typing import Literal

from pydantic import Field, model_validator

from workloads.length_sections import LengthsSection, Number, Section, Share, Whole
from workloads.scenario import scenario


class StageSection(Section):
    """``{rate_rps: 5, duration_s: 60}``."""

    rate_rps: Number = Field(ge=0)
    duration_s: Number = Field(gt=0)


class RampSection(Section):
    """``{from_rps: 1, to_rps: 20, duration_s: 300}``; then on at ``to_rps``."""

    from_rps: Number = Field(ge=0)
    to_rps: Number = Field(ge=0)
    duration_s: Number = Field(gt=0)


class MinutesSection(Section):
    """``{cv: 1.04, ar1: 0.16, idle: 0.21}``: every minute has a rate of its own."""

    cv: Number = Field(ge=0)
    ar1: Number = Field(default=0.0, ge=0, lt=1)
    idle: Number = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _possible(self) -> "MinutesSection":
        least = math.sqrt(self.idle / (1 - self.idle))
        if self.cv < least:
            raise ValueError(
                f"cv must be at least {least:.3g} with {self.idle:g} of the minutes idle, "
                f"found {self.cv:g}"
            )
        return self


class OnOffSection(Section):
    """``{on_s: 20, off_s: 40}``: busy and silent spells in turn."""

    on_s: Number = Field(gt=0)
    off_s: Number = Field(gt=0)


class RateSection(Section):
    """The course of the rate: one of the keys."""

    stages: tuple[StageSection, ...] | None = Field(default=None, min_length=1)
    ramp: RampSection | None = None
    day: tuple[Number, ...] | None = Field(default=None, min_length=2)
    day_s: Number = Field(default=86_400.0, gt=0)
    minutes: MinutesSection | None = None
    on_off: OnOffSection | None = None

    @model_validator(mode="after")
    def _one(self) -> "RateSection":
        kinds = ("stages", "ramp", "day", "minutes", "on_off")
        given = [k for k in kinds if getattr(self, k) is not None]
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise ValueError(f"give one of {', '.join(kinds)}, found {found}")
        rates = [s.rate_rps for s in self.stages or ()] + list(self.day or ())
        if rates and not max(rates) > 0:
            raise ValueError(f"{given[0]}: all rates are 0")
        if self.ramp is not None and not max(self.ramp.from_rps, self.ramp.to_rps) > 0:
            raise ValueError("ramp: both rates are 0")
        return self


class ArrivalsSection(Section):
    """``{process: gamma, cv: 2, rate: {minutes: {cv: 0.2}}}``."""

    process: Literal["poisson", "constant", "gamma"] = "poisson"
    cv: Number | None = Field(default=None, gt=0)
    rate: RateSection | None = None

    @model_validator(mode="after")
    def _cv_of_gamma(self) -> "ArrivalsSection":
        if (self.process == "gamma") != (self.cv is not None):
            raise ValueError("cv goes with process: gamma, and only with it")
        return self


class PrefixSection(Section):
    """What prompts share: ``{mode: share, hit: 0.3, pool: 8}``.

    ``share``: the first ``hit`` of each prompt is that of an entry of the pool; ``requests``: that
    share of all requests repeats a whole one of the pool. ``zipf`` 0: all entries alike.
    """

    hit: Share
    mode: Literal["share", "requests"] = "share"
    pool: Whole = Field(default=8, ge=1)
    zipf: Number = Field(default=0.0, ge=0)
    block_tokens: Whole = Field(default=16, ge=1)


class SessionsSection(Section):
    """Conversations: every turn's prompt is the one before, its answer, and something new."""

    turns: LengthsSection
    think_s: LengthsSection
    new_input: LengthsSection
    first_input: LengthsSection | None = None
    system_tokens: Whole = Field(default=0, ge=0)
    max_context_tokens: Whole | None = Field(default=None, ge=1)


class SloSection(Section):
    """``{ttft_p99_ms: 500, tpot_p99_ms: 50}``."""

    ttft_p99_ms: Number | None = Field(default=None, gt=0)
    tpot_p99_ms: Number | None = Field(default=None, gt=0)


class Lengthed(Section):
    """Lengths and sharing of one class of requests."""

    scenario: str | None = None
    input: LengthsSection | None = None
    output: LengthsSection | None = None
    rank_correlation: Number = Field(default=0.0, ge=-1, le=1)
    prefix: PrefixSection | None = None
    sessions: SessionsSection | None = None
    slo: SloSection = SloSection()

    @model_validator(mode="after")
    def _whole(self) -> "Lengthed":
        if self.scenario is not None:
            if self.input or self.output:
                raise ValueError("scenario stands for input and output: give one or the other")
            scenario(self.scenario)
        if self.sessions and self.prefix:
            raise ValueError("sessions share by themselves: prefix cannot be given beside them")
        return self

    def missing(self) -> str:
        """The key that is not there, or ''."""
        if self.scenario is not None:
            return ""
        first = self.input or (self.sessions and self.sessions.first_input)
        return "input" if not first else "" if self.output else "output"


class ClassSection(Lengthed):
    """One of several classes."""

    name: str = Field(min_length=1)
    weight: Number = Field(default=1.0, gt=0)


class WorkloadFile(Lengthed):
    """The whole file."""

    class_name: str | None = Field(default=None, alias="class", min_length=1)
    about: str = ""
    source: str = ""
    licence: str = ""
    rate_rps: Number | None = Field(default=None, gt=0)
    peak_rate_rps: Number | None = Field(default=None, gt=0)
    window_s: Number | None = Field(default=None, gt=0)
    arrivals: ArrivalsSection = ArrivalsSection()
    users: Whole | None = Field(default=None, ge=1)
    think_s: LengthsSection | None = None
    classes: tuple[ClassSection, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> "WorkloadFile":
        if self.classes:
            taken = [
                k for k in ("scenario", "input", "output", "sessions", "prefix") if getattr(self, k)
            ]
            if taken:
                raise ValueError(f"with classes, {taken[0]} belongs into each of them")
            names = [c.name for c in self.classes]
            if len(set(names)) < len(names):
                raise ValueError(f"classes must have different names, found {', '.join(names)}")
        for part in self.classes or (self,):
            if key := part.missing():
                whose = f"class {part.name}: " if isinstance(part, ClassSection) else ""
                raise ValueError(f"{whose}{key} is missing")
        if self.users is None and self.think_s is not None:
            raise ValueError("think_s goes with users (a closed loop), and only with it")
        return self
