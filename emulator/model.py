"""What the cluster is made of: engine timing, deployment, and the request on its way. Pure data."""

from dataclasses import dataclass, field, replace
from math import nan
from typing import Any

ROUTINGS = ("random", "round-robin", "least-load")
ADMISSIONS = ("early", "sequential")


@dataclass(frozen=True, slots=True)
class Engine:
    """How long things take on one instance; seconds and tokens.

    A prefill iteration takes ``prefill_a`` + the sum of b * l + c * (end^2 - start^2) over its pieces;
    a decode step takes ``decode_alpha`` + beta * batch + gamma * KV tokens of the batch.
    """

    prefill_a: float = 0.010
    prefill_b: float = 1.0e-4
    prefill_c: float = 2.0e-9
    decode_alpha: float = 0.008
    decode_beta: float = 1.5e-4
    decode_gamma: float = 2.0e-8
    transfer_base: float = 0.004
    transfer_per_token: float = 2.0e-6
    chunk_tokens: int = 8192
    kv_tokens: int = 1_000_000  # per decode instance
    cache_tokens: int = 500_000  # per prefill instance
    block_tokens: int = 16  # of the prefix cache

    def prefill_piece(self, start: int, end: int) -> float:
        """Of one request's uncached tokens ``start`` to ``end``."""
        return self.prefill_b * (end - start) + self.prefill_c * (end * end - start * start)

    def step(self, batch: int, kv: int) -> float:
        """One decode step."""
        return self.decode_alpha + self.decode_beta * batch + self.decode_gamma * kv

    def steps(self, count: int, batch: int, kv: int) -> float:
        """``count`` steps of an unchanged batch, in closed form: each adds ``batch`` tokens of KV."""
        grown = self.decode_gamma * batch * count * (count - 1) / 2
        return count * self.step(batch, kv) + grown


@dataclass(frozen=True, slots=True)
class Deployment:
    """How many instances there are, and who gets which request."""

    prefill_instances: int = 1
    decode_instances: int = 2
    max_running_requests: int = 64
    routing_prefill: str = "round-robin"
    routing_decode: str = "round-robin"
    admission: str = "early"

    def changed(self, **keys: Any) -> "Deployment":
        """With some keys replaced; ValueError: one sentence."""
        for name, value in keys.items():
            if name in ("prefill_instances", "decode_instances", "max_running_requests"):
                if (
                    not isinstance(value, int)
                    or isinstance(value, bool)
                    or not 1 <= value <= 10_000
                ):
                    raise ValueError(
                        f"{name}: found {value!r}, allowed is a whole number from 1 to 10000."
                    )
            elif name in ("routing_prefill", "routing_decode"):
                _check(name, value, ROUTINGS)
            elif name == "admission":
                _check(name, value, ADMISSIONS)
            else:
                raise ValueError(f"{name}: unknown, allowed are {', '.join(self.__slots__)}.")
        return replace(self, **keys)


def _check(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}: found {value!r}, allowed are {', '.join(allowed)}.")


@dataclass(slots=True, eq=False)
class Request:
    """One request on its way through the cluster; moments are seconds of the handed-in clock."""

    id: str
    received: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()  # chained hashes of the prompt's leading blocks
    client: Any = field(default=None, repr=False)  # whoever wants the tokens
    prefill_instance: int = -1
    decode_instance: int = -1
    cached_tokens: int = 0
    prefill_done: float = nan
    admitted: float = nan  # when the decode slot was taken
    first_token: float = nan
    second_token: float = nan
    last_token: float = nan
    produced: int = 0
    prefilled: int = 0  # uncached tokens done so far
    outcome: str = ""  # "", "ok", "aborted" or a fault's name

    @property
    def kv_tokens(self) -> int:
        """KV that the request may come to hold."""
        return self.prompt_tokens + self.output_tokens
