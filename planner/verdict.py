"""The verdict on a run, as it stands in run.json."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from planner.measurement import Size

EXIT_CODES = {
    "hold": 0,
    "add-prefill": 10,
    "add-decode": 11,
    "add-both": 12,
    "lower-max-running-requests": 13,
    "raise-max-running-requests": 14,
    "fix-transfer": 15,
    "change-routing": 16,
    "infeasible": 17,
    "inconclusive": 20,
    "client-limited": 21,
    "target-errors": 22,
}


class Proposal(Size):
    """A deployment, and what it is expected to do."""

    routing_prefill: str | None = None  # where it has to change
    predicted_ttft_p99_ms: float | None = None
    predicted_tpot_p99_ms: float | None = None
    gpus: int | None = None


class Part(BaseModel):
    """One stage's part of the TTFT."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    stage: str
    mean_ms: float
    tail_ms: float  # mean over the slowest 1 %
    share: float  # of the mean TTFT
    source: str  # measured or modelled


class Decision(BaseModel):
    """The verdict and its reasons."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    verdict: str
    exit_code: int
    rule: str
    confidence: str = ""  # likely, confirmed, or '' where nothing was concluded
    reasons: list[str] = Field(default_factory=list)
    deployment: Size | None = None
    proposal: Proposal | None = None
    next_command: str = ""
    seconds_more: int | None = None  # of an inconclusive run
    headroom_rps: float | None = None  # up to which rate the deployment is expected to hold
    ttft_split: list[Part] = Field(default_factory=list)
    attribution: dict[str, Any] = Field(default_factory=dict)

    def headline(self) -> str:
        """The verdict in one plain line."""
        now, then = self.deployment, self.proposal
        if self.verdict == "hold":
            less = f"; {shown(then)} may do" if then is not None else ""
            return f"hold: both SLOs are met ({self.confidence}){less}"
        if self.verdict == "inconclusive" and self.seconds_more:
            return f"inconclusive: about {self.seconds_more} s more are needed"
        if now is None or then is None:
            return self.verdict
        same = now.max_running_requests == then.max_running_requests
        before = counted(now) if same else shown(now)
        return f"{self.verdict}: {before} -> {shown(then)}"


def counted(size: Size) -> str:
    """``3P4D``."""
    return f"{size.prefill_instances}P{size.decode_instances}D"


def shown(size: Size) -> str:
    """``3P4D, max_running_requests 64``."""
    cap = f", max_running_requests {size.max_running_requests}" if size.max_running_requests else ""
    routing = getattr(size, "routing_prefill", None)
    routed = f", routing to P {routing}" if routing else ""
    return f"{counted(size)}{cap}{routed}"


def decided(verdict: str, rule: str, reasons: list[str], **more: Any) -> Decision:
    """A decision with its exit code."""
    return Decision(
        verdict=verdict, exit_code=EXIT_CODES[verdict], rule=rule, reasons=reasons, **more
    )
