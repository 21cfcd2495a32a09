"""What a look at the target finds: one ``Check`` per question, for people and for programs. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from pd_users.cures import cure
from pd_users.errors import TargetError

OK, WARN, FAIL = "ok", "warn", "fail"
KEY, CONNECTION, PERFORMANCE = "key and rights", "connection and endpoints", "performance"
GROUPS = (KEY, CONNECTION, PERFORMANCE)
COLOURS = {OK: "green", WARN: "yellow", FAIL: "bold red"}


@dataclass(frozen=True, slots=True)
class Check:
    """One question, what was found, the verdict, and what to do when it is not ok."""

    group: str
    name: str
    found: str
    verdict: str = OK
    cure: str = ""
    diagnosis: str = ""  # the name in docs/troubleshooting.md


class DiagnosisError(TargetError):
    """Trouble with the target that has a name in docs/troubleshooting.md."""

    def __init__(self, diagnosis: str, found: str, advice: str = "") -> None:
        self.diagnosis = diagnosis
        self.found = found
        self.advice = advice or cure(diagnosis)
        super().__init__(f"{found.rstrip('.')} ({diagnosis}): {self.advice}.")

    def check(self, group: str, name: str) -> Check:
        """As a failed check."""
        return Check(group, name, self.found, FAIL, self.advice, self.diagnosis)


def exit_code(checks: Sequence[Check]) -> int:
    """1 when any failed, else 0."""
    return int(any(c.verdict == FAIL for c in checks))


def as_json(checks: Sequence[Check], learned: dict[str, Any]) -> dict[str, Any]:
    """The whole result as plain data."""
    return {
        "exit_code": exit_code(checks),
        "counts": {v: sum(c.verdict == v for c in checks) for v in (OK, WARN, FAIL)},
        "checks": [asdict(c) for c in checks],
        "learned": learned,
    }


def table(checks: Sequence[Check]) -> Table:
    """The result for a terminal. What a target said is shown as it is, never read as markup."""
    out = Table(show_edge=False, pad_edge=False, header_style="bold", expand=False)
    for title in ("check", "found", "", "what to do"):
        out.add_column(title, overflow="fold")
    for group in GROUPS:
        mine = [c for c in checks if c.group == group]
        if mine:
            out.add_row(Text(group, style="bold cyan"), "", "", "")
        for c in mine:
            verdict = Text(c.verdict, style=COLOURS[c.verdict])
            advice = f"{c.cure} [{c.diagnosis}]" if c.diagnosis else c.cure
            out.add_row(Text(f"  {c.name}"), Text(c.found), verdict, Text(advice))
    return out


def summary_line(checks: Sequence[Check]) -> str:
    """One line at the end."""
    counts = {v: sum(c.verdict == v for c in checks) for v in (OK, WARN, FAIL)}
    if counts[FAIL]:
        first = next(c for c in checks if c.verdict == FAIL)
        return f"Not ready: {first.name}: {first.found}. {first.cure}."
    warned = f", {counts[WARN]} to look at" if counts[WARN] else ""
    return f"Ready: {counts[OK]} checks are fine{warned}."
