"""The cluster in real time behind HTTP."""

import asyncio
import time
from math import inf
from random import Random

import orjson

from emulator.cluster import Cluster, Listener
from emulator.connection import Connection, Message
from emulator.decode import Decode
from emulator.exchange import Exchange
from emulator.faults import REFUSALS
from emulator.model import Deployment, Engine, Request
from emulator.openai_api import Ask, BadRequestError, read_ask
from emulator.pages import Page, Pages, error_page
from emulator.prefix_cache import block_hashes
from emulator.settings import Settings
from emulator.telemetry import Telemetry
from emulator.truth import Entry, Log

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
GATEWAY_404 = b"<!doctype html><html><title>404</title><h1>404 page not found</h1></html>"


class Server:
    """Plays the cluster by the clock, and answers."""

    def __init__(self, engine: Engine, deployment: Deployment, settings: Settings) -> None:
        self._settings = settings
        self._telemetry = Telemetry()
        listener = Listener(self._on_play, self._on_end)
        self._cluster = Cluster(engine, deployment, settings.seed, True, listener)
        self._log = Log()
        self._pages = Pages(self._cluster, self._telemetry, self._log, settings)
        self._faults = Random(f"{settings.seed} faults")
        self._lengths = Random(f"{settings.seed} lengths")
        self._loop = asyncio.get_running_loop()
        self._started_s = self._now_s = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = inf

    # -- the clock ---------------------------------------------------------------------------------

    def _on_play(self, decode: Decode) -> None:
        step = decode.step_no
        for request, start in decode.running.items():
            request.client.produce(step - start)
        self._telemetry.on_play(decode)

    def _on_end(self, request: Request) -> None:
        request.client.end()
        request.client = None
        self._telemetry.on_end(request)

    def _set_timer(self) -> None:
        due_s = self._cluster.next_event_s()
        if due_s == self._timer_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = due_s
        self._timer = self._loop.call_at(due_s, self._tick) if due_s < inf else None

    def _tick(self) -> None:
        now = time.monotonic()
        self._telemetry.tick_late_s.observe(now - self._timer_s)
        self._timer, self._timer_s = None, inf
        self._advance(now)
        self._set_timer()

    def _advance(self, moment_s: float) -> float:
        """Play up to that moment, or stay where the cluster already is."""
        self._now_s = max(moment_s, self._now_s)
        self._cluster.advance(self._now_s)
        return self._now_s

    # -- messages ----------------------------------------------------------------------------------

    def handle(self, connection: Connection, message: Message) -> None:
        """A message has come in."""
        base, path = self._settings.base_path, message.path
        if path.startswith(f"{base}/v1/"):
            self._handle_v1(connection, message, path.removeprefix(base))
        elif self._settings.gateway and path.startswith("/v1/"):
            _show(connection, Page(GATEWAY_404, 404, "text/html"))
        elif message.method == "PUT" and path == "/deployment":
            _show(connection, self._change(message.body))
        else:
            _show(connection, self._pages.get(message.method, path))

    def _handle_v1(self, connection: Connection, message: Message, path: str) -> None:
        entry = None
        if path in (CHAT, TEXT) and message.method == "POST":
            entry = self._log.begin(message.headers.get("x-request-id", ""), message.received_s)
        refusal = self._refusal(message)
        if refusal:
            if entry is not None:
                entry.outcome = refusal
            connection.refuse(REFUSALS[refusal])
        elif entry is not None:
            self._complete(connection, message.body, path == CHAT, entry)
        elif path in (CHAT, TEXT):
            sentence = f"{message.method} is not allowed on {path}."
            _show(connection, error_page(405, "MethodNotAllowedError", sentence))
        else:
            _show(connection, self._pages.get(message.method, path))

    def _refusal(self, message: Message) -> str:
        """Why the key may not pass; '' when it may."""
        if not self._settings.accepts(message.headers.get("authorization", "")):
            return "401"
        lifetime_s = self._settings.key_expires_s
        over = lifetime_s is not None and message.received_s - self._started_s > lifetime_s
        return "expired" if over else ""

    def _complete(self, connection: Connection, body: bytes, chat: bool, entry: Entry) -> None:
        fault = self._settings.faults.draw(self._faults)
        if fault in REFUSALS:
            entry.outcome = fault
            connection.refuse(REFUSALS[fault])
            return
        try:
            ask = read_ask(chat, body, self._settings.model)
        except BadRequestError as error:
            entry.outcome = "404-model" if error.status == 404 else str(error.status)
            if self._settings.gateway and error.status == 404:
                connection.refuse(REFUSALS["no-choices"])  # what such a gateway says of a wrong id
            else:
                connection.answer(error.status, error.body)
            return
        self._submit(connection, ask, entry, fault)

    def _submit(self, connection: Connection, ask: Ask, entry: Entry, fault: str) -> None:
        template = self._settings.template_tokens if ask.chat else 0
        tokens = [*([""] * template), *ask.prompt]  # every chat begins with the same template
        blocks = block_hashes(tokens, self._cluster.engine.block_tokens)
        output = ask.answer_tokens(self._lengths)
        entry.request = Request(entry.received_s, max(len(tokens), 1), output, blocks)
        chunk = self._settings.tokens_per_chunk
        Exchange(self._cluster, connection, ask, entry, chunk, fault)
        # It comes in when it was read, so that ``simulate`` with the log's moments gives this run.
        self._cluster.submit(entry.request, self._advance(entry.received_s))
        self._set_timer()

    def _change(self, body: bytes) -> Page:
        try:
            keys = orjson.loads(body)
            if not isinstance(keys, dict):
                raise ValueError("The body must be a JSON object.")
            changed = self._cluster.deployment.changed(**keys)
            self._cluster.apply(changed, self._advance(time.monotonic()))
        except ValueError as error:
            return error_page(400, "BadRequestError", str(error))
        self._set_timer()
        return self._pages.deployment()


def _show(connection: Connection, page: Page) -> None:
    connection.answer(page.status, page.body, {"Content-Type": page.kind})
