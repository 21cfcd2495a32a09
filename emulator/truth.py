"""The log of what was true: when each token was written, by request. Pure."""

from dataclasses import dataclass
from math import isnan, nan

from emulator.model import Request

HEADER = (
    "request_id,received_s,first_token_s,second_token_s,last_token_s,prompt_tokens,cached_tokens,"
    "output_tokens,prefill_instance,decode_instance,outcome\n"
)


@dataclass(slots=True, eq=False)
class Entry:
    """One completion request; the moments are those right before each chunk was written."""

    request_id: str
    received_s: float
    request: Request | None = None  # None: the cluster never saw it
    first_token_s: float = nan
    second_token_s: float = nan
    last_token_s: float = nan
    sent_tokens: int = 0
    outcome: str = ""

    def row(self) -> str:
        """As CSV."""
        moments = (self.received_s, self.first_token_s, self.second_token_s, self.last_token_s)
        times = ",".join("" if isnan(m) else f"{m:.9f}" for m in moments)
        r = self.request
        counts = (
            f"{r.prompt_tokens},{r.cached_tokens},{self.sent_tokens},"
            f"{r.prefill_instance},{r.decode_instance}"
            if r is not None
            else ",,0,-1,-1"
        )
        return f"{self.request_id},{times},{counts},{self.outcome or 'running'}\n"


class Log:
    """Entries in the order in which they came; those that are over are kept as text."""

    def __init__(self) -> None:
        self._rows: list[str] = []
        self._open: dict[int, Entry] = {}

    def begin(self, request_id: str, received_s: float) -> Entry:
        """A completion request was read."""
        clean = "".join(c if c.isprintable() and c not in ',"' else " " for c in request_id)
        entry = Entry(clean or f"anonymous-{len(self._rows)}", received_s)
        self._open[len(self._rows)] = entry
        self._rows.append("")
        if len(self._rows) % 1024 == 0:
            self._settle()
        return entry

    def _settle(self) -> None:
        over = [place for place, entry in self._open.items() if entry.outcome]
        for place in over:
            self._rows[place] = self._open.pop(place).row()

    def text(self) -> str:
        """The whole log as CSV."""
        self._settle()
        now = {place: entry.row() for place, entry in self._open.items()}
        rows = (row or now[place] for place, row in enumerate(self._rows))
        return HEADER + "".join(rows)
