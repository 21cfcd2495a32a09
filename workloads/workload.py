"""A workload: a YAML file (or a scenario string) that says what traffic looks like.

rate_rps: 20
arrivals: {process: poisson}
input:  {dist: fixed, value: 2048}
output: {dist: lognormal, mean: 512, cv: 0.5}
prefix: {hit: 0.3}
"""

import hashlib
import json
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from workloads.arrivals import Schedule, Source
from workloads.classes import Pool, RequestClass, Talk
from workloads.closed_loop import ClosedLoop
from workloads.errors import ConfigError
from workloads.lengths import Fixed, Lengths
from workloads.open_loop import OpenLoop
from workloads.processes import (
    Constant,
    Course,
    Day,
    GammaGaps,
    Gaps,
    Minutes,
    OnOff,
    Poisson,
    Stages,
)
from workloads.scenario import scenario
from workloads.sections import (
    ArrivalsSection,
    ClassSection,
    Lengthed,
    PrefixSection,
    RateSection,
    SessionsSection,
    WorkloadFile,
)
from workloads.yaml_file import read

HERE = Path(__file__).resolve().parent
_EVEN = (np.arange(1000) + 0.5) / 1000  # uniform numbers, evenly spread


@dataclass(frozen=True)
class Workload:
    """What to send, at which rate by default. ``users``: a closed loop of so many."""

    name: str
    about: str
    classes: tuple[RequestClass, ...]
    gaps: Gaps
    course: Course | None
    rate_rps: float | None
    window_s: float | None
    users: int | None
    think_s: Lengths | None
    ttft_p99_ms: float | None
    tpot_p99_ms: float | None
    digest: str
    told_peak_rps: float | None = None

    @property
    def longest_output_tokens(self) -> float:
        """What one request in ten thousand exceeds."""
        return max(c.output.quantile(0.9999) for c in self.classes)

    @property
    def expected_output_tokens(self) -> float:
        """Mean."""
        total = sum(c.weight for c in self.classes)
        return sum(c.weight * c.output.mean for c in self.classes) / total

    @property
    def mean_think_s(self) -> float:
        """Of a closed loop: from an answer to the next question."""
        thinks = [c.talk.think_s for c in self.classes if c.talk] or [self.think_s or Fixed(0.0)]
        return sum(float(t.continuous(_EVEN).mean()) for t in thinks) / len(thinks)

    @property
    def peak_rate_rps(self) -> float | None:
        """Of the busiest stretch; None when no rate is known or it stays the same."""
        if self.told_peak_rps is not None or self.rate_rps is None or self.course is None:
            return self.told_peak_rps
        return self.rate_rps * self.course.peak

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the run should know of its lengths."""
        return tuple(
            f"{c.name}: {100 * part.clamped_share:.1f} % of the {what} lengths would be under 1 and are 1"
            for c in self.classes
            for what, part in (("input", c.input), ("output", c.output))
            if part.clamped_share > 0.0005
        )

    def schedule(self, seed: int, window_s: float, rate_rps: float | None = None) -> Schedule:
        """The arrivals of one run. Raises ConfigError when no rate is known."""
        return Schedule(self._source(seed, rate_rps), tuple(c.name for c in self.classes), window_s)

    def _source(self, seed: int, rate_rps: float | None) -> Source:
        if self.users is not None:
            think_s = self.think_s or next(
                (c.talk.think_s for c in self.classes if c.talk), Fixed(0.0)
            )
            return ClosedLoop(self.classes, self.users, think_s, seed)
        rate = rate_rps if rate_rps is not None else self.rate_rps
        if rate is None:
            raise ConfigError(f"workload {self.name}: rate_rps is not given; add it or use --rate.")
        return OpenLoop(self.classes, self.gaps, self.course, rate, seed)


def names() -> list[str]:
    """The profiles that are shipped."""
    return sorted(p.stem for p in HERE.glob("*.yaml"))


def load_workload(name: str) -> Workload:
    """A shipped profile by name, a YAML file by path, or a scenario string such as D(100,100).

    Raises ConfigError: one sentence.
    """
    if "(" in name:
        try:
            scenario(name)
        except ValueError as error:
            raise ConfigError(f"--workload: {error}.") from None
        return _build(name.replace(" ", ""), WorkloadFile(scenario=name))
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = HERE / f"{name}.yaml"
        if not path.exists():
            near = get_close_matches(name, names(), 1)
            hint = f"; did you mean {near[0]!r}" if near else ""
            raise ConfigError(
                f"--workload: found {name!r}, allowed are a YAML file, a scenario such as "
                f"D(100,100), or {', '.join(names())}{hint}."
            )
    return _build(path.stem, read(path, WorkloadFile))


def _build(name: str, file: WorkloadFile) -> Workload:
    told = file.model_dump(mode="json", exclude={"about", "source", "licence"})
    canonical = json.dumps(told, sort_keys=True)
    parts = file.classes or (file,)
    course, mean_rps = _course(file.arrivals.rate)
    stages = file.arrivals.rate.stages if file.arrivals.rate else None
    whole_s = sum(s.duration_s for s in stages) if stages else None
    return Workload(
        name=name,
        about=file.about,
        classes=tuple(_class(k, part, file, name) for k, part in enumerate(parts)),
        gaps=_gaps(file.arrivals),
        course=course,
        rate_rps=file.rate_rps if file.rate_rps is not None else mean_rps,
        window_s=file.window_s if file.window_s is not None else whole_s,
        users=file.users,
        think_s=file.think_s.build() if file.think_s else None,
        ttft_p99_ms=file.slo.ttft_p99_ms,
        tpot_p99_ms=file.slo.tpot_p99_ms,
        digest=hashlib.sha256(canonical.encode()).hexdigest()[:16],
        told_peak_rps=file.peak_rate_rps,
    )


def _class(code: int, part: Lengthed, file: WorkloadFile, name: str) -> RequestClass:
    own = part if isinstance(part, ClassSection) else None
    if part.scenario is not None:
        inputs, outputs = scenario(part.scenario)
    else:
        first = part.sessions.first_input if part.sessions and not part.input else part.input
        assert first is not None  # the file was checked for it
        assert part.output is not None
        inputs, outputs = first.build(), part.output.build()
    return RequestClass(
        name=own.name if own else file.class_name or name,
        code=code,
        weight=own.weight if own else 1.0,
        input=inputs,
        output=outputs,
        rank_correlation=part.rank_correlation,
        pool=_pool(part.prefix),
        talk=_talk(part.sessions),
        ttft_p99_ms=own.slo.ttft_p99_ms if own else None,
        tpot_p99_ms=own.slo.tpot_p99_ms if own else None,
    )


def _pool(told: PrefixSection | None) -> Pool | None:
    if told is None:
        return None
    return Pool(told.hit, told.mode == "requests", told.pool, told.zipf, told.block_tokens)


def _talk(told: SessionsSection | None) -> Talk | None:
    if told is None:
        return None
    return Talk(
        turns=told.turns.build(),
        think_s=told.think_s.build(),
        new_input=told.new_input.build(),
        system_tokens=told.system_tokens,
        max_context_tokens=told.max_context_tokens,
    )


def _gaps(told: ArrivalsSection) -> Gaps:
    if told.process == "gamma":
        assert told.cv is not None
        return GammaGaps(told.cv)
    return Poisson() if told.process == "poisson" else Constant()


def _course(told: RateSection | None) -> tuple[Course | None, float | None]:
    """The course of the rate, and its mean where it is told in requests per second."""
    if told is None:
        return None, None
    if told.stages is not None:
        rates = tuple(s.rate_rps for s in told.stages)
        stages = Stages(tuple(s.duration_s for s in told.stages), rates, rates)
        return stages, stages.mean
    if told.ramp is not None:
        r = told.ramp
        ramp = Stages((r.duration_s,), (r.from_rps,), (r.to_rps,))
        return ramp, ramp.mean
    if told.minutes is not None:
        return Minutes(told.minutes.cv, told.minutes.ar1, told.minutes.idle), None
    if told.on_off is not None:
        return OnOff(told.on_off.on_s, told.on_off.off_s), None
    assert told.day is not None
    return Day(told.day, told.day_s), None
