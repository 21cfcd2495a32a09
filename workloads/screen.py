"""A description on the console: a table, one row to compare with others, histograms of text."""

import numpy as np
from rich.table import Table as Grid

from workloads.arrivals import Floats, Ints
from workloads.describe import Description, Length

BARS = " ▁▂▃▄▅▆▇█"
BINS = 48


def grid(d: Description) -> Grid:
    """Lengths of all sides, one below the other."""
    out = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in (d.name, "mean", "cv", "P10", "P50", "P90", "P99", "max"):
        out.add_column(name, justify="left" if name == d.name else "right")
    sides = (
        ("input tokens", d.input),
        ("output tokens", d.output),
        ("uncached input", d.uncached),
        ("turns", d.turns),
        ("think time s", d.think_s),
    )
    for name, side in sides:
        if side is not None:
            out.add_row(name, *_cells(side))
    return out


def _cells(side: Length) -> tuple[str, ...]:
    points = (side.p10, side.p50, side.p90, side.p99, side.max)
    return (f"{side.mean:,.1f}", f"{side.cv:.2f}", *(f"{x:,.0f}" for x in points))


def lines(d: Description) -> list[str]:
    """Arrivals and reuse in words."""
    told = [
        f"requests {d.requests:,}, in:out {d.in_out:.2f}, rank correlation {d.rank_correlation:.2f}"
    ]
    if (m := d.moments) is not None:
        inside = f"{m.gap_cv_60s:.2f}" if m.gap_cv_60s is not None else "-"
        told += [
            f"arrivals {m.rate_rps:.3f} req/s over {m.span_s:,.0f} s; cv of gaps {m.gap_cv:.2f} in all, "
            f"{inside} within 60 s (1: Poisson)",
            f"busiest minute over the mean: requests {m.peak_rate:.2f}, input tokens {m.peak_input:.2f}, "
            f"output tokens {m.peak_output:.2f}",
        ]
    if d.ideal_hit is not None:
        told.append(
            f"prefix hit rate {d.ideal_hit:.3f} of all input tokens if nothing is forgotten"
        )
    if d.hit_at:
        told += [f"  a cache of {size / 1e6:.3g}M tokens: {rate:.3f}" for size, rate in d.hit_at]
        told.append(f"  all different blocks: {(d.working_set_tokens or 0) / 1e6:.3g}M tokens")
    return told


def row(d: Description) -> str:
    """One line with all numbers in a fixed order, to put below those of other traffic."""
    arrivals = "- | - | -"
    if (m := d.moments) is not None:
        inside = f"{m.gap_cv_60s:.2f}" if m.gap_cv_60s is not None else "-"
        arrivals = (
            f"{m.span_s:,.0f} s, {m.rate_rps:.2f} rps | {m.gap_cv:.2f} / {inside} | "
            f"{m.peak_rate:.2f}; {m.peak_input:.2f}; {m.peak_output:.2f}"
        )
    hit = f"{d.ideal_hit:.3f}" if d.ideal_hit is not None else "-"
    return (
        f"| {d.name} | {d.requests:,} | {arrivals} | {_side(d.input)} | {_side(d.output)} | "
        f"{d.rank_correlation:.2f} | {d.in_out:.2f} | {hit} |"
    )


def _side(s: Length) -> str:
    return f"{s.mean:,.0f} / {s.p50:,.0f} / {s.p90:,.0f} / {s.p99:,.0f} / {s.max:,.0f} ({s.cv:.2f})"


def histogram(name: str, values: "Ints | Floats") -> str:
    """Shares over logarithmic bins, in one line of text."""
    low = max(float(values.min()), 1.0)
    high = max(float(values.max()), 2 * low)
    edges = np.geomspace(low, high, BINS + 1)
    counts, _ = np.histogram(np.clip(values, low, high), edges)
    heights = np.ceil(counts / counts.max() * (len(BARS) - 1)).astype(int)
    return f"{name:14} {low:>8,.0f} {''.join(BARS[h] for h in heights)} {high:,.0f}"
