"""A decision for people: on the console, and as one page that needs no network."""

from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.decision import Decision
from planner.measurement import Measurement, Spread
from planner.records import Floats, Records
from planner.window import in_window

MAX_POINTS = 4000
MERGED = 1.05  # tokens per chunk: beyond, a gap is not one token's
_COLOURS = {
    "hold": "green",
    "inconclusive": "yellow",
    "client-limited": "yellow",
    "target-errors": "red",
}


def console(measurement: Measurement, decision: Decision) -> RenderableType:
    """Verdict, table, reasons, what next."""
    parts: list[RenderableType] = [Text("")]
    parts += [Text(line, style="bold yellow") for line in banners(measurement)]
    parts.append(
        Text(
            f"Verdict: {decision.headline()}", style=f"bold {_COLOURS.get(decision.verdict, 'red')}"
        )
    )
    parts.append(_table(measurement))
    parts.append(Text(arrivals_line(measurement)))
    parts += [Text(f"- {reason}") for reason in decision.reasons]
    if decision.proposal is not None and decision.proposal.predicted_ttft_p99_ms is not None:
        parts.append(Text(prediction_line(decision)))
    if decision.next_command:
        parts.append(Text(f"Next: {decision.next_command}"))
    return Group(*parts)


def banners(m: Measurement) -> list[str]:
    """What a reader must know before any number."""
    lines = ["EMULATED: the target is the emulator, not an engine."] if m.emulated else []
    return [*lines, f"PARTIAL: {m.partial_reason}."] if m.partial else lines


def arrivals_line(m: Measurement) -> str:
    """Where every arrival went."""
    a = m.arrivals
    failed = ", ".join(f"{count} {name}" for name, count in a.failed.items()) or "0"
    return (
        f"{a.due} due = {a.succeeded} succeeded + {failed} failed + {a.unfinished} unfinished + {a.unsent} unsent "
        f"+ {a.lost} lost; measured from {m.warmup_s or 0:.1f} s of {min(m.stopped_at_s, m.window_s):.1f} s on"
    )


def prediction_line(decision: Decision) -> str:
    """What the proposal is expected to do."""
    p = decision.proposal
    assert p is not None
    return f"Predicted there: TTFT P99 {p.predicted_ttft_p99_ms:.0f} ms, TPOT P99 {p.predicted_tpot_p99_ms:.1f} ms."


ROWS = (
    ("TTFT", "ttft_ms"),
    ("TTFT from sent", "ttft_from_sent_ms"),
    ("TPOT", "tpot_ms"),
    ("ITL", "itl_ms"),
    ("lag", "lag_ms"),
)


def _rows(m: Measurement) -> list[list[str]]:
    slo = {"TTFT": m.slo.ttft_p99_ms, "TPOT": m.slo.tpot_p99_ms}
    rows = []
    for name, key in ROWS:
        s: Spread = getattr(m, key)
        if name == "TTFT from sent" and abs((s.p99 or 0) - (m.ttft_ms.p99 or 0)) <= 1:
            continue
        over = "" if s.violation_rate is None else f"{100 * s.violation_rate:.2f} %"
        interval = f"{_ms(s.ci_low)} .. {_ms(s.ci_high)}" if s.n_eff else ""
        limit = f"{slo[name]:g}" if name in slo else ""
        if name == "ITL" and (m.itl.get("tokens_per_chunk") or 1) > MERGED:
            name = "ITL per chunk"  # noqa: PLW2901
        size = f"{s.n} ({s.n_eff:.0f})" if s.n_eff else str(s.n)
        rows.append([name, _ms(s.p50), _ms(s.p90), _ms(s.p99), interval, limit, over, size])
    return rows


HEAD = ("ms", "P50", "P90", "P99", "95 % interval", "SLO", "over it", "n (effective)")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _table(m: Measurement) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for k, name in enumerate(HEAD):
        table.add_column(name, justify="left" if k == 0 else "right", no_wrap=True)
    for row in _rows(m):
        table.add_row(*row)
    return table


