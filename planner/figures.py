"""Figures of the report, as plotly's own JSON: no import of plotly, which takes half a second.

Colours that must suit a light and a dark page are set by the page; those of the data suit both.
"""

import math
from typing import Any

import numpy as np

from planner.calibrate import UNKNOWN_CAP
from planner.measurement import Measurement
from planner.records import Floats, Records
from planner.verdict import Part
from planner.whatif import WhatIf
from planner.window import in_flight, in_window

Figure = dict[str, Any]
MAX_POINTS = 3000
BLUE, ORANGE, RED, GREY = "#3b82f6", "#e08a1e", "#e5484d", "#8b97a6"
STAGE_COLOURS = ("#8b97a6", "#e5484d", "#3b82f6", "#0ea5a4", "#a855f7", "#e08a1e")


def figures(
    m: Measurement, records: Records, split: list[Part], grid: WhatIf | None
) -> list[Figure]:
    """Those for which the run has anything to show."""
    window = records.where(in_window(records, m.warmup_s or 0.0))
    ok = window.where(window.ok)
    out = [
        cdf("TTFT", 1000 * ok.ttft_s, m.slo.ttft_p99_ms),
        cdf("TPOT", 1000 * ok.tpot_s, m.slo.tpot_p99_ms),
        over_time(records, m),
        flight(records, m),
        stages(split) if split else None,
        heat(grid, m) if grid and grid.cells else None,
    ]
    return [figure for figure in out if figure is not None]


def _figure(title: str, x: str, y: str, data: list[Figure], **layout: Any) -> Figure:
    base: Figure = {
        "xaxis": {"title": {"text": x}, "zeroline": False, **layout.pop("xaxis", {})},
        "yaxis": {
            "title": {"text": y, "standoff": 8},
            "zeroline": False,
            "automargin": True,
            **layout.pop("yaxis", {}),
        },
        "showlegend": False,
        "margin": {"l": 58, "r": 18, "t": 12, "b": 46},
        "height": 290,
        **layout,
    }
    return {"title": title, "data": data, "layout": base}


def _line(
    axis: str, value: float, text: str, colour: str = RED, side: str = "left"
) -> tuple[Figure, Figure]:
    """A dotted line across the figure, and its label, for which ``side`` is where it begins."""
    across, along = ("x", "y") if axis == "y" else ("y", "x")
    shape = {
        "type": "line",
        f"{along}0": value,
        f"{along}1": value,
        f"{across}0": 0,
        f"{across}1": 1,
        f"{across}ref": "paper",
        "line": {"color": colour, "dash": "dot", "width": 1.5},
    }
    vertical = axis == "x"
    note = {
        "text": text,
        "showarrow": False,
        "font": {"color": colour, "size": 11},
        "x": value if vertical else 1,
        "y": 0.02 if vertical else value,
        "xref": "x" if vertical else "paper",
        "yref": "paper" if vertical else "y",
        "xanchor": side if vertical else "right",
        "yanchor": "bottom",
        "xshift": (4 if side == "left" else -4) if vertical else 0,
    }
    return shape, note


