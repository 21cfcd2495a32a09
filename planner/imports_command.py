"""``python -m planner import``: engine.json and benchmark files into one profile, or into a plan."""

import argparse
from typing import Any

from planner.config import Plan, dump_plan, load_plan
from planner.engine_profile import EngineProfile, best, dump_profile, into_plan
from planner.errors import PlanError
from planner.imports import load_profile
from planner.output import write


def add_import(commands: Any) -> None:
    """The subcommand, on argparse's subparsers."""
    p = commands.add_parser("import", help="engine figures of benchmarks, probes and sweeps")
    p.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="engine.json, SGLang bench_one_batch or bench_serving JSONL, vLLM bench JSON; "
        "told apart by content",
    )
    p.add_argument("--plan", help="plan JSON to fill in; -o then writes a plan")
    for role in ("prefill", "decode"):
        p.add_argument(
            f"--{role}-instances",
            type=int,
            metavar="N",
            help=f"how many {role} instances a serving benchmark saw (default: the plan's, else 1)",
        )
    p.set_defaults(command=run_import)


def run_import(options: argparse.Namespace) -> int:
    """Read, choose, say which source won, write. Raises PlanError."""
    plan = load_plan(options.plan) if options.plan else None
    seen = [_instances(options, plan, role) for role in ("prefill", "decode")]
    profiles = [load_profile(path, *seen) for path in options.files]
    if plan is not None:
        filled, said = into_plan(plan, profiles)
        text, found = dump_plan(filled), best(profiles)[0]
    else:
        found, said = best(profiles)
        text = dump_profile(found)
    for line in [*said, *figures(found)]:
        print(line)  # noqa: T201
    write(options.output, text)
    return 0


def _instances(options: argparse.Namespace, plan: Plan | None, role: str) -> int:
    given = getattr(options, f"{role}_instances")
    if given is not None and given < 1:
        raise PlanError(f"--{role}-instances: found {given}, allowed is a whole number from 1 up.")
    if given is None and plan is not None and plan.deployment is not None:
        given = getattr(plan.deployment, f"{role}_instances")
    return int(given or 1)


def figures(profile: EngineProfile) -> list[str]:
    """The profile for a reader, a line each."""
    lines = []
    if (p := profile.prefill) is not None:
        if p.ms_per_token is not None:
            lines.append(
                f"S(L) = {p.setup_ms or 0:.2f} ms + {p.ms_per_token:.5f} ms * L + "
                f"{p.ms_per_token2 or 0:.3g} ms * L^2, overhead {p.overhead_ms or 0:.2f} ms"
            )
        if p.max_throughput_tokens_per_s is not None:
            lines.append(f"one P at most: {p.max_throughput_tokens_per_s:.0f} tokens/s")
    if profile.decode is not None:
        pairs = ", ".join(f"{b:g}: {t:.2f}" for b, t in profile.decode.curve())
        lines.append(f"TPOT of one D, batch: ms  {pairs}")
    return lines
