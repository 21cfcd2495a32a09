"""What all workers of one run must know alike: made once on the master, sent to each. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pd_users.options import RunOptions


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run, resolved: options, plan and workload have had their say. Holds no secret."""

    run_id: str  # also the folder name: <UTC start>-<seed>
    options: RunOptions
    host: str
    model: str
    rate_rps: float
    window_s: float
    ttft_slo_ms: float
    tpot_slo_ms: float
    slots: int  # concurrency cap over all workers
    workload_name: str
    digest: str  # of the traffic; a worker whose own differs is refused
    salt: str  # at the head of every unshared prompt; '' with --warm
    version: str
    learned: Mapping[str, Any] = field(default_factory=dict)  # what the preflight found out

    def to_message(self) -> dict[str, Any]:
        """As plain data for Locust's messages."""
        return asdict(self)

    @classmethod
    def from_message(cls, data: Mapping[str, Any]) -> "RunSpec":
        """The spec that ``to_message`` wrote."""
        options = dict(data["options"])
        for name in ("prefill_metrics_url", "decode_metrics_url"):
            options[name] = tuple(options[name])
        return cls(**{**data, "options": RunOptions(**options)})
