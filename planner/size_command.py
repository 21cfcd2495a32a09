"""``python -m planner size``: all methods side by side, and the reasons of the one that was asked for.

The one place where the planner knows of workloads: it takes a workload's requests as columns.
"""

import argparse
import math
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from planner.config import Plan, dump_plan, load_plan
from planner.demand import REQUESTS, Demand, of_columns, of_plan
from planner.errors import PlanError
from planner.prefill import floor_s, prefill_model
from planner.sizing import (
    BEST,
    DEFAULT_METHOD,
    METHODS,
    THROUGHPUT_HEADROOM,
    USUAL,
    WORST,
    Sizing,
    by_routing,
    filled,
    size,
)

SEED = 1
TURNS = 10_000  # requests of conversations, which are drawn one by one, which takes its time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("plan", help="plan JSON")
    parser.add_argument(
        "--method",
        default=DEFAULT_METHOD,
        help=f"{' | '.join(METHODS)} (default {DEFAULT_METHOD})",
    )
    parser.add_argument(
        "--workload", metavar="W", help="workload YAML or profile; default: the plan's averages"
    )


def run(options: argparse.Namespace) -> str:
    """Prints; gives the plan with the answer filled in. Raises PlanError."""
    plan = load_plan(options.plan)
    if options.method not in METHODS:
        raise PlanError(f"--method: found {options.method!r}, allowed are {', '.join(METHODS)}.")
    demand = of_workload(plan, options.workload) if options.workload else of_plan(plan)
    answers, refused = _all(plan, demand)
    out, apart = Console(soft_wrap=True), Console(soft_wrap=True, stderr=True)
    chosen = next((s for s in answers if s.method == options.method), None)
    for line in _told(plan, demand, chosen, options.method):
        out.print(line, markup=False, highlight=False)
    out.print(_table(plan, answers))
    for method, sentence in refused.items():
        if method != options.method:
            apart.print(f"{method}: {sentence}", markup=False, highlight=False)
    if chosen is None:
        raise PlanError(refused[options.method])
    return dump_plan(filled(plan, chosen))


def of_workload(plan: Plan, name: str) -> Demand:
    """The workload's requests; at the rate of its busiest stretch, where it has one."""
    from workloads.errors import ConfigError  # noqa: PLC0415  (0.1 s that only --workload needs)
    from workloads.workload import load_workload  # noqa: PLC0415

    try:
        w = load_workload(name)
        rate_rps, why = rate_to_carry(plan, w.rate_rps, w.peak_rate_rps)
        # At its peak the workload is as if it stayed there: without its course.
        steady: Any = replace(w, course=None) if getattr(w, "course", None) else w
        talks = any(c.talk for c in getattr(w, "classes", ()))
        n = TURNS if talks else REQUESTS
        sample = steady.schedule(SEED, math.inf, rate_rps).sample(n)
    except ConfigError as error:
        raise PlanError(f"--workload: {error}") from None
    columns = (sample.due_s, sample.effective_tokens, sample.output_tokens)
    return of_columns(*columns, rate_rps, f"workload {w.name}, {why}")


def rate_to_carry(plan: Plan, rate_rps: float | None, peak_rps: float | None) -> tuple[float, str]:
    """The peak; where the plan has another mean rate than the workload, the peak is as many times it."""
    mean_rps = plan.slo.target_qps if plan.slo.target_qps is not None else rate_rps
    if peak_rps is not None:
        times = mean_rps / rate_rps if mean_rps is not None and rate_rps is not None else 1.0
        told = f" (mean {mean_rps:g})" if mean_rps is not None else ""
        return peak_rps * times, f"at its peak of {peak_rps * times:g} req/s{told}"
    if mean_rps is None:
        raise PlanError(
            "slo.target_qps: missing, needed to size, and the workload has no rate_rps."
        )
    return mean_rps, f"at {mean_rps:g} req/s"


def _all(plan: Plan, demand: Demand) -> tuple[list[Sizing], dict[str, str]]:
    """The answer of each method, or why it has none."""
    answers, refused = [], {}
    asked: list[tuple[str, float | None]] = [(method, None) for method in METHODS]
    if plan.headroom is None:
        asked.insert(1, ("throughput", THROUGHPUT_HEADROOM))
    for method, headroom in asked:
        try:
            answers.append(size(plan, method, headroom, demand))
        except PlanError as error:
            refused[method] = str(error)
    return answers, refused


def _told(plan: Plan, demand: Demand, chosen: Sizing | None, method: str) -> list[str]:
    """The floor first; then the answer, its reasons, what it rests on, and other routings."""
    lines = []
    if plan.prefill.max_prefill_throughput_tokens_per_s is not None:
        lowest_ms = 1000 * floor_s(prefill_model(plan), demand.traffic)
        over = ": infeasible" if lowest_ms > plan.slo.ttft_p99_ms else ""
        lines.append(
            f"floor: an empty P has P99 TTFT {lowest_ms:.0f} ms, SLO {plan.slo.ttft_p99_ms:g} ms{over}"
        )
    if chosen is not None:
        gpus = chosen.gpus(plan)
        lines.append(
            f"{chosen.prefill}P{chosen.decode}D by {chosen.method}, ratio {chosen.ratio}, {gpus} GPUs "
            f"({chosen.prefill} x {plan.prefill.gpus} + {chosen.decode} x {plan.decode.gpus})"
        )
        lines += [f"- {reason}" for reason in chosen.reasons]
    lines.append(f"- demand: {demand.words}")
    if method == "p99" and plan.routing.prefill is None and chosen is not None:
        found = by_routing(plan, demand)
        best, worst = (f"{found[r] or 'no number of'} P" for r in (BEST, WORST))
        lines.append(
            f"- routing.prefill is not given, {USUAL} assumed; best, {BEST}: {best}; worst, {WORST}: {worst}"
        )
    return lines


def _table(plan: Plan, answers: list[Sizing]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("method", "P", "D", "P exact", "D exact", "headroom", "GPUs"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for s in answers:
        exact = "played" if math.isnan(s.prefill_exact) else f"{s.prefill_exact:.2f}"
        table.add_row(
            s.method,
            str(s.prefill),
            str(s.decode),
            exact,
            f"{s.decode_exact:.2f}",
            f"{100 * s.headroom:.0f} %",
            str(s.gpus(plan)),
        )
    return table
