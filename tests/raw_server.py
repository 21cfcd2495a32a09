"""A server on loopback that says exactly the bytes it is told to, and logs when.

It runs in native threads, so that a test may block the event loop of the client under test.
"""

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


@dataclass
class Request:
    """What a client sent."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    arrived: float  # time.monotonic() when it had been read
    connection: int  # the how many-th connection it came on


@dataclass
class Wire:
    """The server's end of one connection; every write is logged with the moment before it."""

    sock: socket.socket
    writes: list[tuple[float, bytes]] = field(default_factory=list)

    def send(self, data: bytes) -> None:
        """Write now."""
        self.writes.append((time.monotonic(), data))
        self.sock.sendall(data)

    def chunk(self, data: bytes) -> None:
        """Write one HTTP chunk."""
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def reset(self) -> None:
        """Break the connection off."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def wait_for_close(self, timeout_s: float = 5.0) -> bool:
        """Whether the client closed the connection in time."""
        self.sock.settimeout(timeout_s)
        with suppress(ConnectionError):
            while self.sock.recv(65536):
                pass
        return True


# Answers one request; True keeps the connection open for the next one.
Handler = Callable[[Wire, Request], bool | None]


class RawServer:
    """Accepts until closed; ``requests`` and ``wires`` are its log."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.wires: list[Wire] = []
        self.closed_by_client = threading.Semaphore(0)
        self._handler = handler
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(10)
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            wire = Wire(sock)
            self.wires.append(wire)
            while request := read_request(sock, len(self.wires)):
                self.requests.append(request)
                if not self._handler(wire, request):
                    break
        except OSError:
            pass
        finally:
            sock.close()
            self.closed_by_client.release()

    def close(self) -> None:
        """Accept no more, and close what is open."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept, which would hold the port
        self._listener.close()
        for wire in self.wires:
            wire.sock.close()


def read_request(sock: socket.socket, connection: int) -> Request | None:
    """The next request; None when the client is gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += sock.recv(65536)
    return Request(method, target, headers, body, time.monotonic(), connection)


@contextmanager
def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    """A server for the length of a test."""
    server = RawServer(handler, tls)
    try:
        yield server
    finally:
        server.close()
