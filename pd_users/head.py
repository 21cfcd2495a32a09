"""The head of a request, as bytes. Pure."""

from collections.abc import Mapping

from pd_users import VERSION
from pd_users.endpoint import Endpoint


def render_head(endpoint: Endpoint, method: str, target: str, proxy_header: str = "") -> bytes:
    """Request line and the headers that all requests to ``target`` share, without the last line."""
    posting = method == "POST"
    fields = {
        "Host": endpoint.authority,
        "User-Agent": f"pd-load-test/{VERSION}",
        "Accept": "text/event-stream, application/json" if posting else "*/*",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json" if posting else "",
        "Authorization": f"Bearer {endpoint.key}" if endpoint.key else "",
    }
    given = {name.lower() for name in endpoint.headers}
    fields = {n: v for n, v in fields.items() if v and n.lower() not in given}
    lines = "".join(f"{n}: {v}\r\n" for n, v in (fields | dict(endpoint.headers)).items())
    if endpoint.proxy and endpoint.scheme == "http":
        target = endpoint.origin + target
    return f"{method} {target} HTTP/1.1\r\n{lines}{proxy_header}".encode("latin-1")


def close_head(head: bytes, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """``head`` with the headers of this one request and the empty line."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if lines.count("\r") != len(headers) or lines.count("\n") != len(headers):
        raise ValueError("a header of a request holds a line end")
    if body is not None:
        lines += f"Content-Length: {len(body)}\r\n"
    return head + lines.encode("latin-1") + b"\r\n"
