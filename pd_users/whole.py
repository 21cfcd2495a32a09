"""Small answers, kept whole: what a preflight or a scrape asks for."""

from dataclasses import dataclass
from math import nan

from pd_users.inflate import Inflate

MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; the names of ``headers`` are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Whole:
    """A sink that keeps the body."""

    def __init__(self) -> None:
        self.done = False
        self.progress = nan
        self.token_events = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.broken = ""
        self._body = bytearray()
        self._inflate: Inflate | None = None

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """The head has come."""
        self.status, self.headers = status, headers
        coding = headers.get("content-encoding", "").strip().lower()
        if coding not in ("", "identity"):
            self._inflate = Inflate(coding)

    def feed(self, data: bytes, moment: float) -> None:
        """A piece of the body."""
        for piece in self._inflate.feed(data) if self._inflate else (data,):
            if len(self._body) < MAX_BYTES:
                self._body += piece
            else:
                self.broken = f"an answer of more than {MAX_BYTES >> 20} MiB"
        if self._inflate and self._inflate.broken:
            self.broken = self._inflate.broken
        self.progress = moment

    def response(self) -> Response:
        """The answer, once it has ended."""
        return Response(self.status, self.headers, bytes(self._body))
