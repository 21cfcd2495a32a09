"""One TCP or TLS connection, straight or through a proxy, and the moments at which bytes came in.

gevent's sockets, made explicitly: they cooperate whether or not anything was monkey patched.
"""

import base64
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

import gevent
from gevent import socket, ssl
from gevent.lock import BoundedSemaphore

from pd_users.endpoint import Endpoint
from pd_users.failures import ExchangeError
from pd_users.kernel_clock import (
    AVAILABLE,
    SO_TIMESTAMPNS,
    STAMP_SPACE,
    KernelClock,
    unpack_stamp,
)

READ_BYTES = 65536
RESOLVE_AGAIN_S = 30.0
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Connection:
    """An open connection. ``receive`` never waits; ``io`` is its read watcher on the loop."""

    def __init__(self, sock: Any, clock: KernelClock) -> None:
        self.tls = isinstance(sock, ssl.SSLSocket)
        self.idle_since = 0.0
        self._sock = sock
        self._clock = clock
        self.io = gevent.get_hub().loop.io(sock.fileno(), 1)
        self._stamping = not self.tls and AVAILABLE and _stamps(sock)
        self.stamped = self._stamping  # every read since ``begin`` bore the kernel's stamp
        self.receive: Callable[[], tuple[bytes, float]] = (
            self._receive_stamped if self._stamping else self._receive
        )
        # Below gevent's socket, whose methods would wait in the greenlet, lies the plain one.
        self._recvmsg = None if self.tls else sock._sock.recvmsg
        self._send = sock.send if self.tls else sock._sock.send
        sock.settimeout(0.0)

    def begin(self) -> None:
        """A request is about to be sent."""
        self.stamped = self._stamping

    def _receive(self) -> tuple[bytes, float]:
        """What has come, and the moment this read returned. b"": the other side closed."""
        data = self._sock.recv(READ_BYTES)
        return data, time.monotonic()

    def _receive_stamped(self) -> tuple[bytes, float]:
        """What has come, and when the kernel received the newest of it."""
        data, stamps, _, _ = self._recvmsg(READ_BYTES, STAMP_SPACE)  # type: ignore[misc]
        if not stamps:
            self.stamped = self.stamped and not data
            return data, time.monotonic()
        seconds, nanoseconds = unpack_stamp(stamps[0][2])
        return data, (seconds * 1_000_000_000 + nanoseconds - self._clock.offset_ns) * 1e-9

    def send(self, data: bytes, timeout_s: float) -> None:
        """Write it all; the socket's buffer nearly always takes it at once."""
        try:
            written = self._send(data)
        except WOULD_BLOCK:
            written = 0
        if written < len(data):
            self._sock.settimeout(timeout_s)
            self._sock.sendall(memoryview(data)[written:])
            self._sock.settimeout(0.0)

    def holds_more(self) -> bool:
        """Whether TLS has bytes for us that are no longer on the socket."""
        return bool(self._sock.pending())

    def is_alive(self) -> bool:
        """Whether an idle connection is still open: there must be nothing to read."""
        try:
            self._sock.recv(1)
        except WOULD_BLOCK:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close it, whatever is going on."""
        self.io.stop()
        self.io.close()
        with suppress(OSError):
            self._sock.close()


def _stamps(sock: Any) -> bool:
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        return bool(sock.getsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS))
    except OSError:
        return False


def _look_up(host: str, port: int) -> list[tuple[Any, ...]]:
    """Like getaddrinfo, which gevent runs in a thread; numbers need none."""
    try:
        version = ip_address(host).version
    except ValueError:
        return list(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]


class Dialer:
    """Opens connections to one endpoint."""

    def __init__(self, endpoint: Endpoint, clock: KernelClock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._context = _tls_context(endpoint) if endpoint.scheme == "https" else None
        proxy = urlsplit(endpoint.proxy)
        self._via_proxy = bool(endpoint.proxy)
        self._proxy_login = _basic(proxy.username, proxy.password)
        self._host = (proxy.hostname or "") if self._via_proxy else endpoint.host
        self._port = (proxy.port or 80) if self._via_proxy else endpoint.port
        self._addresses: list[tuple[Any, ...]] = []
        self._resolved_at = -RESOLVE_AGAIN_S
        self._resolving = BoundedSemaphore(1)
        self._turn = 0

    @property
    def proxy_header(self) -> str:
        """Of plain HTTP through a proxy; '' otherwise."""
        plain = self._via_proxy and self._context is None
        return (
            f"Proxy-Authorization: {self._proxy_login}\r\n" if plain and self._proxy_login else ""
        )

    def dial(self, timeout_s: float) -> Connection:
        """A new connection, ready to be written to; raises ExchangeError."""
        timeout = gevent.Timeout.start_new(timeout_s)
        try:
            return self._dial()
        except gevent.Timeout as late:
            if late is not timeout:
                raise
            raise self._failed(f"no connection to {self._where} within {timeout_s:g} s") from None
        finally:
            timeout.close()

    @property
    def _where(self) -> str:
        return f"{'proxy ' if self._via_proxy else ''}{self._host}:{self._port}"

    def _failed(self, detail: str) -> ExchangeError:
        return ExchangeError("proxy" if self._via_proxy else "connect", detail)

    def _dial(self) -> Connection:
        sock = self._connect()
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                if self._via_proxy:
                    self._tunnel(sock)
                sock = self._context.wrap_socket(
                    sock, server_hostname=self._endpoint.host, do_handshake_on_connect=False
                )
                self._handshake(sock)
            return Connection(sock, self._clock)
        except BaseException:
            sock.close()
            raise

    def _connect(self) -> Any:
        """A TCP connection to the first address that answers, beginning with the next in turn."""
        addresses = self._resolve()
        self._turn += 1
        start = self._turn % len(addresses)
        error: OSError | None = None
        for family, kind, protocol, _, address in addresses[start:] + addresses[:start]:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.connect(address)
            except OSError as refused:
                sock.close()
                error = refused
                continue
            except BaseException:
                sock.close()
                raise
            if error is not None:  # leave the dead ones alone until names are looked up again
                self._addresses = [a for a in addresses if a[4] == address]
            return sock
        reason = getattr(error, "strerror", None) or str(error)
        raise self._failed(f"cannot connect to {self._where}: {reason}")

    def _resolve(self) -> list[tuple[Any, ...]]:
        with self._resolving:  # one look-up for all who wait for it
            now = time.monotonic()
            if not self._addresses or now - self._resolved_at > RESOLVE_AGAIN_S:
                try:
                    self._addresses = _look_up(self._host, self._port)
                except (OSError, UnicodeError) as error:
                    if not self._addresses:
                        reason = getattr(error, "strerror", None) or str(error)
                        raise self._failed(f"the name {self._host} is unknown: {reason}") from None
                self._resolved_at = now
            return self._addresses

    def _tunnel(self, sock: Any) -> None:
        """Ask the proxy to connect us through."""
        endpoint = self._endpoint
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        there = f"{host}:{endpoint.port}"
        login = f"Proxy-Authorization: {self._proxy_login}\r\n" if self._proxy_login else ""
        sock.sendall(f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{login}\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer and len(answer) < READ_BYTES:
            piece = sock.recv(4096)
            if not piece:
                raise self._failed(f"{self._where} closed the connection when asked for {there}")
            answer += piece
        status = answer.split(b"\r\n", 1)[0].split(b" ", 2)
        if len(status) < 2 or not status[1].startswith(b"2"):
            said = b" ".join(status[1:])[:80].decode("latin-1", "replace")
            raise self._failed(f"{self._where} refused to connect to {there}: {said}")

    def _handshake(self, sock: Any) -> None:
        where = self._endpoint.authority
        try:
            sock.do_handshake()
        except ssl.CertificateError as error:
            why = f"the certificate of {where} is not trusted: {error.verify_message}"
            raise ExchangeError("tls", why) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or str(error)
            raise ExchangeError("tls", f"no TLS with {where}: {why}") from None


def _tls_context(endpoint: Endpoint) -> Any:
    cafile = endpoint.verify if isinstance(endpoint.verify, str) else None
    # gevent's own class; its create_default_context makes the standard library's unless patched.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    if cafile is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cafile)
    if endpoint.verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _basic(user: str | None, password: str | None) -> str:
    if user is None:
        return ""
    login = f"{unquote(user)}:{unquote(password or '')}".encode()
    return f"Basic {base64.b64encode(login).decode()}"
