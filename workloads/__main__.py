"""``python -m workloads``: list profiles, describe traffic in numbers, fit a profile to a trace."""

import argparse
import re
import sys
from pathlib import Path

from rich.console import Console

from workloads.describe import describe, requests_of
from workloads.errors import ConfigError
from workloads.figures import page
from workloads.profile import profile
from workloads.screen import grid, histogram, lines, row
from workloads.trace_files import FORMATS
from workloads.traces import Trace, load_trace
from workloads.workload import Workload, load_workload, names

CACHES = "0.5M,1M,2.6M,5M,10M"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)")
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


def _list(options: argparse.Namespace) -> int:
    del options
    out = Console(soft_wrap=True)
    for name in names():
        w = load_workload(name)
        rate = f"{w.rate_rps:.4g} req/s" if w.rate_rps else "closed loop" if w.users else "--rate"
        out.print(f"{name:24} {rate:14} {w.about}", highlight=False, markup=False)
    return 0


def _describe(options: argparse.Namespace) -> int:
    sizes = _sizes(options.cache_tokens)
    source = _load(options)
    requests = requests_of(source, options.seed)
    told = describe(source, requests, sizes)
    out = Console(soft_wrap=True)
    for note in source.notes:
        out.print(f"note: {note}", highlight=False, markup=False)
    out.print(grid(told), highlight=False)
    for line in (
        *lines(told),
        histogram("input tokens", requests.input),
        histogram("output tokens", requests.output),
        row(told),
    ):
        out.print(line, highlight=False, markup=False)
    if options.output:
        _write(options.output, page(told, requests))
    return 0


def _fit(options: argparse.Namespace) -> int:
    trace = _load(options)
    if not isinstance(trace, Trace):
        raise ConfigError(f"fit: {options.source} is a workload already; allowed is a trace file.")
    text, (inputs, outputs) = profile(trace)
    for note in trace.notes:
        print(f"note: {note}", file=sys.stderr)
    print(inputs.told("input"), outputs.told("output"), sep="\n", file=sys.stderr)
    if options.output:
        _write(options.output, text)
    else:
        print(text, end="")
    return 0


def _load(options: argparse.Namespace) -> Trace | Workload:
    """A profile's name, a workload file, a scenario string; all else is a trace."""
    source = options.source
    is_workload = source in names() or "(" in source or source.endswith((".yaml", ".yml"))
    if is_workload and options.format is None:
        return load_workload(source)
    if not Path(source).exists() and "." not in source and "/" not in source:
        return load_workload(source)  # a misspelt profile: it says which there are
    return load_trace(
        source,
        limit=options.limit,
        format=options.format,
        skip_bad_rows=options.skip_bad_rows,
        jitter_s=options.jitter_s,
    )


def _sizes(text: str) -> list[float]:
    found = []
    for part in text.split(","):
        match = _SIZE.fullmatch(part.strip())
        if match is None or not float(match[1]):
            raise ConfigError(
                f"--cache-tokens: found {part.strip()!r}, allowed are sizes such as 500k,2.6M."
            )
        found.append(float(match[1]) * _UNITS[match[2]])
    return found


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"-o: {path} cannot be written: {error.strerror}.") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads",
        description="Traffic: profiles that there are, traces, and fits.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the profiles that are shipped")
    p = commands.add_parser("describe", help="rates, lengths and reuse of a trace or a workload")
    p.add_argument("source", help="trace file or folder, profile, or workload file")
    p.add_argument(
        "--cache-tokens",
        default=CACHES,
        metavar="SIZES",
        help=f"cache sizes in tokens for the hit rate (default {CACHES})",
    )
    p.add_argument("--seed", type=int, default=1, help="of what is drawn at random (default 1)")
    p.add_argument("-o", "--output", metavar="FILE", help="also write figures there, as HTML")
    _trace_options(p)
    p = commands.add_parser("fit", help="a profile of a trace: numbers only, no text")
    p.add_argument("source", help="trace file or folder")
    p.add_argument("-o", "--output", metavar="FILE", help="write the YAML there, not on the screen")
    _trace_options(p)
    return parser


def _trace_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--format", choices=FORMATS, metavar="NAME", help=" | ".join(FORMATS))
    p.add_argument("--limit", type=int, metavar="N", help="only the first N rows")
    p.add_argument(
        "--skip-bad-rows",
        action="store_true",
        help="leave out rows that are broken, and count them",
    )
    p.add_argument(
        "--jitter-s",
        type=float,
        metavar="S",
        help="spread each arrival over so many seconds (default: a coarse clock's own ticks)",
    )


def main() -> int:
    """Run one command; 1 with one sentence for a wrong file or option."""
    options = _parser().parse_args()
    try:
        return int(_COMMANDS[options.command](options))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


_COMMANDS = {"list": _list, "describe": _describe, "fit": _fit}

if __name__ == "__main__":
    sys.exit(main())
