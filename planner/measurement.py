"""What a run measured: the first half of run.json, from the records and what only the runner knows."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from planner.signals import ServerSignals

SCHEMA_VERSION = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)


class Slo(_Part):
    """Limits of the 99th percentiles, ms."""

    ttft_p99_ms: float
    tpot_p99_ms: float


class Size(_Part):
    """How many instances, and the cap of one decode instance (None: not known)."""

    prefill_instances: int
    decode_instances: int
    max_running_requests: int | None = None


class RunContext(_Part):
    """What the records do not say."""

    run_id: str
    seed: int
    target: str
    model: str = ""
    workers: int = 1
    versions: dict[str, str] = Field(default_factory=dict)
    started_at: str = ""
    workload: dict[str, str] = Field(default_factory=dict)
    window_s: float
    stopped_at_s: float
    warmup_s: float | None = None
    emulated: bool = False
    partial: bool = False
    partial_reason: str = ""
    slo: Slo
    class_slo: dict[str, Slo] = Field(default_factory=dict)  # of classes with limits of their own
    wanted_hit_rate: float | None = None  # of prompt tokens, once everything shared was seen
    rate_planned_rps: float
    max_concurrency: int = 0
    duplicates: int = 0
    outcomes: dict[str, int] | None = None  # exact counts, where the records are a sample
    deployment: Size | None = None
    client: dict[str, float] = Field(default_factory=dict)
    itl: dict[str, float | None] = Field(default_factory=dict)
    server: dict[str, Any] | None = None  # as scraped; ``signals`` reads it
    notes: list[str] = Field(default_factory=list)

    @property
    def signals(self) -> ServerSignals | None:
        """What the servers said of themselves; None where none was scraped."""
        if not self.server:
            return None
        told = ServerSignals.model_validate(self.server)
        return told if told.prefill or told.decode else None


class Arrivals(_Part):
    """Where every due arrival went."""

    due: int
    succeeded: int
    failed: dict[str, int]
    unfinished: int
    unsent: int
    lost: int
    duplicates: int

    @property
    def adds_up(self) -> bool:
        """Whether each is counted once."""
        parts = (self.succeeded, sum(self.failed.values()), self.unfinished, self.unsent, self.lost)
        return self.due == sum(parts) and self.duplicates == 0


class Spread(_Part):
    """Percentiles of one metric, ms, with how sure the 99th is."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    n: int = 0
    n_eff: float = 0.0
    ci_low: float | None = None
    ci_high: float | None = None
    violation_rate: float | None = None


class ClassFigures(_Part):
    """One kind of traffic in a mixed run."""

    n: int
    slo: Slo | None = None
    ttft_p50_ms: float | None = None
    ttft_p90_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p90_ms: float | None = None
    tpot_p99_ms: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    ttft_violation_rate: float
    tpot_violation_rate: float


class Saturation(_Part):
    """Whether more came in than went out (window.Backlog)."""

    saturated: bool = False
    completed_share: float = 1.0
    in_flight_mean: float = 0.0
    in_flight_rise: float = 0.0


class Measurement(RunContext):
    """All of it."""

    schema_version: int = SCHEMA_VERSION
    measured: int = 0  # arrivals in the measured window
    excluded: int = 0  # arrivals before it
    undecided: int = 0  # cut off before it could be told whether they meet the limits
    arrivals: Arrivals
    rate_rps: dict[str, float]
    interarrival_cv: float | None = None
    ttft_ms: Spread
    ttft_from_sent_ms: Spread
    tpot_ms: Spread
    itl_ms: Spread
    first_gap_ms: Spread = Spread()
    steady_tpot_ms: Spread = Spread()  # without the first gap
    lag_ms: Spread
    input_tokens: dict[str, float]
    output_tokens: dict[str, float]
    estimated_share: float = 0.0  # of the answers, whose tokens were counted from events
    classes: dict[str, ClassFigures] = Field(default_factory=dict)
    saturation: Saturation = Saturation()
    warnings: list[str] = Field(default_factory=list)
