"""The whole way of a request, played: P queue, KV transfer, D slot, decode batch.

One model for both ends of the planner's work: calibration fits its figures to a run, prediction plays
it at another size.

early       (SGLang) a slot of D is taken before prefill starts, and held from then on; P makes the
            first token, which is streamed when the request enters D's batch
sequential  (vLLM) the slot is taken when the prompt is done; D makes the first token

What is left out: KV memory, failures, and that a step is a step.
"""

from planner.coupled import play_coupled
from planner.models import DecodeModel, Layout, PrefillModel, Traffic
from planner.play_decode import Played, play_decode
from planner.play_prefill import prefill_s
from planner.statistics import nearest_rank

WAITS = 0.01  # s: from there on a wait for slots feeds back on P


def play(prefill: PrefillModel, decode: DecodeModel, layout: Layout, traffic: Traffic) -> Played:
    """The whole pipeline. Beyond capacity the figures grow with the length of ``traffic``."""
    before_s = prefill_s(prefill, traffic, layout.prefill, layout.routing_prefill)
    return finish(prefill, decode, layout, traffic, play_decode(decode, layout, traffic, before_s))


def finish(
    prefill: PrefillModel, decode: DecodeModel, layout: Layout, traffic: Traffic, apart: Played
) -> Played:
    """``apart``, where P and D can be played apart; where they hold each other up, both in one."""
    if layout.admission == "early" and nearest_rank(apart.slot_wait_s, 0.95) > WAITS:
        return play_coupled(prefill, decode, layout, traffic)
    return apart