def html(measurement: Measurement, decision: Decision, records: Records) -> str:
    """The report page; everything that came from outside is escaped."""
    m = measurement
    window = records.where(in_window(records, m.warmup_s or 0.0))
    ok = window.where(window.ok)
    figures = [
        _cdf("TTFT, ms", 1000 * ok.ttft_s, m.slo.ttft_p99_ms),
        _cdf("TPOT, ms", 1000 * ok.tpot_s, m.slo.tpot_p99_ms),
        _over_time(records, m),
        _in_flight(records),
    ]
    plots = "".join(
        f.to_html(
            full_html=False,
            include_plotlyjs=False,
            config={"displayModeBar": False, "responsive": True},
        )
        for f in figures
    )
    cells = "".join(
        "<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in _rows(m)
    )
    head = "".join(f"<th>{escape(name)}</th>" for name in HEAD)
    kind = "good" if decision.exit_code == 0 else "doubt" if decision.exit_code >= 20 else "act"
    facts = {
        "target": m.target,
        "model": m.model,
        "workload": f"{m.workload.get('name', '')} ({m.workload.get('digest', '')})",
        "rate": f"{m.rate_planned_rps:.2f} req/s planned, {m.rate_rps.get('sent', 0):.2f} sent",
        "seed": str(m.seed),
        "workers": str(m.workers),
        "started": m.started_at,
        "deployment": m.deployment.model_dump_json() if m.deployment else "not known",
        "versions": ", ".join(f"{k} {v}" for k, v in m.versions.items()),
        "client": ", ".join(f"{k} {v:g}" for k, v in m.client.items()),
        "rule": decision.rule,
    }
    return _PAGE.substitute(
        title=escape(f"{decision.verdict} - {m.run_id}"),
        banners="".join(f'<p class="banner">{escape(b)}</p>' for b in banners(m)),
        kind=kind,
        headline=escape(decision.headline()),
        reasons="".join(f"<li>{escape(r)}</li>" for r in [*decision.reasons, *m.notes]),
        prediction=escape(prediction_line(decision))
        if decision.proposal and decision.proposal.predicted_ttft_p99_ms
        else "",
        next=f"<p>Next: <code>{escape(decision.next_command)}</code></p>"
        if decision.next_command
        else "",
        head=head,
        cells=cells,
        arrivals=escape(arrivals_line(m)),
        facts="".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items()),
        plotly=_plotly().offline.get_plotlyjs(),
        plots=plots,
    )


def _plotly() -> Any:
    """Plotly, imported at first use: half a second that a run should not start with."""
    import plotly.graph_objects  # noqa: PLC0415
    import plotly.offline  # noqa: PLC0415

    return plotly


def _figure(title: str, x: str, y: str) -> Any:
    axis: dict[str, Any] = {"gridcolor": "rgba(128,128,128,.2)", "zeroline": False}
    return _plotly().graph_objects.Figure(
        layout={
            "title": {"text": title, "font": {"size": 15}},
            "height": 300,
            "margin": {"l": 60, "r": 20, "t": 40, "b": 45},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": "#7a8696"},
            "xaxis": {**axis, "title": {"text": x}},
            "yaxis": {**axis, "title": {"text": y}},
            "showlegend": False,
        }
    )


def _cdf(name: str, values: Floats, slo_ms: float) -> Any:
    figure = _figure(f"{name}: share of requests within", name, "share")
    seen = np.sort(values[np.isfinite(values)])
    if len(seen):
        at = np.unique(np.linspace(0, len(seen) - 1, min(len(seen), 800)).astype(int))
        figure.add_scatter(
            x=seen[at].round(3).tolist(),
            y=((at + 1) / len(seen)).round(5).tolist(),
            mode="lines",
            line={"color": "#2563eb", "width": 2},
        )
    figure.add_vline(x=slo_ms, line={"color": "#c0392b", "dash": "dot"}, annotation_text="SLO")
    figure.add_hline(y=0.99, line={"color": "#7a8696", "dash": "dot", "width": 1})
    return figure


def _over_time(records: Records, m: Measurement) -> Any:
    figure = _figure("TTFT of each request over the run", "due, s", "TTFT, ms")
    ok = records.where(records.ok)
    step = max(len(ok) // MAX_POINTS, 1)
    figure.add_scatter(
        x=ok.due_s[::step].round(3).tolist(),
        y=(1000 * ok.ttft_s[::step]).round(2).tolist(),
        mode="markers",
        marker={"color": "#2563eb", "size": 4, "opacity": 0.6},
    )
    figure.add_hline(
        y=m.slo.ttft_p99_ms, line={"color": "#c0392b", "dash": "dot"}, annotation_text="SLO"
    )
    if m.warmup_s:
        figure.add_vrect(
            x0=0,
            x1=m.warmup_s,
            fillcolor="#7a8696",
            opacity=0.12,
            line_width=0,
            annotation_text="warm-up",
        )
    return figure


def _in_flight(records: Records) -> Any:
    figure = _figure("Requests in flight", "s", "requests")
    sent = records.where(np.isfinite(records.sent_s) & np.isfinite(records.done_s))
    if len(sent):
        times = np.linspace(0, float(sent.done_s.max()), 400)
        level = np.searchsorted(np.sort(sent.sent_s), times) - np.searchsorted(
            np.sort(sent.done_s), times
        )
        figure.add_scatter(
            x=times.round(2).tolist(),
            y=level.tolist(),
            mode="lines",
            line={"color": "#d97706", "width": 2},
        )
    return figure


_PAGE = Template(Path(__file__).with_name("report_page.html").read_text(encoding="utf-8"))
