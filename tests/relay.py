"""A TCP relay on loopback that keeps every byte: what master and workers really say to each other."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Relay:
    """Between a client and ``127.0.0.1:port``; ``said`` is all of it, both ways."""

    def __init__(self, port: int) -> None:
        self.said = bytearray()
        self._there = port
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                self._open.append(here)
                try:
                    there = socket.create_connection(("127.0.0.1", self._there))
                except OSError:  # a worker that is there before its master comes again
                    here.close()
                    continue
                self._open.append(there)
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.said += data
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """No more."""
        for one in (self._listener, *self._open):
            one.close()


@contextmanager
def relaying(port: int) -> Iterator[Relay]:
    """A relay for the length of a test."""
    relay = Relay(port)
    try:
        yield relay
    finally:
        relay.close()
