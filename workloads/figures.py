"""A description as a page of figures: plotly's own JSON, its script from the wheel, nothing fetched."""

import json
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from workloads.arrivals import Floats, Ints
from workloads.describe import Description, Requests
from workloads.screen import lines

BINS, POINTS = 60, 400
Figure = dict[str, Any]


def page(d: Description, requests: Requests) -> str:
    """The whole HTML."""
    found = [
        _histogram("Input and output tokens", {"input": requests.input, "output": requests.output}),
        _tail({"input": requests.input, "output": requests.output}),
    ]
    if d.moments is not None:
        found.append(_minutes(d.moments.minutes))
    if d.hit_at:
        found.append(_hits(d))
    told = "".join(f"<li>{escape(line)}</li>" for line in lines(d))
    places = "".join(f'<div id="f{k}" class="figure"></div>' for k in range(len(found)))
    draw = "".join(
        f"Plotly.newPlot('f{k}',{_json(f['data'])},{_json(f['layout'])},{{responsive:true}});"
        for k, f in enumerate(found)
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(d.name)}</title>'
        "<style>body{font:15px system-ui;max-width:70rem;margin:2rem auto;padding:0 1rem}"
        ".figure{height:24rem}</style>"
        f"<h1>{escape(d.name)}</h1><ul>{told}</ul>{places}"
        f"<script>{_plotly()}</script><script>{draw}</script></html>"
    )


def _plotly() -> str:
    """plotly.min.js as the wheel carries it; plotly itself is not imported (half a second)."""
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def _json(value: Any) -> str:
    return json.dumps(value).replace("</", "<\\/")


def _layout(title: str, x: str, y: str, **axes: Any) -> Figure:
    return {
        "title": {"text": title},
        "xaxis": {"title": {"text": x}, **axes.get("xaxis", {})},
        "yaxis": {"title": {"text": y}, **axes.get("yaxis", {})},
        "margin": {"t": 50},
    }


def _histogram(title: str, sides: dict[str, Ints]) -> Figure:
    top = max(float(v.max()) for v in sides.values())
    edges = np.geomspace(1, max(top, 2), BINS + 1)
    centres = np.sqrt(edges[1:] * edges[:-1])
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"shape": "hvh"},
            "fill": "tozeroy",
            "name": name,
            "x": _rounded(centres),
            "y": _rounded(np.histogram(values, edges)[0] / len(values)),
        }
        for name, values in sides.items()
    ]
    layout = _layout(title, "tokens", "share of requests", xaxis={"type": "log"})
    return {"data": data, "layout": layout}


def _tail(sides: dict[str, Ints]) -> Figure:
    q = 1 - np.geomspace(1, 1e-4, POINTS)
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": _rounded(np.quantile(values, q)),
            "y": _rounded(1 - q),
        }
        for name, values in sides.items()
    ]
    logs = {"type": "log"}
    layout = _layout("Share of requests longer than", "tokens", "share", xaxis=logs, yaxis=logs)
    return {"data": data, "layout": layout}


def _minutes(counts: Floats) -> Figure:
    data = [
        {"type": "bar", "x": list(range(len(counts))), "y": counts.tolist(), "name": "requests"}
    ]
    return {"data": data, "layout": _layout("Requests in each minute", "minute", "requests")}


def _hits(d: Description) -> Figure:
    sizes, rates = zip(*sorted(d.hit_at), strict=True)
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "LRU",
            "x": sizes,
            "y": _rounded(rates),
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "nothing forgotten",
            "x": [sizes[0], sizes[-1]],
            "y": [d.ideal_hit, d.ideal_hit],
        },
    ]
    layout = _layout(
        "Prefix hit rate of one cache",
        "cache in tokens",
        "share of input tokens",
        xaxis={"type": "log"},
        yaxis={"rangemode": "tozero"},
    )
    return {"data": data, "layout": layout}


def _rounded(values: Any) -> list[float]:
    return [float(f"{x:.5g}") for x in values]
