"""``decide``, ``explain``, ``whatif`` and ``trend``: what can be asked of runs that are on disk."""

import argparse
import sys

from rich.console import Console

from planner.config import dump_plan, load_plan
from planner.errors import PlanError
from planner.explain import explain
from planner.output import write
from planner.report import console
from planner.rounds import applied, decide_files, trend, trend_table
from planner.run_files import load_decision, load_run
from planner.whatif import models_of, parse_grid, table, what_if

WIDE = 160  # columns, where nobody looks: in a log of CI
REPLAN_EXIT = 10  # as for a verdict that asks for something else than staying


def declare(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommands."""
    p = commands.add_parser(
        "decide", help="the verdict on a run, again, without Locust; exits with its code"
    )
    p.add_argument("plan", help="plan JSON; its SLOs and deployment win over the run's")
    p.add_argument("run", help="a run's folder or its run.json")
    p.add_argument(
        "--confidence",
        default="likely",
        choices=("likely", "confirmed"),
        help="how sure (default likely)",
    )
    p.set_defaults(command=_decide)
    p = commands.add_parser("explain", help="the verdict of a run at length")
    p.add_argument("run", help="a run's folder or its run.json")
    p.set_defaults(command=_explain)
    p = commands.add_parser("whatif", help="predicted P99s of other deployments and rates")
    p.add_argument("run", help="a run's folder or its run.json")
    p.add_argument(
        "--prefill", default="", metavar="4:8", help="P (default: two fewer to two more)"
    )
    p.add_argument("--decode", default="", metavar="3:7", help="D (default: likewise)")
    p.add_argument("--max-running-requests", default="", metavar="48,64", help="caps of one D")
    p.add_argument("--rate", default="", metavar="1x:2x", help="times the run's rate (default 1x)")
    p.add_argument("--plan", help="plan JSON, for the GPUs of a P and of a D")
    p.set_defaults(command=_whatif)
    p = commands.add_parser(
        "trend", help="several runs in a row; exit code 10 when a new plan is due"
    )
    p.add_argument("runs", nargs="+", help="folders or run.json files")
    p.set_defaults(command=_trend)


def _decide(options: argparse.Namespace) -> int:
    plan, measurement, _, decision = decide_files(options.plan, options.run, options.confidence)
    Console(soft_wrap=True).print(console(measurement, decision))
    write(options.output, dump_plan(applied(plan, decision)))
    return decision.exit_code


def _explain(options: argparse.Namespace) -> int:
    text = explain(options.run)
    sys.stdout.write(text)
    write(options.output, text)
    return 0


def _whatif(options: argparse.Namespace) -> int:
    measurement, records = load_run(options.run)
    calibration = models_of(load_decision(options.run)[1])
    if calibration is None:
        raise PlanError(
            f"{options.run}: the run holds no model of the engine (its verdict says why): whatif needs "
            "a run that was long enough, of a deployment that is known."
        )
    plan = load_plan(options.plan) if options.plan else None
    grid = parse_grid(
        calibration.layout,
        options.prefill,
        options.decode,
        options.max_running_requests,
        options.rate,
    )
    gpus = (plan.prefill.gpus, plan.decode.gpus) if plan else (1, 1)
    found = what_if(calibration, measurement, records, grid, gpus)
    out = _console()
    out.print(table(found))
    slo = measurement.slo
    for rate_rps, cell in sorted(found.best.items()):
        out.print(
            f"At {rate_rps:g} req/s {cell.prefill}P{cell.decode}D with max_running_requests {cell.cap} is the "
            f"cheapest that holds TTFT {slo.ttft_p99_ms:g} and TPOT {slo.tpot_p99_ms:g} ms.",
            highlight=False,
        )
    missing = sorted({c.rate_rps for c in found.cells} - set(found.best))
    for rate_rps in missing:
        out.print(f"At {rate_rps:g} req/s nothing in the grid holds.", highlight=False)
    if found.headroom_rps:
        out.print(
            f"The present deployment is expected to hold up to {found.headroom_rps:.2f} req/s.",
            highlight=False,
        )
    return 0


def _console() -> Console:
    return Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)


def _trend(options: argparse.Namespace) -> int:
    found = trend(options.runs)
    out = _console()
    out.print(trend_table(found))
    out.print(found.why, highlight=False)
    return REPLAN_EXIT if found.replan else 0
