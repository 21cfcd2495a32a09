"""What an exporter counts: histograms of how long each stage took, fed as steps and requests end."""

from math import isnan

from emulator.decode import Decode
from emulator.histogram import (
    LATENESS_SECONDS,
    MILLISECONDS,
    SECONDS,
    STEP_SECONDS,
    Histogram,
)
from emulator.model import Request

# stage: the moments of a request that bound it
PREFILL_STAGES = {
    "prefill_bootstrap": ("received_s", "queued_s"),
    "prefill_queue": ("queued_s", "prefill_began_s"),
    "prefill_forward": ("prefill_began_s", "prefilled_s"),
}
DECODE_STAGES = {
    "decode_bootstrap": ("prealloc_s", "slot_s"),
    "decode_transferred": ("slot_s", "arrived_s"),
    "decode_waiting": ("arrived_s", "joined_s"),
}


class PrefillTelemetry:
    """Of one prefill instance."""

    def __init__(self) -> None:
        self.stages = {stage: Histogram(SECONDS) for stage in PREFILL_STAGES}
        self.transfer_s, self.transfer_ms = Histogram(SECONDS), Histogram(MILLISECONDS)
        self.transferred_tokens = 0
        self.requests = 0


class DecodeTelemetry:
    """Of one decode instance."""

    def __init__(self) -> None:
        self.stages = {stage: Histogram(SECONDS) for stage in DECODE_STAGES}
        self.ttft_s, self.e2e_s = Histogram(SECONDS), Histogram(SECONDS)
        self.itl_s, self.tpot_s = Histogram(STEP_SECONDS), Histogram(STEP_SECONDS)
        self.requests = self.prompt_tokens = self.aborted = 0


class Telemetry:
    """Listens to a cluster; one entry per instance that has done something."""

    def __init__(self) -> None:
        self._prefills: dict[int, PrefillTelemetry] = {}
        self._decodes: dict[int, DecodeTelemetry] = {}
        self.tick_late_s = Histogram(LATENESS_SECONDS)  # a live server's own delay

    def prefill(self, number: int) -> PrefillTelemetry:
        """Of that instance."""
        found = self._prefills.get(number)
        if found is None:
            found = self._prefills[number] = PrefillTelemetry()
        return found

    def decode(self, number: int) -> DecodeTelemetry:
        """Of that instance."""
        found = self._decodes.get(number)
        if found is None:
            found = self._decodes[number] = DecodeTelemetry()
        return found

    def on_play(self, decode: Decode) -> None:
        """Steps were played."""
        if decode.played_tokens:
            self.decode(decode.number).itl_s.observe(decode.step_s, decode.played_tokens)

    def on_end(self, request: Request) -> None:
        """A request has left the cluster, whole or not."""
        if request.prefill_instance >= 0:
            self._count_prefill(request)
        if request.decode_instance >= 0:
            self._count_decode(request)

    def _count_prefill(self, request: Request) -> None:
        at = self.prefill(request.prefill_instance)
        _observe(at.stages, PREFILL_STAGES, request)
        if not isnan(request.prefilled_s):
            at.requests += 1
        if not isnan(request.arrived_s):
            at.transfer_s.observe(request.transfer_took_s)
            at.transfer_ms.observe(request.transfer_took_s * 1000)
            at.transferred_tokens += request.prompt_tokens

    def _count_decode(self, request: Request) -> None:
        at = self.decode(request.decode_instance)
        _observe(at.stages, DECODE_STAGES, request)
        at.aborted += request.outcome != "ok"
        if not isnan(request.first_token_s):
            at.ttft_s.observe(request.first_token_s - request.received_s)
        if request.outcome != "ok":
            return
        at.requests += 1
        at.prompt_tokens += request.prompt_tokens
        at.e2e_s.observe(request.last_token_s - request.received_s)
        if request.output_tokens > 1:
            span = request.last_token_s - request.first_token_s
            at.tpot_s.observe(span / (request.output_tokens - 1))


def _observe(
    stages: dict[str, Histogram], bounds: dict[str, tuple[str, str]], request: Request
) -> None:
    for stage, (begin, end) in bounds.items():
        took = getattr(request, end) - getattr(request, begin)
        if not isnan(took):
            stages[stage].observe(took)
