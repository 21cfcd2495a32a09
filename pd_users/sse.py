"""Server-sent events out of bytes, by the WHATWG text (HTML, 9.2.6), incrementally. Pure.

Bytes may be cut anywhere, inside a line end or a UTF-8 character as well. Lines end in LF, CR or
CRLF, also mixed; a CR ends its line at once, and an LF that follows it, be it in the next read, is
swallowed. Field values stay bytes: JSON is UTF-8 anyhow. The cost is linear in the bytes.

Two liberties, both towards servers that do not keep to the text: ``event: error`` without data is
handed on (Dynamo puts the message into a comment beside it), and ``flush`` gives the event that
was not closed by a blank line when the stream ended.
"""

Event = tuple[bytes, bytes]  # name (b"" where none was given), data

_BOM = b"\xef\xbb\xbf"


class SseDecoder:
    """Feed it bytes, get the events that they completed."""

    def __init__(self) -> None:
        self.clean = False  # nothing is pending: the next byte begins an event
        self.progressed = False  # the last bytes held more than comments and blank lines
        self.pending_bytes = 0  # of the event that is not complete yet, roughly
        self.comment = b""  # the last one
        self._begun = False
        self._skip_lf = False
        self._tail: list[bytes] = []  # the pieces of a line whose end has not come
        self._name = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[Event] | tuple[Event, ...]:
        """The events that ``data`` completes."""
        if (
            self.clean
            and data[:6] == b"data: "
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"\n\n")
            and b"\r" not in data
        ):  # one whole event of one line: nearly every read of a token stream
            self.progressed = True
            return ((b"", data[6:-2]),)
        self.progressed = False
        return self._lines(self._unmark(data))

    def _unmark(self, data: bytes) -> bytes:
        """Without the byte order mark at the start, and without the LF of a CRLF cut in two."""
        if not self._begun:
            data = b"".join(self._tail) + data
            self._tail = []
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._tail = [data] if data else []
                return b""
            self._begun = True
            data = data.removeprefix(_BOM)
        if self._skip_lf and data:
            self._skip_lf = False
            data = data.removeprefix(b"\n")
        return data

    def _lines(self, data: bytes) -> list[Event]:
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = data.split(b"\n")
        if lines and self._tail:
            lines[0] = b"".join((*self._tail, lines[0]))
            self._tail = []
        events: list[Event] = []
        for line in lines:
            if line:
                self._field(line)
            elif event := self._dispatch():
                events.append(event)
        if rest:
            self._tail.append(rest)
            self.pending_bytes += len(rest)
            self.progressed |= not self._tail[0].startswith(b":")
        self.clean = not (self._tail or self._data or self._name or self._skip_lf)
        return events

    def _field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if not field:
            if line.startswith(b":"):
                self.comment = value.strip()
            return
        self.progressed = True
        self.pending_bytes += len(value)
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.removeprefix(b" ")

    def _dispatch(self) -> Event | None:
        name, data = self._name, self._data
        self._name, self._data, self.pending_bytes = b"", [], 0
        if data:
            return name, data[0] if len(data) == 1 else b"\n".join(data)
        return (name, b"") if name == b"error" else None

    def flush(self) -> list[Event]:
        """The event that was still open when the stream ended."""
        self._begun = True
        if self._tail:
            self._field(b"".join(self._tail))
            self._tail = []
        event = self._dispatch()
        self.clean = True
        return [event] if event else []
