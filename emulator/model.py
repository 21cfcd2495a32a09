"""What the cluster is made of: engine timing, deployment, arrivals, requests. Pure data."""

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any, NamedTuple

ROUTINGS = ("random", "round-robin", "least-load")
ADMISSIONS = ("early", "sequential")
Table = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Engine:
    """How long things take on one instance, and what fits into it; seconds and tokens.

    A prefill iteration takes ``prefill_a`` + for each piece from token i to token j of a prompt
    (uncached tokens only) b * (j - i) + c * (j^2 - i^2), so a prompt alone takes a + b*L + c*L^2.
    A decode step takes alpha + beta * batch + gamma * (KV tokens of the batch).
    A table of (tokens, seconds) or (batch, seconds), linear in between, replaces b and c, or alpha
    and beta. With ``jitter`` each iteration and step is stretched by a normal factor (mean 1).
    """

    prefill_a: float = 0.010
    prefill_b: float = 1.0e-4
    prefill_c: float = 2.0e-9
    prefill_table: Table = ()
    decode_alpha: float = 0.008
    decode_beta: float = 1.5e-4
    decode_gamma: float = 2.0e-8
    decode_table: Table = ()
    transfer_base: float = 0.004
    transfer_per_token: float = 2.0e-6
    chunk_tokens: int = 8192
    kv_tokens: int = 1_000_000  # of one decode instance
    kv_reserve: int | None = None  # output tokens kept free per request; None: its whole output
    cache_tokens: int = 500_000  # of one prefill instance
    block_tokens: int = 16  # of the prefix cache
    jitter: float = 0.0  # standard deviation of the factor

    def prefill_piece_s(self, start: int, end: int) -> float:
        """Of one prompt's uncached tokens ``start`` to ``end``."""
        if self.prefill_table:
            return interpolate(self.prefill_table, end) - interpolate(self.prefill_table, start)
        return self.prefill_b * (end - start) + self.prefill_c * (end * end - start * start)

    def prefill_s(self, tokens: int) -> float:
        """A prompt alone, in one iteration."""
        return self.prefill_a + self.prefill_piece_s(0, tokens)

    def step_base_s(self, batch: int) -> float:
        """A decode step of ``batch`` requests without KV."""
        if self.decode_table:
            return interpolate(self.decode_table, batch)
        return self.decode_alpha + self.decode_beta * batch

    def step_s(self, batch: int, kv: int) -> float:
        """A decode step."""
        return self.step_base_s(batch) + self.decode_gamma * kv

    def transfer_s(self, tokens: int) -> float:
        """KV of ``tokens`` from P to D."""
        return self.transfer_base + tokens * self.transfer_per_token


def interpolate(table: Table, x: float) -> float:
    """Piecewise linear; the first and last pieces go on beyond the ends."""
    if len(table) == 1:
        return table[0][1]
    k = min(max(bisect_right(table, (x, float("inf"))), 1), len(table) - 1)
    (x0, y0), (x1, y1) = table[k - 1], table[k]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


@dataclass(frozen=True, slots=True)
class Deployment:
    """How many instances there are, and who gets which request."""

    prefill_instances: int = 1
    decode_instances: int = 2
    max_running_requests: int = 64  # of one decode instance
    routing_prefill: str = "round-robin"
    routing_decode: str = "round-robin"
    admission: str = "early"

    def changed(self, **keys: Any) -> "Deployment":
        """With some keys replaced. Raises ValueError: one sentence."""
        for name, value in keys.items():
            match name:
                case "prefill_instances" | "decode_instances" | "max_running_requests":
                    _check_count(name, value)
                case "routing_prefill" | "routing_decode":
                    _check_choice(name, value, ROUTINGS)
                case "admission":
                    _check_choice(name, value, ADMISSIONS)
                case _:
                    raise ValueError(f"{name}: unknown, allowed are {', '.join(self.__slots__)}.")
        return replace(self, **keys)


def _check_count(name: str, value: Any) -> None:
    if type(value) is not int or not 1 <= value <= 10_000:
        raise ValueError(f"{name}: found {value!r}, allowed is a whole number from 1 to 10000.")


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}: found {value!r}, allowed are {', '.join(allowed)}.")


class Arrival(NamedTuple):
    """What comes in, for a simulation. ``blocks``: chained hashes of the prompt's leading blocks."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    hit_tokens: int = 0  # cached for certain, whatever the cache holds


@dataclass(slots=True, eq=False)
class Request:
    """One request on its way through the cluster; moments are seconds of the handed-in clock."""

    received_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    hit_tokens: int = 0
    client: Any = field(default=None, repr=False)  # whoever wants the tokens
    phase: str = "new"  # new bootstrap prefill slot transfer arrived running retracted over
    outcome: str = ""  # "" (on its way), "ok", "aborted" or a fault's name
    prefill_instance: int = -1
    decode_instance: int = -1
    cached_tokens: int = 0
    prefilled: int = 0  # uncached tokens done in iterations that are over
    piece: int = 0  # tokens in the iteration that runs
    produced: int = 0  # output tokens; kept up to date when it leaves the batch
    retractions: int = 0
    prealloc_s: float = nan  # asked a D for a slot
    queued_s: float = nan  # into P's queue
    prefill_began_s: float = nan
    prefilled_s: float = nan
    slot_s: float = nan  # got its decode slot
    transfer_took_s: float = nan
    arrived_s: float = nan  # KV is on D
    joined_s: float = nan  # entered the running batch
    first_token_s: float = nan
    second_token_s: float = nan
    last_token_s: float = nan

    @property
    def uncached_left(self) -> int:
        """Prompt tokens that still have to be computed."""
        return self.prompt_tokens - self.cached_tokens - self.prefilled

    @property
    def context(self) -> int:
        """Tokens of KV that it holds outside a running batch."""
        return self.prompt_tokens + self.produced
