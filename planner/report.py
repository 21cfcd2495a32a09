"""A decision for people: on the console, and as the lines that every other view shares."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.measurement import Measurement, Spread
from planner.verdict import Decision, shown

MERGED = 1.05  # tokens per chunk: beyond, a gap is not one token's
COLOURS = {
    "hold": "green",
    "inconclusive": "yellow",
    "client-limited": "yellow",
    "target-errors": "red",
}
PLAIN = {
    "hold": "Both P99 SLOs are met at this rate.",
    "add-prefill": "The time to first token is too long because prefill is short.",
    "add-decode": "Decode is short: requests wait for a slot there, or its steps are too slow.",
    "add-both": "Prefill and decode are both short.",
    "lower-max-running-requests": "Decode batches grow too large; smaller ones still leave room.",
    "raise-max-running-requests": "Decode is full at its cap although larger batches would be fast enough.",
    "fix-transfer": "Time is lost between prefill and decode; more instances would not give it back.",
    "change-routing": "Prefill has the capacity; the router does not spread the work well.",
    "infeasible": "No number of instances meets the SLOs; the levers are listed below.",
    "inconclusive": "The run does not settle it; no advice is given.",
    "client-limited": "The load generator was the limit; nothing is said of the cluster.",
    "target-errors": "Requests failed; no scaling advice is given.",
}


def console(measurement: Measurement, decision: Decision) -> RenderableType:
    """Verdict in plain words, numbers, reasons, what next."""
    m, colour = measurement, COLOURS.get(decision.verdict, "red")
    parts: list[RenderableType] = [Text("")]
    parts += [Text(line, style="bold yellow") for line in banners(m)]
    parts.append(Text(f"Verdict: {decision.headline()}", style=f"bold {colour}"))
    parts.append(Text(plain_words(decision)))
    parts += [Text(""), _table(m), Text(arrivals_line(m), style="dim")]
    parts += [Text(line, style="dim") for line in (lengths_line(m),) if line] + [Text("")]
    parts += [Text(f"- {reason}") for reason in decision.reasons]
    parts += [Text(f"! {warning}", style="yellow") for warning in m.warnings]
    if line := prediction_line(decision):
        parts.append(Text(line))
    if decision.next_command:
        parts.append(Text(f"Next: {decision.next_command}", style="bold"))
    return Group(*parts)


def plain_words(decision: Decision) -> str:
    """What the verdict says, for somebody who sees one for the first time."""
    return PLAIN.get(decision.verdict, "")


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
        f"+ {a.lost} lost; measured from {m.warmup_s or 0:.1f} s of {min(m.stopped_at_s, m.window_s):.1f} s on "
        f"({m.excluded} before are left out)"
    )


def lengths_line(m: Measurement) -> str:
    """Lengths and prefix hits: asked for and found; '' where the server tells no prompt tokens."""
    i, o = m.input_tokens, m.output_tokens
    if "told_mean" not in i or "mean" not in o:
        return ""
    wanted = "" if m.wanted_hit_rate is None else f" ({100 * m.wanted_hit_rate:.1f} % wanted)"
    return (
        f"Prompts {i['told_mean']:.0f} tokens ({i['asked_mean']:.0f} asked, error P50 {100 * i['error_p50']:.1f} %, "
        f"P99 {100 * i['error_p99']:.1f} %), prefix hits {100 * i['hit_rate']:.1f} %{wanted}; "
        f"answers {o['mean']:.0f} tokens ({o['asked_mean']:.0f} asked)"
    )


def prediction_line(decision: Decision) -> str:
    """What the proposal is expected to do; '' where nothing is known."""
    p = decision.proposal
    if p is None or p.predicted_ttft_p99_ms is None or p.predicted_tpot_p99_ms is None:
        return ""
    return (
        f"Predicted at {shown(p)}: TTFT P99 {p.predicted_ttft_p99_ms:.0f} ms, "
        f"TPOT P99 {p.predicted_tpot_p99_ms:.1f} ms."
    )


ROWS = (
    ("TTFT", "ttft_ms"),
    ("TTFT from sent", "ttft_from_sent_ms"),
    ("TPOT", "tpot_ms"),
    ("ITL", "itl_ms"),
    ("lag", "lag_ms"),
)
HEAD = ("ms", "P50", "P90", "P99", "95 % interval", "SLO", "over it", "n (effective)")


def rows(m: Measurement) -> list[list[str]]:
    """The table's cells."""
    slo = {"TTFT": m.slo.ttft_p99_ms, "TPOT": m.slo.tpot_p99_ms}
    out = []
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
        out.append([name, _ms(s.p50), _ms(s.p90), _ms(s.p99), interval, limit, over, size])
    return [*out, *_class_rows(m)]


def _class_rows(m: Measurement) -> list[list[str]]:
    """TTFT and TPOT of each class, where there are several."""
    out = []
    for name, c in m.classes.items() if len(m.classes) > 1 else ():
        slo = c.slo or m.slo
        for what, told, limit, rate in (
            (
                "TTFT",
                (c.ttft_p50_ms, c.ttft_p90_ms, c.ttft_p99_ms),
                slo.ttft_p99_ms,
                c.ttft_violation_rate,
            ),
            (
                "TPOT",
                (c.tpot_p50_ms, c.tpot_p90_ms, c.tpot_p99_ms),
                slo.tpot_p99_ms,
                c.tpot_violation_rate,
            ),
        ):
            cells = [f"{what} {name}", *map(_ms, told), "", f"{limit:g}", f"{100 * rate:.2f} %"]
            out.append([*cells, str(c.n)])
    return out


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _table(m: Measurement) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for k, name in enumerate(HEAD):
        table.add_column(name, justify="left" if k == 0 else "right", no_wrap=True)
    for row in rows(m):
        table.add_row(*row)
    return table
