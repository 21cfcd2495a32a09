"""Connections kept open between requests."""

import time
from collections import deque

from pd_users.connection import Connection, Dialer
from pd_users.failures import ExchangeError

IDLE_S = 60.0  # an idle connection older than this is not used again


class Pool:
    """Idle connections to one endpoint, and the way to new ones."""

    def __init__(self, dialer: Dialer, connect_s: float) -> None:
        self.connected = 0  # connections opened so far
        self._dialer = dialer
        self._connect_s = connect_s
        self._idle: deque[Connection] = deque()

    def take(self) -> Connection | None:
        """An idle connection that is still open, the latest used first."""
        oldest = time.monotonic() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since > oldest and connection.is_alive():
                return connection
            connection.close()
        return None

    def dial(self) -> Connection:
        """A new connection; raises ExchangeError."""
        connection = self._dialer.dial(self._connect_s)
        self.connected += 1
        return connection

    def give_back(self, connection: Connection, *, reusable: bool) -> None:
        """A request is done with its connection."""
        if not reusable:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)

    def warm(self, count: int) -> int:
        """Open connections ahead, up to ``count`` idle ones; how many there are then."""
        try:
            while len(self._idle) < count:
                self.give_back(self.dial(), reusable=True)
        except ExchangeError:
            pass  # the first request will say why
        return len(self._idle)

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop().close()
