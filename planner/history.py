"""What the rounds before have shown: the ``history`` of a plan, as ``decide -o`` writes it.

A deployment that held is where to go back to when a smaller one does not; one that did not hold bounds
from below what is tried next.
"""

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError

from planner.config import Plan
from planner.measurement import Size
from planner.verdict import Decision, shown

NOTHING_SAID = ("client-limited", "target-errors")


def entry(decision: Decision) -> dict[str, Any]:
    """A round, for the history of the next plan."""
    told: dict[str, Any] = {"verdict": decision.verdict, "rule": decision.rule}
    if decision.deployment is not None:
        told["deployment"] = shown(decision.deployment)
        told["size"] = decision.deployment.model_dump(exclude_none=True)
    if decision.proposal is not None:
        told["proposal"] = shown(decision.proposal)
    return told


def held(plan: Plan | None, now: Size | None) -> Size | None:
    """The newest deployment of at least ``now`` on both sides that held; None: none, or ``now`` itself did."""
    if now is None:
        return None
    for size in _sizes(plan, lambda verdict: verdict == "hold"):
        if _counts(size) == _counts(now):
            return None
        if _at_most(now, size):
            return size
    return None


def did_not_hold(plan: Plan | None, then: Size) -> bool:
    """Whether a deployment at least as large, with the same cap, was tried and missed, or was not settled."""
    tried = _sizes(plan, lambda verdict: verdict != "hold" and verdict not in NOTHING_SAID)
    cap = then.max_running_requests
    return any(_at_most(then, size) and size.max_running_requests == cap for size in tried)


def _sizes(plan: Plan | None, wanted: Callable[[str], bool]) -> Iterator[Size]:
    """Of the rounds with such a verdict, newest first; what somebody wrote by hand is passed over."""
    for told in reversed(plan.history if plan else []):
        if wanted(str(told.get("verdict"))) and "size" in told:
            try:
                yield Size.model_validate(told["size"])
            except ValidationError:
                continue


def _counts(size: Size) -> tuple[int, int]:
    return size.prefill_instances, size.decode_instances


def _at_most(small: Size, large: Size) -> bool:
    return all(a <= b for a, b in zip(_counts(small), _counts(large), strict=True))
