"""``python -m planner``: size before a run, decide after one, launch what came out. Works on files."""

import argparse
import sys

from planner import run_commands, size_command
from planner.config import load_plan
from planner.errors import PlanError
from planner.imports_command import add_import
from planner.launch import launch
from planner.output import write


def _size(options: argparse.Namespace) -> int:
    write(options.output, size_command.run(options))
    return 0


def _launch(options: argparse.Namespace) -> int:
    plan = load_plan(options.plan)
    engine = options.engine or plan.engine
    if engine is None:
        raise PlanError(
            "--engine: not given, and the plan names no engine; allowed are sglang, vllm, dynamo."
        )
    text = launch(plan, engine)
    sys.stdout.write(text)
    write(options.output, text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m planner", description="Plan P and D, and decide after a run."
    )
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("size", help="instances that a plan asks for, before any run")
    size_command.add_arguments(p)
    p.set_defaults(command=_size)
    run_commands.declare(commands)
    p = commands.add_parser("launch", help="commands that start what a plan asks for")
    p.add_argument("plan", help="plan JSON")
    p.add_argument("--engine", help="sglang | vllm | dynamo (default: the plan's)")
    p.set_defaults(command=_launch)
    add_import(commands)
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
