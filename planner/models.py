"""How long things take on an engine, how many instances there are, and what comes in: plain figures."""

from dataclasses import dataclass, replace

import numpy as np

from planner.records import Floats

DEFAULT_CHUNK_TOKENS = 8192.0  # SGLang's and vLLM's on large GPUs


@dataclass(frozen=True, slots=True)
class PrefillModel:
    """S(L) = setup_s + slope_s * L + square_s * L^2 on P, and overhead_s (network, transfer) off it."""

    slope_s: float
    overhead_s: float = 0.0
    setup_s: float = 0.0
    square_s: float = 0.0
    chunk_tokens: float = DEFAULT_CHUNK_TOKENS
    source: str = "given"

    def service_s(self, tokens: Floats) -> Floats:
        """How long P is busy with a prompt that is alone."""
        iterations = np.maximum(np.ceil(tokens / self.chunk_tokens), 1)
        return np.asarray(
            self.setup_s * iterations + self.slope_s * tokens + self.square_s * tokens**2
        )

    def utilisation(self, traffic: "Traffic", instances: int) -> float:
        """Work offered over work that can be done."""
        return self.work_s(traffic.input_tokens) * traffic.rate_rps / instances

    def work_s(self, tokens: Floats) -> float:
        """Mean work of a prompt when iterations are well filled, which they are in a queue."""
        filled = self.setup_s * float(tokens.mean()) / self.chunk_tokens
        return filled + float((self.slope_s * tokens + self.square_s * tokens**2).mean())


@dataclass(frozen=True, slots=True)
class DecodeModel:
    """t(b) = alpha_s + beta_s * b + bend_s * b^2; ``seen_batch`` is the largest that was seen, and
    ``pinned`` whether the batch stayed at it, as one does that is held there."""

    alpha_s: float
    beta_s: float
    bend_s: float = 0.0
    seen_batch: float = 0.0
    source: str = "given"
    pinned: bool = False

    def step_s(self, batch: float) -> float:
        """One step at this batch."""
        return self.alpha_s + self.beta_s * batch + self.bend_s * batch * batch

    def utilisation(self, traffic: "Traffic", layout: "Layout") -> float:
        """Demand over what all D can do at the cap."""
        cap = float(min(layout.cap, 4096))
        rate = traffic.rate_rps / layout.decode
        return rate * float(traffic.output_tokens.mean()) * self.step_s(cap) / cap

    def largest_batch(self, tpot_slo_s: float, at_most: int = 4096) -> int:
        """Largest batch whose step is within the limit; 0: none."""
        if self.step_s(1) > tpot_slo_s:
            return 0
        low, high = 1, at_most
        while low < high:
            middle = (low + high + 1) // 2
            if self.step_s(middle) <= tpot_slo_s * (1 + 1e-9):
                low = middle
            else:
                high = middle - 1
        return low


@dataclass(frozen=True, slots=True)
class Layout:
    """A deployment as the model sees it."""

    prefill: int
    decode: int
    cap: int
    routing_prefill: str = "round-robin"
    routing_decode: str = "round-robin"
    admission: str = "early"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What comes in, in order of time."""

    at_s: Floats
    input_tokens: Floats  # effective
    output_tokens: Floats
    # Of each request's class over the run's, for TTFT and for TPOT; None: all have the run's limits.
    limits: tuple[Floats, Floats] | None = None

    def __len__(self) -> int:
        return len(self.at_s)

    @property
    def rate_rps(self) -> float:
        """Mean over the whole."""
        span_s = float(self.at_s[-1] - self.at_s[0]) if len(self) > 1 else 1.0
        return max(len(self) - 1, 1) / max(span_s, 1e-9)

    def faster(self, factor: float) -> "Traffic":
        """The same requests at ``factor`` times the rate."""
        return replace(self, at_s=self.at_s / factor)

    def first(self, n: int) -> "Traffic":
        """The first ``n``."""
        limits = (self.limits[0][:n], self.limits[1][:n]) if self.limits else None
        return Traffic(self.at_s[:n], self.input_tokens[:n], self.output_tokens[:n], limits)
