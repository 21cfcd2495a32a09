"""The clients that are compared: ours, and the two that a Locust user would write."""

from locust.clients import HttpSession
from locust.contrib.fasthttp import FastHttpSession
from locust.env import Environment

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import nan
from typing import Any

from sseclient import SSEClient

from pd_users.client import Client
from pd_users.endpoint import parse_base_url
from pd_users.timeouts import Timeouts

CHAT = "/v1/chat/completions"
PATIENT = Timeouts(connect_s=30, first_byte_s=60, between_bytes_s=30, total_s=300)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as a client saw it."""

    ident: str
    sent: float
    first: float
    last: float
    chunks: int
    clock: str = "user"


Perform = Callable[[str], Seen]  # sends one request under an id


def ours(url: str, body: bytes, streams: int) -> Perform:
    """This project's client, its connections opened ahead, as a run opens them."""
    client = Client(parse_base_url(url, verify=False), PATIENT)
    client.warm(streams)

    def perform(ident: str) -> Seen:
        result = client.stream(CHAT, body, {"X-Request-Id": ident})
        if result.outcome != "ok":
            raise RuntimeError(f"{result.outcome}: {result.evidence}")
        moments = result.sent, result.first_token, result.last_token
        return Seen(ident, *moments, result.token_events, result.clock)

    return perform


def http_user(url: str, body: bytes, streams: int) -> Perform:
    """HttpUser with sseclient-py on the stream of requests."""
    events = Environment().events
    idle = [HttpSession(url, events.request, None) for _ in range(streams)]

    def perform(ident: str) -> Seen:
        session = idle.pop()
        sent = time.monotonic()
        headers = {"X-Request-Id": ident, "Content-Type": "application/json"}
        answer = session.post(CHAT, data=body, headers=headers, stream=True)
        seen = read(ident, sent, SSEClient(answer))
        idle.append(session)
        return seen

    return perform


def fast_http_user(url: str, body: bytes, streams: int) -> Perform:
    """FastHttpUser, read as the socket gives it, with sseclient-py."""
    events = Environment().events
    idle = [FastHttpSession(url, events.request, None) for _ in range(streams)]

    def perform(ident: str) -> Seen:
        session = idle.pop()
        sent = time.monotonic()
        headers = {"X-Request-Id": ident, "Content-Type": "application/json"}
        with session.post(CHAT, data=body, headers=headers, stream=True) as answer:
            seen = read(ident, sent, SSEClient(socket_chunks(answer._response)))
        idle.append(session)
        return seen

    return perform


def socket_chunks(response: Any) -> Iterator[bytes]:
    """Event by event; to iterate the response itself would wait for 4096 bytes each time."""
    while data := response.readline(b"\n\n"):
        yield bytes(data)


def read(ident: str, sent: float, events: SSEClient) -> Seen:
    """Token events and their moments, by the user's clock."""
    first, last, chunks = nan, nan, 0
    for event in events.events():
        moment = time.monotonic()
        if event.data == "[DONE]":
            continue
        choices = json.loads(event.data)["choices"]
        if choices and choices[0]["delta"].get("content"):
            first = first if chunks else moment
            last = moment
            chunks += 1
    return Seen(ident, sent, first, last, chunks)


VARIANTS: dict[str, Callable[[str, bytes, int], Perform]] = {
    "ours": ours,
    "fast-http-user": fast_http_user,
    "http-user": http_user,
}
