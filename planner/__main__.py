"""``python -m planner``: size before a run, decide after one, launch what came out. Works on files."""

import argparse
import sys

from rich.console import Console
from rich.table import Table

from planner import run_commands
from planner.config import dump_plan, load_plan
from planner.errors import PlanError
from planner.launch import launch
from planner.output import write
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
    write(options.output, dump_plan(filled(plan, chosen)))
    return 0


def _launch(options: argparse.Namespace) -> int:
    plan = load_plan(options.plan)
    engine = options.engine or plan.engine
    if engine is None:
        raise PlanError(
            "--engine: not given, and the plan names no engine; allowed are sglang, vllm, dynamo."
        )
    text = launch(plan, engine)
    print(text, end="")
    write(options.output, text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m planner", description="Plan P and D, and decide after a run."
    )
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("size", help="instances that a plan asks for, before any run")
    p.add_argument("plan", help="plan JSON")
    p.add_argument(
        "--method", default=METHODS[0], help=f"{' | '.join(METHODS)} (default {METHODS[0]})"
    )
    p.set_defaults(command=_size)
    run_commands.declare(commands)
    p = commands.add_parser("launch", help="commands that start what a plan asks for")
    p.add_argument("plan", help="plan JSON")
    p.add_argument("--engine", help="sglang | vllm | dynamo (default: the plan's)")
    p.set_defaults(command=_launch)
    for command in commands.choices.values():
        command.add_argument("-o", "--output", metavar="FILE", help="also write the result there")
    return parser


def main() -> int:
    """Run one command; 1 with one sentence for a wrong plan or run."""
    options = _parser().parse_args()
    try:
        return int(options.command(options))
    except PlanError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
