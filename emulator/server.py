"""A live cluster behind HTTP: who gets which answer."""

import time
from random import Random

import orjson

from emulator.connection import Connection, Message
from emulator.exchange import Exchange
from emulator.faults import REFUSALS
from emulator.live import LiveCluster
from emulator.model import Deployment, Engine, Request
from emulator.openai_api import Ask, BadRequestError, read_ask
from emulator.pages import Page, Pages, error_page
from emulator.prefix_cache import block_hashes
from emulator.settings import Settings
from emulator.truth import Entry, Log

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
GATEWAY_404 = b"<!doctype html><html><title>404</title><h1>404 page not found</h1></html>"


class Server:
    """Handles the messages of all connections."""

    def __init__(self, engine: Engine, deployment: Deployment, settings: Settings) -> None:
        self._settings = settings
        self._live = LiveCluster(engine, deployment, settings.seed)
        self._log = Log()
        self._pages = Pages(self._live, self._log, settings)
        self._faults = Random(f"{settings.seed} faults")
        self._lengths = Random(f"{settings.seed} lengths")
        self._started_s = time.monotonic()

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
        blocks = block_hashes(tokens, self._live.cluster.engine.block_tokens)
        output = ask.answer_tokens(self._lengths)
        entry.request = Request(entry.received_s, max(len(tokens), 1), output, blocks)
        chunk = self._settings.tokens_per_chunk
        Exchange(self._live, connection, ask, entry, chunk, fault)
        self._live.submit(entry.request)

    def _change(self, body: bytes) -> Page:
        try:
            keys = orjson.loads(body)
            if not isinstance(keys, dict):
                raise ValueError("The body must be a JSON object.")
            self._live.change(self._live.cluster.deployment.changed(**keys))
        except ValueError as error:
            return error_page(400, "BadRequestError", str(error))
        return self._pages.deployment()


def _show(connection: Connection, page: Page) -> None:
    connection.answer(page.status, page.body, {"Content-Type": page.kind})
