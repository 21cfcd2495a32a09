"""The report as one page that needs no network; whatever came from outside is escaped."""

import json
import re
from html import escape
from importlib.util import find_spec
from pathlib import Path
from string import Template

from planner.figures import figures
from planner.measurement import Measurement, Size
from planner.records import Records
from planner.report import (
    HEAD,
    arrivals_line,
    banners,
    lengths_line,
    plain_words,
    rows,
)
from planner.verdict import Decision, Proposal, counted, shown
from planner.whatif import around

_ENTRY = re.compile(r"docs/troubleshooting\.md#[a-z0-9-]+")


def html(measurement: Measurement, decision: Decision, records: Records) -> str:
    """The report page."""
    m = measurement
    shapes = figures(m, records, decision.ttft_split, around(decision, m, records))
    kind = "good" if decision.exit_code == 0 else "doubt" if decision.exit_code >= 20 else "act"
    notes = [*m.warnings, *m.notes]
    return _page().substitute(
        title=escape(f"{decision.verdict} - {m.run_id}"),
        subtitle=escape(_subtitle(m)),
        banners="".join(f'<p class="banner">{escape(b)}</p>' for b in banners(m)),
        kind=kind,
        headline=escape(decision.headline()),
        plain=escape(plain_words(decision)),
        moves=_moves(decision),
        reasons="".join(f"<li>{_linked(escape(r))}</li>" for r in decision.reasons),
        next=f"<pre>{escape(decision.next_command)}</pre>" if decision.next_command else "",
        head="".join(f"<th>{escape(name)}</th>" for name in HEAD),
        cells=_cells(m),
        arrivals=escape(f"{arrivals_line(m)}. {lengths_line(m)}"),
        warnings="".join(f'<p class="soft">{escape(note)}</p>' for note in notes),
        plots="".join(
            f'<section class="card"><h2>{escape(f["title"])}</h2><div id="plot{k}"></div></section>'
            for k, f in enumerate(shapes)
        ),
        facts="".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in _facts(m, decision)),
        plotly=_plotly(),
        figures=_json(shapes),
    )


def _linked(text: str) -> str:
    """Escaped text whose entries of the troubleshooting page are links, as seen from runs/<run>/."""
    return _ENTRY.sub(r'<a href="../../\g<0>">\g<0></a>', text)


def _subtitle(m: Measurement) -> str:
    workload = m.workload.get("name", "")
    return " · ".join(
        part
        for part in (m.run_id, workload, f"{m.rate_planned_rps:.2f} req/s", m.target, m.model)
        if part
    )


def _moves(decision: Decision) -> str:
    """The deployment now and then, and what is expected there."""
    now, then = decision.deployment, decision.proposal
    boxes = _sizes(now, "now") if now else []
    if then is not None:
        boxes += [*_sizes(then, "proposed"), *_expected(then)]
    if decision.headroom_rps:
        boxes.append(("holds up to", f"{decision.headroom_rps:.1f} req/s"))
    cells = (f"<div><span>{escape(k)}</span><strong>{escape(v)}</strong></div>" for k, v in boxes)
    return f'<div class="moves">{"".join(cells)}</div>' if boxes else ""


def _sizes(size: Size, when: str) -> list[tuple[str, str]]:
    out = [(when, counted(size))]
    if size.max_running_requests is not None:
        out.append((f"max running {when}", str(size.max_running_requests)))
    return out


def _expected(then: Proposal) -> list[tuple[str, str]]:
    out = []
    if then.predicted_ttft_p99_ms is not None:
        out.append(("predicted TTFT P99", f"{then.predicted_ttft_p99_ms:.0f} ms"))
    if then.predicted_tpot_p99_ms is not None:
        out.append(("predicted TPOT P99", f"{then.predicted_tpot_p99_ms:.1f} ms"))
    return out


def _cells(m: Measurement) -> str:
    limits = {"TTFT": (m.ttft_ms, m.slo.ttft_p99_ms), "TPOT": (m.tpot_ms, m.slo.tpot_p99_ms)}
    out = []
    for row in rows(m):
        cells = [f"<td>{escape(cell)}</td>" for cell in row]
        if row[0] in limits and (p99 := limits[row[0]][0].p99) is not None:
            kind = "over" if p99 > limits[row[0]][1] else "within"
            cells[3] = f'<td class="{kind}">{escape(row[3])}</td>'
        out.append(f"<tr>{''.join(cells)}</tr>")
    return "".join(out)


def _facts(m: Measurement, decision: Decision) -> list[tuple[str, str]]:
    return [
        ("target", m.target),
        ("model", m.model),
        ("workload", f"{m.workload.get('name', '')} ({m.workload.get('digest', '')})"),
        (
            "rate",
            f"{m.rate_planned_rps:.2f} req/s planned, {m.rate_rps.get('sent', 0):.2f} sent, "
            f"{m.rate_rps.get('completed', 0):.2f} completed",
        ),
        ("SLO", f"TTFT P99 {m.slo.ttft_p99_ms:g} ms, TPOT P99 {m.slo.tpot_p99_ms:g} ms"),
        ("seed", str(m.seed)),
        ("workers", str(m.workers)),
        ("started", m.started_at),
        ("deployment", shown(m.deployment) if m.deployment else "not known"),
        ("rule", decision.rule),
        ("confidence", decision.confidence or "nothing was concluded"),
        ("versions", ", ".join(f"{k} {v}" for k, v in m.versions.items())),
        ("client", ", ".join(f"{k} {v:g}" for k, v in m.client.items())),
        *(
            (
                f"class {name}",
                f"{c.n} requests, over TTFT {100 * c.ttft_violation_rate:.2f} %, over TPOT "
                f"{100 * c.tpot_violation_rate:.2f} %",
            )
            for name, c in (m.classes.items() if len(m.classes) > 1 else ())
        ),
    ]


def _json(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _plotly() -> str:
    """plotly.min.js as the wheel carries it; plotly itself is not imported."""
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def _page() -> Template:
    return Template(Path(__file__).with_name("report_page.html").read_text(encoding="utf-8"))
