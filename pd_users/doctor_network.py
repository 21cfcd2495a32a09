"""The doctor's questions about the way there: URL, proxy, name, TCP, TLS."""

import os
import re
import time
from typing import Any

from gevent import socket, ssl

from pd_users.channel import Channel
from pd_users.checks import CONNECTION, FAIL, OK, WARN, Check, DiagnosisError
from pd_users.endpoint import Endpoint
from pd_users.evidence import mask

CONNECT_S = 5.0
SLOW_MS = 50.0  # of a TCP handshake: the way itself is then part of every TTFT
PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy")


def _check(
    name: str, found: str, verdict: str = OK, advice: str = "", diagnosis: str = ""
) -> Check:
    return Check(CONNECTION, name, found, verdict, advice, diagnosis)


# -- the URL ----------------------------------------------------------------------------------------


def url_check(host: str, endpoint: Endpoint, channel: Channel) -> Check:
    """Where requests will go, and whether the URL's form says something else than was meant. Pure."""
    goes = f"{endpoint.origin}{endpoint.target(channel.path).partition('?')[0]}"
    if re.search(r"/v\d+$", endpoint.base_path):
        advice = f"write {endpoint.origin}{re.sub(r'(/v[0-9]+)+$', '', endpoint.base_path)}"
        return _check(
            "url", f"/v1 is there twice: requests would go to {goes}", FAIL, advice, "base-url"
        )
    known = channel.base_url
    rest = known.partition("://")[2] if known else ""
    if "/" in rest and not endpoint.base_path and rest.startswith(endpoint.host):
        return _check("url", f"requests go to {goes}", FAIL, f"write {known}", "base-url")
    if host.rstrip("/").endswith("completions"):
        return _check("url", f"{mask(host)} is a route, its base is taken: requests go to {goes}")
    return _check("url", f"requests go to {goes}")


# -- the network --------------------------------------------------------------------------------------


def network_checks(endpoint: Endpoint) -> list[Check]:
    """Name, TCP and TLS, each by itself; through a proxy only the proxy is looked at."""
    if endpoint.proxy:
        shown = mask(endpoint.proxy)
        advice = (
            f"set NO_PROXY={endpoint.host} unless it must be so: its delay is part of every TTFT"
        )
        return [_check("proxy", f"everything goes through {shown}", WARN, advice)]
    checks = _set_proxies(endpoint)
    try:
        addresses = _resolve(endpoint)
        checks.append(_check("name", f"{endpoint.host} is {', '.join(addresses[:4])}"))
        checks += _tcp_and_tls(endpoint)
    except DiagnosisError as error:
        checks.append(error.check(CONNECTION, "network"))
    return checks


def _set_proxies(endpoint: Endpoint) -> list[Check]:
    names = sorted(n for n in os.environ if n.lower() in PROXY_NAMES and os.environ[n])
    if not names:
        return []
    return [_check("proxy", f"{', '.join(names)} set, not used for {endpoint.host}")]


def _resolve(endpoint: Endpoint) -> list[str]:
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        advice = "check the host in -H, and this machine's name server"
        raise DiagnosisError(
            "connect", f"the name {endpoint.host} is unknown: {reason}", advice
        ) from None
    return list(dict.fromkeys(address[4][0] for address in found))


def _tcp_and_tls(endpoint: Endpoint) -> list[Check]:
    start = time.monotonic()
    where = f"{endpoint.host}:{endpoint.port}"
    try:
        sock = socket.create_connection((endpoint.host, endpoint.port), CONNECT_S)
    except OSError as error:
        reason = error.strerror or str(error)
        advice = (
            "check host and port of -H, that the server runs, and that no firewall is in the way"
        )
        raise DiagnosisError("connect", f"no TCP connection to {where}: {reason}", advice) from None
    took_ms = 1000 * (time.monotonic() - start)
    far = took_ms > SLOW_MS
    advice = "test from nearer: this delay is part of every TTFT" if far else ""
    checks = [_check("tcp", f"{where} in {took_ms:.1f} ms", WARN if far else OK, advice)]
    try:
        if endpoint.scheme == "https":
            checks.append(_tls_check(endpoint, sock))
    finally:
        sock.close()
    return checks


def _tls_check(endpoint: Endpoint, sock: Any) -> Check:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    if isinstance(endpoint.verify, str):
        context.load_verify_locations(endpoint.verify)
    start = time.monotonic()
    try:
        with context.wrap_socket(sock, server_hostname=endpoint.host) as wrapped:
            took_ms = 1000 * (time.monotonic() - start)
            until_s = ssl.cert_time_to_seconds(wrapped.getpeercert()["notAfter"])
            version = wrapped.version()
    except (OSError, ValueError) as error:
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
        raise DiagnosisError("tls", f"no TLS with {endpoint.authority}: {reason}") from None
    days = (until_s - time.time()) / 86400
    verdict, advice = (WARN, "renew the certificate") if days < 7 else (OK, "")
    return _check(
        "tls", f"{version} in {took_ms:.1f} ms, certificate for {days:.0f} days", verdict, advice
    )
