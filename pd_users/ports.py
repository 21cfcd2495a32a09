"""What can be wrong with the addresses that Locust binds to, told before it binds them."""

from locust.exception import RPCError

import ipaddress
import socket
import sys
from types import TracebackType
from typing import Any


def taken_port(host: str, port: int) -> str:
    """A sentence when the web UI's port cannot be bound; '' when it can."""
    try:
        socket.create_server((host or "0.0.0.0", port)).close()
    except OSError as error:
        return (
            f"--web-port: {host or '*'}:{port} cannot be bound ({error.strerror}): another Locust may run "
            "there; choose another port."
        )
    return ""


def open_to_all(host: str, port: int) -> str:
    """A warning when a web UI without a login can be reached from other machines; '' otherwise."""
    try:
        inside = ipaddress.ip_address(host or "0.0.0.0").is_loopback
    except ValueError:
        inside = host == "localhost"
    if inside:
        return ""
    return (
        f"The web UI on {host or '*'}:{port} has no login: whoever reaches it can start load on your target. "
        "Bind it to this machine (--web-host 127.0.0.1), or set --web-login, with PD_WEB_USER and "
        "PD_WEB_PASSWORD in the environment."
    )


def tell_taken_master_port() -> None:
    """Locust ends in a traceback when the master's port is taken: one sentence instead, exit code 1."""
    usual = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        if not isinstance(error, RPCError) or "bind" not in str(error):
            return usual(kind, error, trace)
        print(  # noqa: T201
            f"error: --master-bind-port: {error}: another master may run there; choose another port "
            "(and tell the workers with --master-port).",
            file=sys.stderr,
        )
        return None

    sys.excepthook = hook
