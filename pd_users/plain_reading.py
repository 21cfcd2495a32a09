"""The same stream read by somebody else: plain ``requests`` and sseclient-py, which share no line with
our client. The doctor compares the two; a load is never sent this way (it reads late under load).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import nan
from typing import Any

import orjson
import requests
from sseclient import SSEClient

from pd_users.endpoint import Endpoint
from pd_users.errors import TargetError
from pd_users.target import ChatRequest

TIMEOUT_S = (5.0, 60.0)  # to connect, between reads


@dataclass(frozen=True, slots=True)
class PlainReading:
    """One stream as ``requests`` and sseclient-py saw it."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    ttft_s: float = nan  # from right before the request to the first token's event
    events: int = 0
    token_events: int = 0
    role_only_first: bool = False
    output_tokens: int = -1  # by usage
    done: bool = False


class PlainReader:
    """Reads streams one after the other on one session."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._session = requests.Session()
        self._session.trust_env = False  # neither .netrc nor a proxy that the load would not take
        if endpoint.proxy:
            self._session.proxies = {endpoint.scheme: endpoint.proxy}
        self._session.verify = endpoint.verify
        if endpoint.key:
            self._session.headers["Authorization"] = f"Bearer {endpoint.key}"
        self._session.headers.update(endpoint.headers)

    def read(self, request: ChatRequest, encoding: str = "identity") -> PlainReading:
        """POST and read to the end. Raises TargetError."""
        url = self._endpoint.origin + self._endpoint.target(request.path)
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Accept-Encoding": encoding,
        }
        sent = time.monotonic()
        try:
            with self._session.post(
                url, request.body, headers=headers, stream=True, timeout=TIMEOUT_S
            ) as answer:
                told = {name.lower(): value for name, value in answer.headers.items()}
                if answer.status_code != 200:
                    return PlainReading(answer.status_code, told)
                return _read(answer.status_code, told, SSEClient(iter(answer)), sent)
        except requests.RequestException as error:
            raise TargetError(f"plain requests: {type(error).__name__}") from None

    def close(self) -> None:
        """Close the session."""
        self._session.close()


def _read(status: int, headers: dict[str, str], events: Any, sent: float) -> PlainReading:
    first = nan
    count = token_events = 0
    tokens, role_only, done = -1, False, False
    for chunk in _chunks(events):
        if chunk is None:
            done = True
            break
        count += 1
        if has_token(chunk):
            token_events += 1
            first = time.monotonic() - sent if token_events == 1 else first
        elif count == 1:
            role_only = True
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            tokens = int(usage.get("completion_tokens", -1))
    return PlainReading(status, headers, first, count, token_events, role_only, tokens, done)


def _chunks(events: Any) -> Iterator[dict[str, Any] | None]:
    """The JSON of each event; None for [DONE]."""
    for event in events.events():
        if event.data.strip() == "[DONE]":
            yield None
            return
        try:
            chunk = orjson.loads(event.data)
        except orjson.JSONDecodeError:
            continue
        if isinstance(chunk, dict):
            yield chunk


def has_token(chunk: dict[str, Any]) -> bool:
    """Whether an event carries text, reasoning or a tool call."""
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        names = ("content", "reasoning_content", "reasoning", "tool_calls")
        if choice.get("text") or any(delta.get(name) for name in names):
            return True
    return False
