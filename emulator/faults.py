"""Faults on purpose: what a channel or an engine does to a share of the requests. Pure."""

import random
from dataclasses import dataclass

import orjson

from emulator.openai_api import error_body

# before any load reaches the cluster: status, extra headers, body
REFUSALS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "401": (401, {}, error_body(401, "authentication_error", "Incorrect API key provided.")),
    "expired": (401, {}, error_body(401, "authentication_error", "OAuth token has expired.")),
    "404-model": (404, {}, error_body(404, "NotFoundError", "The model does not exist.")),
    "no-choices": (200, {}, orjson.dumps({"id": "none", "object": "chat.completion"})),
    "429": (429, {"Retry-After": "1"}, error_body(429, "rate_limit_error", "Too many requests.")),
    "503": (503, {}, error_body(503, "unavailable", "The model is still loading.")),
    "local-proxy-failed": (
        502,
        {},
        error_body(502, "bad_gateway", "local proxy failed: connection refused (decode)"),
    ),
}
IN_STREAM = ("reset", "error-in-stream", "truncated", "stall")
NAMES = (*REFUSALS, *IN_STREAM)


@dataclass(frozen=True, slots=True)
class Faults:
    """Which share of the requests meets which fault."""

    shares: tuple[tuple[str, float], ...] = ()

    def draw(self, rng: random.Random) -> str:
        """The fault of the next request; '' for none."""
        at = rng.random()
        for name, share in self.shares:
            if at < share:
                return name
            at -= share
        return ""


def read_fault(text: str) -> tuple[str, float]:
    """``NAME=0.02``. Raises ValueError: one sentence."""
    name, _, share = text.partition("=")
    if name not in NAMES:
        raise ValueError(f"--fault: found {name!r}, allowed are {', '.join(NAMES)}.")
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"--fault {name}: found {share!r}, allowed is a share from 0 to 1.")
    return name, value
