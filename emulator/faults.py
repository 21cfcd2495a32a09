"""Faults on purpose: what a channel or an engine does to a share of the requests. Pure."""

from dataclasses import dataclass
from difflib import get_close_matches
from random import Random

import orjson

from emulator.openai_api import Refusal, error_body

# Before the cluster sees the request.
REFUSALS: dict[str, Refusal] = {
    "401": Refusal(401, error_body(401, "authentication_error", "Incorrect API key provided.")),
    "expired": Refusal(401, error_body(401, "authentication_error", "OAuth token has expired.")),
    "404-model": Refusal(404, error_body(404, "NotFoundError", "The model does not exist.")),
    "no-choices": Refusal(200, orjson.dumps({"id": "none", "object": "chat.completion"})),
    "429": Refusal(
        429, error_body(429, "rate_limit_error", "Too many requests."), {"Retry-After": "1"}
    ),
    "503": Refusal(503, error_body(503, "unavailable", "The model is still loading.")),
    "local-proxy-failed": Refusal(
        502, error_body(502, "bad_gateway", "local proxy failed: dial tcp: connection refused")
    ),
}
# Half way through the answer.
IN_STREAM = ("reset", "error-in-stream", "truncated", "stall")
NAMES = (*REFUSALS, *IN_STREAM)


@dataclass(frozen=True, slots=True)
class Faults:
    """Which share of the requests meets which fault."""

    shares: tuple[tuple[str, float], ...] = ()

    def draw(self, rng: Random) -> str:
        """The fault of the next request; '' for none."""
        at = rng.random()
        for name, share in self.shares:
            if at < share:
                return name
            at -= share
        return ""


def read_faults(texts: list[str]) -> Faults:
    """From ``NAME=0.02``, several times. Raises ValueError: one sentence."""
    shares = tuple(_read(text) for text in texts)
    if sum(share for _, share in shares) > 1 + 1e-9:
        raise ValueError("--fault: the shares add up to more than 1.")
    return Faults(shares)


def _read(text: str) -> tuple[str, float]:
    name, _, share = text.partition("=")
    if name not in NAMES:
        near = get_close_matches(name, NAMES, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"--fault: found {name!r}, allowed are {', '.join(NAMES)}.{hint}")
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"--fault {name}: found {share!r}, allowed is a share from 0 to 1.")
    return name, value
