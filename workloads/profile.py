"""A trace becomes a profile: a YAML file of numbers, without text, small enough to read and commit."""

from collections.abc import Sequence

import numpy as np

from workloads.describe import spearman
from workloads.fit import Fit, course, day_curve, fit, quantile_table
from workloads.lengths import Quantiles
from workloads.replay import Table
from workloads.reuse import hit_curve, working_set_tokens
from workloads.traces import Trace

SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)  # of the working set: where the hit curve is told
LONG_S = 2 * 86_400.0  # from here on the rate follows a curve of the day
NEAR_POISSON = 0.05
USERS = 20  # of a closed loop, for a start
WIDTH = 100


def profile(trace: Trace) -> tuple[str, tuple[Fit, Fit]]:
    """The YAML text, and the fits of input and output lengths. Raises nothing a trace can cause."""
    t = trace.table
    fits = fit(t.input), fit(t.output)
    lines = [
        f"# Fitted to {len(t)} requests of {trace.name} (read as {trace.format}).",
        f"# {fits[0].told('input')}",
        f"# {fits[1].told('output')}",
        f"about: {trace.name}, fitted",
    ]
    if t.firsts is not None and t.blocks is None:
        return "\n".join([*lines, *_talks(t, fits[1].table)]) + "\n", fits
    lines += _arrivals(trace)
    lines += lengths("input", fits[0].table) + lengths("output", fits[1].table)
    lines.append(f"rank_correlation: {spearman(t.input, t.output):.3f}")
    lines += _prefix(t)
    return "\n".join(lines) + "\n", fits


def _arrivals(trace: Trace) -> list[str]:
    due_s = trace.moments(seed=1) if trace.table.firsts is None else None
    if due_s is None or len(due_s) < 3 or trace.rate_rps is None:
        return ["# no moments: give --rate", "arrivals: {process: poisson}"]
    c = course(due_s)
    process = f"process: gamma, cv: {c.gap_cv:.3g}"
    if abs(c.gap_cv - 1) <= NEAR_POISSON:
        process = "process: poisson"
    lines = [
        f"rate_rps: {trace.rate_rps:.4g}",
        "arrivals:",
        f"  {process.replace(', ', chr(10) + '  ')}",
    ]
    if due_s[-1] >= LONG_S:
        lines += ["  rate:", f"    day: {day_curve(due_s)}"]
    elif c.cv >= NEAR_POISSON:
        lines.append(
            f"  rate: {{minutes: {{cv: {c.cv:.3f}, ar1: {c.ar1:.2f}, idle: {c.idle:.2f}}}}}"
        )
    return lines


def _prefix(t: Table) -> list[str]:
    hit = float(t.shared.sum() / t.input.sum())
    if not hit:
        return []
    each = t.shared / t.input
    between = float(((each > 0.1) & (each < 0.9)).mean())
    mode = "share" if between > 0.25 else "requests"  # few between: prompts repeat as a whole
    size = t.blocks.size if t.blocks is not None else 16
    lines = []
    if t.blocks is not None:
        whole = working_set_tokens(t.blocks)
        at = [share * whole for share in SHARES]
        curve = zip(at, hit_curve(t.blocks, t.input, at), strict=True)
        told = ", ".join(f"{tokens / 1e6:.3g}M tokens: {rate:.3f}" for tokens, rate in curve)
        lines.append(f"# hit rate with a cache of {told}")
    return [
        *lines,
        f"prefix: {{hit: {hit:.3f}, mode: {mode}, pool: 100, zipf: 1.0, block_tokens: {size}}}",
    ]


def _talks(t: Table, output: Quantiles) -> list[str]:
    assert t.firsts is not None
    later = np.ones(len(t), bool)
    later[t.starts] = False
    rows = np.flatnonzero(later)
    new = t.input[rows] - t.input[rows - 1] - t.output[rows - 1]
    think_s = t.think_s[rows][t.think_s[rows] > 0]
    lines = [f"users: {USERS}", *lengths("output", output), "sessions:"]
    lines += lengths("turns", quantile_table(np.diff(t.firsts)), "  ")
    if len(think_s):
        lines += lengths("think_s", quantile_table(think_s), "  ")
    else:
        lines += [
            "  # the trace tells no pauses: these are a guess",
            "  think_s: {dist: lognormal, mean: 30, cv: 1.7}",
        ]
    lines += lengths("first_input", quantile_table(t.input[t.starts]), "  ")
    lines += lengths(
        "new_input",
        quantile_table(np.maximum(new, 1)) if len(new) else quantile_table(np.ones(2)),
        "  ",
    )
    lines.append(f"  max_context_tokens: {int(t.input.max())}")
    return lines


def lengths(name: str, table: Quantiles, indent: str = "") -> list[str]:
    """The section of a quantile table."""
    return [
        f"{indent}{name}:",
        f"{indent}  dist: quantiles",
        *_list("q", table.q, f"{indent}  "),
        *_list("v", table.v, f"{indent}  "),
        f"{indent}  max: {table.max:.10g}",
    ]


def _list(key: str, values: Sequence[float], indent: str) -> list[str]:
    lines, line = [], f"{indent}{key}: ["
    for k, value in enumerate(values):
        word = f"{value:.10g}" + (", " if k < len(values) - 1 else "]")
        if len(line) + len(word.rstrip()) > WIDTH:
            lines.append(line.rstrip())
            line = indent + " " * (len(key) + 3)
        line += word
    return [*lines, line]
