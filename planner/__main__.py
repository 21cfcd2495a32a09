"""``python -m planner``: size before a run, decide after one, launch what came out. Works on files."""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from planner.config import DeploymentSection, Plan, dump_plan, load_plan
from planner.decision import Decision, decide
from planner.errors import PlanError
from planner.imports_command import add_import, run_import
from planner.launch import launch
from planner.measurement import Size
from planner.report import console
from planner.run_files import load_run
from planner.sizing import METHODS, THROUGHPUT_HEADROOM, Sizing, filled, size


def _size(options: argparse.Namespace) -> int:
    plan = load_plan(options.plan)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("method", "P", "D", "P exact", "D exact", "headroom"):
        table.add_column(name, justify="left" if name == "method" else "right")
    shown: list[Sizing] = []
    for method, headroom in (
        (METHODS[0], 0.0),
        (METHODS[0], THROUGHPUT_HEADROOM),
        (METHODS[1], None),
    ):
        try:
            shown.append(size(plan, method, headroom))
        except PlanError as error:
            if method == options.method:
                raise
            print(f"{method}: {error}", file=sys.stderr)
    for s in shown:
        cells = (
            s.method,
            str(s.prefill),
            str(s.decode),
            f"{s.prefill_exact:.2f}",
            f"{s.decode_exact:.2f}",
        )
        table.add_row(*cells, f"{100 * s.headroom:.0f} %")
    chosen = size(plan, options.method)
    out = Console(soft_wrap=True)
    out.print(
        f"{chosen.prefill}P{chosen.decode}D by {chosen.method}, ratio {chosen.ratio}",
        highlight=False,
    )
    for reason in chosen.reasons:
        out.print(f"- {reason}", markup=False, highlight=False)
    out.print(table)
    _write(options.output, dump_plan(filled(plan, chosen)))
    return 0


def _decide(options: argparse.Namespace) -> int:
    plan = load_plan(options.plan)
    measurement, records = load_run(options.run)
    slo = measurement.slo.model_copy(
        update=plan.slo.model_dump(include={"ttft_p99_ms", "tpot_p99_ms"})
    )
    deployment = measurement.deployment
    if plan.deployment is not None:
        deployment = Size(**plan.deployment.model_dump())
    measurement = measurement.model_copy(update={"slo": slo, "deployment": deployment})
    decision = decide(plan, measurement, records, options.confidence)
    Console(soft_wrap=True).print(console(measurement, decision))
    _write(options.output, dump_plan(_applied(plan, decision)))
    return decision.exit_code


def _applied(plan: Plan, decision: Decision) -> Plan:
    """The plan with the proposal as its deployment, and the round in its history."""
    told = {"verdict": decision.verdict, "rule": decision.rule}
    if decision.deployment is not None:
        told["deployment"] = decision.deployment.model_dump_json()
    update: dict[str, object] = {"history": [*plan.history, told]}
    if decision.proposal is not None:
        keys = set(DeploymentSection.model_fields)
        update["deployment"] = DeploymentSection(**decision.proposal.model_dump(include=keys))
    return plan.model_copy(update=update)


def _launch(options: argparse.Namespace) -> int:
    plan = load_plan(options.plan)
    engine = options.engine or plan.engine
    if engine is None:
        raise PlanError(
            "--engine: not given, and the plan names no engine; allowed are sglang, vllm, dynamo."
        )
    text = launch(plan, engine)
    print(text, end="")
    _write(options.output, text)
    return 0


def _write(path: str | None, text: str) -> None:
    if path is not None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise PlanError(f"-o: {path} cannot be written: {error.strerror}.") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m planner", description="Plan P and D, and decide after a run."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("size", help="instances that a plan asks for, before any run")
    p.add_argument("plan", help="plan JSON")
    p.add_argument(
        "--method", default=METHODS[0], help=f"{' | '.join(METHODS)} (default {METHODS[0]})"
    )
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
    p = commands.add_parser("launch", help="commands that start what a plan asks for")
    p.add_argument("plan", help="plan JSON")
    p.add_argument("--engine", help="sglang | vllm | dynamo (default: the plan's)")
    add_import(commands)
    for command in commands.choices.values():
        command.add_argument("-o", "--output", metavar="FILE", help="also write the result there")
    return parser


def main() -> int:
    """Run one command; 1 with one sentence for a wrong plan or run."""
    options = _parser().parse_args()
    try:
        return int(_COMMANDS[options.command](options))
    except PlanError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _import(options: argparse.Namespace) -> int:
    return run_import(options, _write)


_COMMANDS = {"import": _import, "size": _size, "decide": _decide, "launch": _launch}

if __name__ == "__main__":
    sys.exit(main())