def cdf(name: str, values_ms: Floats, slo_ms: float) -> Figure | None:
    """The share of requests within a time, with the limit and the 99 % that must stay within it."""
    seen = np.sort(values_ms[np.isfinite(values_ms)])
    if not len(seen):
        return None
    at = np.unique(np.linspace(0, len(seen) - 1, min(len(seen), 600)).astype(int))
    far_ms = 3 * slo_ms if seen[len(seen) // 2] <= slo_ms else math.inf
    reach = max(slo_ms, min(float(seen[-1]), far_ms)) * 1.08
    side = "left" if slo_ms < 0.6 * reach else "right"
    slo_line, slo_note = _line("x", slo_ms, f"SLO {slo_ms:g} ms", side=side)
    level_line, level_note = _line("y", 0.99, "99 %", GREY)
    trace = {
        "type": "scatter",
        "mode": "lines",
        "x": seen[at].round(3).tolist(),
        "y": ((at + 1) / len(seen)).round(5).tolist(),
        "line": {"color": BLUE, "width": 2.5},
        "hovertemplate": "%{y:.1%} within %{x:.4~g} ms<extra></extra>",
    }
    return _figure(
        f"{name}: share of requests within",
        f"{name}, ms",
        "",
        [trace],
        shapes=[slo_line, level_line],
        annotations=[slo_note, level_note],
        xaxis={"range": [0, reach]},
        yaxis={"range": [0, 1.03], "tickformat": ".0%"},
    )


def over_time(records: Records, m: Measurement) -> Figure | None:
    """TTFT of each request, those over the limit in red."""
    rows = records.where(records.ok)
    if not len(rows):
        return None
    rows = rows.where(np.arange(0, len(rows), max(len(rows) // MAX_POINTS, 1)))
    ttft_ms = 1000 * rows.ttft_s
    line, note = _line("y", m.slo.ttft_p99_ms, "SLO")
    trace = {
        "type": "scattergl" if len(rows) > 1500 else "scatter",
        "mode": "markers",
        "x": rows.due_s.round(3).tolist(),
        "y": ttft_ms.round(2).tolist(),
        "marker": {
            "color": np.where(ttft_ms > m.slo.ttft_p99_ms, RED, BLUE).tolist(),
            "size": 4,
            "opacity": 0.55,
        },
        "hovertemplate": "due %{x:.1f} s: %{y:.0f} ms<extra></extra>",
    }
    return _figure(
        "TTFT of each request",
        "due, s",
        "TTFT, ms",
        [trace],
        shapes=[line, *_warmup(m)],
        annotations=[note],
        yaxis={"rangemode": "tozero"},
    )


def _warmup(m: Measurement) -> list[Figure]:
    if not m.warmup_s:
        return []
    box = {"type": "rect", "x0": 0, "x1": m.warmup_s, "y0": 0, "y1": 1, "yref": "paper"}
    return [{**box, "fillcolor": GREY, "opacity": 0.13, "line": {"width": 0}}]


def flight(records: Records, m: Measurement) -> Figure | None:
    """Requests in flight: all, and those that decode."""
    sent = records.where(np.isfinite(records.sent_s))
    if not len(sent):
        return None
    done = sent.done_s[np.isfinite(sent.done_s)]
    times = np.linspace(0, float(done.max()) if len(done) else m.stopped_at_s, 500)
    begun = np.sort(sent.first_token_s[np.isfinite(sent.first_token_s)])
    ended = np.sort(sent.last_token_s[np.isfinite(sent.last_token_s)])
    decoding = np.searchsorted(begun, times) - np.searchsorted(ended, times)
    lines = (("in flight", in_flight(sent, times), ORANGE), ("of these decoding", decoding, BLUE))
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": times.round(2).tolist(),
            "y": level.tolist(),
            "line": {"color": colour, "width": 2},
        }
        for name, level, colour in lines
    ]
    return _figure(
        "Requests in flight",
        "s",
        "requests",
        traces,
        shapes=_warmup(m),
        showlegend=True,
        legend={"orientation": "h", "y": 1.12, "x": 0},
        yaxis={"rangemode": "tozero"},
    )


def stages(split: list[Part]) -> Figure:
    """Where the TTFT was spent: on average, and by the slowest 1 %."""
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": f"{part.stage} ({part.source})",
            "y": ["slowest 1 %", "mean"],
            "x": [part.tail_ms, part.mean_ms],
            "marker": {"color": colour},
            "hovertemplate": f"{part.stage}: %{{x:.4~g}} ms<extra></extra>",
        }
        for part, colour in zip(split, STAGE_COLOURS, strict=False)
    ]
    return _figure(
        "Where the TTFT is spent, ms",
        "",
        "",
        traces,
        barmode="stack",
        bargap=0.4,
        showlegend=True,
        legend={"orientation": "h", "y": -0.18, "yanchor": "top", "x": 0, "traceorder": "normal"},
        margin={"l": 90, "r": 18, "t": 12, "b": 100},
    )


def heat(grid: WhatIf, m: Measurement) -> Figure:
    """P against D at one cap and rate: how close to its SLOs a deployment comes, 1 = at the limit."""
    cap, rate = grid.cells[0].cap, grid.cells[0].rate_rps
    at_cap = f", at most {cap} running" if cap < UNKNOWN_CAP else ""
    cells = [c for c in grid.cells if (c.cap, c.rate_rps) == (cap, rate)]
    p_axis, d_axis = sorted({c.prefill for c in cells}), sorted({c.decode for c in cells})
    at = {(c.prefill, c.decode): c for c in cells}
    level: list[list[float]] = []
    texts: list[list[str]] = []
    for d in d_axis:
        row = [at[p, d] for p in p_axis]
        used = [
            max(c.ttft_p99_ms / m.slo.ttft_p99_ms, c.tpot_p99_ms / m.slo.tpot_p99_ms) for c in row
        ]
        level.append([min(u, 2.0) for u in used])
        texts.append([_cell_text(c, c == grid.best.get(rate), c == grid.now) for c in row])
    trace = {
        "type": "heatmap",
        "x": [f"{p} P" for p in p_axis],
        "y": [f"{d} D" for d in d_axis],
        "z": level,
        "text": texts,
        "texttemplate": "%{text}",
        "textfont": {"size": 10.5, "color": "#10171f"},
        "colorscale": [
            [0, "#7dd3a8"],
            [0.45, "#bfe7c9"],
            [0.499, "#e6efc0"],
            [0.5, "#f7d9b0"],
            [0.7, "#f3a88c"],
            [1, "#ea7a75"],
        ],
        "zmin": 0,
        "zmax": 2,
        "xgap": 3,
        "ygap": 3,
        "showscale": False,
        "hovertemplate": "%{x} %{y}: %{z:.2f} of the nearer SLO<extra></extra>",
    }
    return _figure(
        f"What if: predicted TTFT | TPOT P99, ms{at_cap}",
        "",
        "",
        [trace],
        height=max(290, 58 * len(d_axis) + 70),
        margin={"l": 46, "r": 18, "t": 12, "b": 34},
    )


def _cell_text(cell: Any, best: bool, now: bool) -> str:
    ttft = "∞" if math.isinf(cell.ttft_p99_ms) else f"{cell.ttft_p99_ms:.0f}"
    mark = "<br><b>now</b>" if now else ""
    mark += "<br><b>cheapest</b>" if best else ""
    return f"{ttft} | {cell.tpot_p99_ms:.1f}{mark}"
