"""What the P and D said of themselves during a run: one set of words for every engine.

``pd_users`` scrapes SGLang's, vLLM's or Dynamo's ``/metrics`` and sums them up as these; a figure that
an engine does not tell is None. Of a gauge: mean, 99th percentile and maximum over the polls.
"""

from pydantic import BaseModel, ConfigDict, Field


class Instance(BaseModel):
    """What one P or D said."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    url: str = ""
    instance: str = ""
    engine: str = ""
    polls: int = 0
    errors: int = 0
    running_mean: float | None = None
    running_p99: float | None = None
    running_max: float | None = None
    queued_mean: float | None = None  # P: prompts that wait; D: KV is here, waiting for a slot
    queued_p99: float | None = None
    queued_max: float | None = None
    bootstrap_mean: float | None = None  # P: waiting until D has a place
    inflight_mean: float | None = None  # P: KV being sent
    prealloc_mean: float | None = None  # D: waiting for a slot or for KV memory
    prealloc_p99: float | None = None
    prealloc_max: float | None = None
    transfer_mean: float | None = None  # D: slot taken, KV not there yet
    transfer_p99: float | None = None
    token_usage_mean: float | None = None
    token_usage_p99: float | None = None
    token_usage_max: float | None = None
    cap: float | None = None
    busy_share: float | None = None
    hit_rate: float | None = None
    retractions: float | None = None
    failed_transfers: float | None = None
    requests: float | None = None
    kv_transfer_ms_mean: float | None = None
    kv_transfer_ms_p99: float | None = None
    queue_ms_mean: float | None = None
    prefill_ms_mean: float | None = None
    slot_wait_ms_mean: float | None = None


class ServerSignals(BaseModel):
    """Of all instances that were scraped."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    prefill: list[Instance] = Field(default_factory=list)
    decode: list[Instance] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)

    @property
    def engine(self) -> str:
        """The engine that they run, as far as they tell."""
        return next((i.engine for i in (*self.decode, *self.prefill) if i.engine), "")

    @property
    def cap(self) -> int | None:
        """max_running_requests of one D, as the servers tell it; the smallest where they differ."""
        told = [int(d.cap) for d in self.decode if d.cap]
        return min(told) if told else None

    def total(self, role: str, name: str) -> float:
        """A counter over all instances of one role; 0 where nobody tells it."""
        return sum(float(getattr(i, name) or 0.0) for i in getattr(self, role))

    def mean(self, role: str, name: str) -> float | None:
        """A figure, averaged over the instances that tell it; None where none does."""
        told = [v for i in getattr(self, role) if (v := getattr(i, name)) is not None]
        return sum(told) / len(told) if told else None

    def worst(self, role: str, name: str) -> float | None:
        """The largest of a figure; None where nobody tells it."""
        told = [v for i in getattr(self, role) if (v := getattr(i, name)) is not None]
        return max(told) if told else None
