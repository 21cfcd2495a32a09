"""Round after round on files: decide on a run, write the plan for the next, watch the trend.

The loop is: run, ``decide PLAN RUN -o NEXT.json``, apply, run. NEXT holds the proposal as its
deployment, and the rounds so far in its history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from planner.config import DeploymentSection, Plan, RoutingSection, load_plan
from planner.decision import decide
from planner.errors import PlanError
from planner.history import entry
from planner.measure import measure
from planner.measurement import Measurement, Size, Slo
from planner.records import Records
from planner.run_files import load_decision, load_run
from planner.verdict import Decision, shown

IN_A_ROW = 3  # runs over an SLO, after which a new plan is due
REPLAN = "re-plan"


def decide_files(
    plan_path: str | Path, run_path: str | Path, confidence: str = "likely"
) -> tuple[Plan, Measurement, Records, Decision]:
    """The verdict on a run, again; SLOs and deployment of the plan win over the run's."""
    plan = load_plan(plan_path)
    measurement, records = load_run(run_path)
    measurement = under(plan, measurement, records)
    return plan, measurement, records, decide(plan, measurement, records, confidence)


def under(plan: Plan, m: Measurement, records: Records) -> Measurement:
    """A run judged by the SLOs of a plan, at the deployment that the plan tells."""
    slo = Slo(ttft_p99_ms=plan.slo.ttft_p99_ms, tpot_p99_ms=plan.slo.tpot_p99_ms)
    size = Size(**plan.deployment.model_dump()) if plan.deployment else m.deployment
    if (slo, size) == (m.slo, m.deployment):
        return m
    return measure(records, m.model_copy(update={"slo": slo, "deployment": size}))


def applied(plan: Plan, decision: Decision) -> Plan:
    """The plan for the next run: the proposal as its deployment, and this round in its history."""
    update: dict[str, object] = {"history": [*plan.history, entry(decision)]}
    then = decision.proposal
    if then is not None:
        update["deployment"] = DeploymentSection(
            prefill_instances=then.prefill_instances,
            decode_instances=then.decode_instances,
            max_running_requests=then.max_running_requests,
        )
        if then.routing_prefill is not None:
            routing = plan.routing.model_dump() | {"prefill": then.routing_prefill}
            update["routing"] = RoutingSection(**routing)
    return plan.model_copy(update=update)


# -- trend -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trend:
    """Runs in order of their start, and whether the last ones ask for a new plan."""

    runs: tuple[tuple[Measurement, Decision], ...]
    replan: bool
    why: str


def trend(paths: Sequence[str | Path]) -> Trend:
    """``re-plan`` when an SLO was missed in each of the last three runs that could say anything.

    Runs of another workload or SLO are not compared. Raises PlanError.
    """
    if not paths:
        raise PlanError("trend: give the runs to look at, folders or run.json files.")
    loaded = [load_decision(path) for path in paths]
    loaded.sort(key=lambda pair: (pair[0].started_at, pair[0].run_id))
    last = loaded[-1][0]
    alike = [pair for pair in loaded if _alike(pair[0], last)]
    telling = [pair for pair in alike if pair[1].exit_code < 20]
    recent = telling[-IN_A_ROW:]
    over = [name for name in ("ttft_ms", "tpot_ms") if all(_over(m, name) for m, _ in recent)]
    replan = len(recent) == IN_A_ROW and bool(over)
    return Trend(tuple(alike), replan, _why(recent, over, len(loaded) - len(alike), replan))


def _why(
    recent: Sequence[tuple[Measurement, Decision]], over: list[str], others: int, replan: bool
) -> str:
    apart = f" {others} runs of another workload, rate or SLO were left out." if others else ""
    if replan:
        names = " and ".join(name.removesuffix("_ms").upper() for name in over)
        return (
            f"{REPLAN}: {names} P99 was over its SLO in each of the last {IN_A_ROW} runs; the last "
            f"verdict is {recent[-1][1].headline()}.{apart}"
        )
    if len(recent) < IN_A_ROW:
        return f"{len(recent)} runs say anything, {IN_A_ROW} are needed for a trend.{apart}"
    return f"No SLO was over in all of the last {IN_A_ROW} runs.{apart}"


def _alike(m: Measurement, last: Measurement) -> bool:
    near = abs(m.rate_planned_rps / max(last.rate_planned_rps, 1e-9) - 1) < 0.05
    same = m.workload.get("digest") == last.workload.get("digest")
    return same and near and m.slo == last.slo and m.emulated == last.emulated


def _over(m: Measurement, name: str) -> bool:
    limit = m.slo.ttft_p99_ms if name == "ttft_ms" else m.slo.tpot_p99_ms
    p99 = getattr(m, name).p99
    return p99 is not None and p99 > limit


def trend_table(found: Trend) -> Table:
    """One line a run."""
    out = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("run", "deployment", "TTFT P99 ms", "TPOT P99 ms", "over SLO", "verdict"):
        out.add_column(name, justify="right" if "P99" in name else "left", no_wrap=True)
    for m, decision in found.runs:
        over = [n for n in ("ttft_ms", "tpot_ms") if _over(m, n)]
        out.add_row(
            m.run_id,
            shown(m.deployment) if m.deployment else "-",
            "-" if m.ttft_ms.p99 is None else f"{m.ttft_ms.p99:.0f}",
            "-" if m.tpot_ms.p99 is None else f"{m.tpot_ms.p99:.1f}",
            ", ".join(n.removesuffix("_ms").upper() for n in over) or "-",
            decision.verdict,
        )
    return out
