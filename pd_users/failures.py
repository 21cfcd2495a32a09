"""The names a request can fail under.

The list is closed: whatever goes wrong is counted once, under one of these.
"""

FAILURES = {
    "connect": "no TCP connection within the connect timeout: refused, unreachable, name unknown",
    "tls": "the TLS handshake failed: wrong certificate, wrong host name, not a TLS port",
    "proxy": "the proxy cannot be reached, or refused to connect to the target",
    "auth": "HTTP 401 or 403: the key is missing, wrong or expired",
    "not-found": "HTTP 404: wrong base URL, or the model is not served there",
    "rate-limited": "HTTP 429: a gateway's quota, not the cluster's capacity",
    "unavailable": "HTTP 502, 503 or 504: nothing behind the gateway took the request",
    "http-4xx": "any other HTTP 4xx: the request was refused",
    "http-5xx": "any other HTTP 5xx: the server failed before it answered",
    "redirect": "HTTP 3xx that is not followed: another host, a second hop, or a method change",
    "protocol": "the answer is not valid HTTP, or its compression is broken or unknown",
    "not-a-stream": "HTTP 2xx whose body is not an event stream, but HTML, JSON or the like",
    "engine-error": "the stream carried an error object, an error event or finish_reason error",
    "truncated": "the body ended without a finish_reason and without [DONE]",
    "reset": "the connection broke before the answer was complete",
    "stalled": "no event for longer than the first-byte or between-bytes timeout",
    "timeout": "the answer was not complete within the total timeout",
    "empty": "the stream came to its end without a single token",
}

# HTTP statuses with a name of their own; the rest go by their class.
_BY_STATUS = {
    401: "auth",
    403: "auth",
    404: "not-found",
    407: "proxy",
    429: "rate-limited",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
}


def failure_of_status(status: int) -> str:
    """The failure that an HTTP status stands for; '' for 2xx."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    by_class = {2: "", 3: "redirect", 4: "http-4xx", 5: "http-5xx"}
    return by_class.get(status // 100, "protocol")


class ExchangeError(Exception):
    """A request failed before it got an answer: the name of the failure, and what was seen."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(detail)
        self.name = name
        self.detail = detail
