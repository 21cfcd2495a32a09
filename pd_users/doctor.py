"""``python -m pd_users.doctor``: the first five minutes with a target, as a list of checks.

In this order: key and rights, connection and endpoints, performance. What the first failure makes
pointless is not asked. Exit code 0 when nothing failed, else 1.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import orjson
from rich.console import Console

from pd_users import VERSION, options
from pd_users.checks import CONNECTION, KEY, PERFORMANCE, as_json, exit_code, summary_line, table
from pd_users.endpoint import shown_url
from pd_users.evidence import mask
from pd_users.examination import Visit, examine
from pd_users.options import DEFAULT_SLO_MS
from pd_users.preflight import Learned
from pd_users.secrets import KEY_AS_ARGUMENT, guard_logs, is_key_given
from planner.config import load_plan
from planner.errors import PlanError
from workloads.errors import ConfigError


class _Parser(argparse.ArgumentParser):
    """Says what is wrong without repeating it: it may hold a key."""

    def error(self, message: str) -> NoReturn:
        if "--api-key" in message:
            message = KEY_AS_ARGUMENT
        print(f"error: {mask(message)}.", file=sys.stderr)  # noqa: T201
        sys.exit(2)


def parser() -> argparse.ArgumentParser:
    """The options; those that a run has too mean the same there."""
    p = _Parser(
        prog="python -m pd_users.doctor", description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    p.add_argument(
        "--host", "-H", default="", metavar="URL", help="base URL; default the channel's own"
    )
    for name in (
        "target",
        "model",
        "api-key-env",
        "api-key-file",
        "ttft-p99-ms",
        "tpot-p99-ms",
        "plan",
        "wait",
    ):
        p.add_argument(f"--{name}", default="", metavar="X", help=options.OPTIONS[name])
    for name, text in options.LISTS.items():
        p.add_argument(f"--{name}", default=[], action="append", metavar="URL", help=text)
    p.add_argument(
        "--direct-host", default="", metavar="URL", help="an engine behind the channel, to compare"
    )
    p.add_argument(
        "--concurrency", default="1000", metavar="N", help="requests at once in the planned run"
    )
    p.add_argument("--json", action="store_true", help="print the result as JSON")
    return p


def visit_of(given: argparse.Namespace) -> Visit:
    """The examination that the options ask for. Raises ConfigError or PlanError."""
    read = options.read(given)
    plan = load_plan(read.plan) if read.plan else None
    of_plan = (plan.slo.ttft_p99_ms, plan.slo.tpot_p99_ms) if plan else DEFAULT_SLO_MS
    if not given.concurrency.isdigit() or int(given.concurrency) < 1:
        raise ConfigError(
            f"--concurrency: found {given.concurrency!r}, allowed is a whole number from 1 up."
        )
    if not given.host and not read.target:
        raise ConfigError("--host: not given; name the base URL, such as http://127.0.0.1:8000.")
    return Visit(
        options=read,
        host=given.host,
        direct_host=given.direct_host,
        concurrency=int(given.concurrency),
        wait_s=read.wait_s if given.wait else None,
        slo_ms=(read.ttft_p99_ms or of_plan[0], read.tpot_p99_ms or of_plan[1]),
    )


def learned_facts(learned: Learned | None) -> dict[str, Any]:
    """For --json."""
    if learned is None:
        return {}
    return {
        "model": learned.model,
        "fields": list(learned.target.fields),
        "usage": learned.usage,
        "cached_tokens": learned.cached_tokens,
        "template_tokens": learned.template_tokens,
        "tokens_per_word": learned.tokens_per_word,
        "tokens_per_chunk": learned.tokens_per_chunk,
        "ttft_ms": learned.ttft_ms,
        "tpot_ms": learned.tpot_ms,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine, print, and return the exit code."""
    guard_logs()
    if is_key_given(sys.argv[1:] if arguments is None else arguments):
        parser().error("--api-key")
    given = parser().parse_args(arguments)
    try:
        visit = visit_of(given)
        examine(visit)
    except (ConfigError, PlanError) as error:
        print(f"error: {mask(str(error))}", file=sys.stderr)  # noqa: T201
        return 1
    checks = sorted(visit.checks, key=lambda c: (KEY, CONNECTION, PERFORMANCE).index(c.group))
    out = Console(soft_wrap=not sys.stdout.isatty())
    if given.json:
        told = {
            "version": VERSION,
            "host": shown_url(visit.host),
            **as_json(checks, learned_facts(visit.learned)),
        }
        print(orjson.dumps(told, option=orjson.OPT_INDENT_2).decode())  # noqa: T201
    else:
        out.print(table(checks))
        out.print(summary_line(checks), markup=False, highlight=False)
    return exit_code(checks)


if __name__ == "__main__":
    sys.exit(main())
