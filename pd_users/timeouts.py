"""How long a request may take, in four limits. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; each is a limit of its own.

    ``first_byte_s`` runs from *sent* to the first token, ``between_bytes_s`` from there on between
    any two events; comments (heartbeats) are no progress for either.
    """

    connect_s: float = 10.0  # name, TCP, proxy and TLS together
    first_byte_s: float = 60.0
    between_bytes_s: float = 30.0
    total_s: float = 600.0
    linger_s: float = 1.0  # how long the end of the body may lag behind [DONE]


def timeouts_for(ttft_slo_s: float, tpot_slo_s: float, output_tokens: float) -> Timeouts:
    """Limits far beyond the SLO, so that they end what is broken and not what is slow; never hours.

    ``output_tokens`` is the longest answer that is expected.
    """
    first_byte_s = min(max(30.0, 30 * ttft_slo_s), 300.0)
    return Timeouts(
        connect_s=10.0,
        first_byte_s=first_byte_s,
        between_bytes_s=min(max(10.0, 200 * tpot_slo_s), 60.0),
        total_s=min(max(120.0, first_byte_s + 10 * tpot_slo_s * output_tokens), 1800.0),
    )
