"""What a rule of the decision table says is to be done."""

from dataclasses import dataclass

from planner.attribution import Picture
from planner.measurement import Measurement, Size
from planner.models import Layout

LEVERS_TTFT = (
    "Levers: higher TP or faster prefill, shorter prompts, a better prefix hit rate, "
    "a looser TTFT SLO."
)
LEVERS_TPOT = "Levers: higher TP, speculative decoding, a smaller model, a looser TPOT SLO."


@dataclass(frozen=True, slots=True)
class Change:
    """What to do; ``layout`` is the deployment that comes out."""

    verdict: str
    rule: str
    layout: Layout
    why: str


def hidden(m: Measurement, see: Picture) -> bool:
    """Whether P is hidden behind a D that cannot take what comes."""
    return m.saturation.saturated and see.forecast.decode_utilisation(see.now) >= 1


def as_size(layout: Layout, size: Size) -> Size:
    """A layout as a deployment; a cap that was not known is only told where it is part of the cure."""
    told = size.max_running_requests is not None or layout.cap < 100_000
    return Size(
        prefill_instances=layout.prefill,
        decode_instances=layout.decode,
        max_running_requests=layout.cap if told else None,
    )
