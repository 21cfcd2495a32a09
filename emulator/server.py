"""The cluster in real time behind HTTP."""

import asyncio
import time
from collections.abc import Callable
from math import inf
from random import Random

import orjson

from emulator.cluster import Cluster, Listener
from emulator.connection import Connection, Message
from emulator.decode import Decode
from emulator.exchange import Exchange
from emulator.faults import REFUSALS
from emulator.metrics_text import decodes_in_use, metrics_text, prefills_in_use
from emulator.model import Deployment, Engine, Request
from emulator.openai_api import Ask, BadRequestError, Refusal, error_body, read_ask
from emulator.prefix_cache import block_hashes
from emulator.settings import Settings
from emulator.telemetry import Telemetry
from emulator.truth import Entry, Log

COMPLETIONS = ("/v1/chat/completions", "/v1/completions")
JSON = "application/json"
Page = tuple[int, bytes, str]  # status, body, content type
PAGE_404 = b"<!doctype html><html><title>404</title><h1>404 page not found</h1></html>"


class Server:
    """Plays the cluster by the clock, and answers."""

    def __init__(self, engine: Engine, deployment: Deployment, settings: Settings) -> None:
        self.settings = settings
        self.telemetry = Telemetry()
        listener = Listener(self._on_play, self._on_end)
        self.cluster = Cluster(engine, deployment, settings.seed, True, listener)
        self.log = Log()
        self._faults = Random(f"{settings.seed} faults")
        self._lengths = Random(f"{settings.seed} lengths")
        self._loop = asyncio.get_running_loop()
        self._started_s = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = inf
        self._pages: dict[str, Callable[[], Page]] = {
            "/v1/models": self._models,
            "/health": lambda: (200, b"{}", JSON),
            "/health_generate": lambda: (200, b"{}", JSON),
            "/truth": lambda: (200, self.log.text().encode(), "text/csv; charset=utf-8"),
            "/workers": self._workers,
        }

    # -- the clock -----------------------------------------------------------------------------------

    def _on_play(self, decode: Decode) -> None:
        step = decode.step_no
        for request, start in decode.running.items():
            request.client.produce(step - start)
        self.telemetry.on_play(decode)

    def _on_end(self, request: Request) -> None:
        request.client.end()
        self.telemetry.on_end(request)
        request.client = None

    def _set_timer(self) -> None:
        due_s = self.cluster.next_event_s()
        if due_s == self._timer_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = due_s
        self._timer = self._loop.call_at(due_s, self._tick) if due_s < inf else None

    def _tick(self) -> None:
        now = time.monotonic()
        self.telemetry.tick_late_s.observe(now - self._timer_s)
        self._timer, self._timer_s = None, inf
        self.cluster.advance(now)
        self._set_timer()

    # -- completions ---------------------------------------------------------------------------------

    def handle(self, connection: Connection, message: Message) -> None:
        """A message has come in."""
        base = self.settings.base_path
        if message.path.startswith(f"{base}/v1/"):
            self._handle_v1(connection, message, message.path.removeprefix(base))
            return
        if self.settings.gateway and message.path.startswith("/v1/"):
            connection.answer(404, PAGE_404, {"Content-Type": "text/html"})
            return
        self._answer(connection, self._page(message, message.path))

    def _handle_v1(self, connection: Connection, message: Message, path: str) -> None:
        completion = path in COMPLETIONS and message.method == "POST"
        entry = None
        if completion:
            request_id = message.headers.get("x-request-id", "")
            entry = self.log.begin(request_id, message.received_s)
        refusal = self._refused(message, entry is not None)
        if refusal is not None:
            outcome, answer = refusal
            if entry is not None:
                entry.outcome = outcome
            connection.refuse(answer)
        elif entry is None:
            self._answer(connection, self._page(message, path))
        else:
            self._complete(connection, message, path, entry)

    def _refused(self, message: Message, completion: bool) -> tuple[str, Refusal] | None:
        settings = self.settings
        if not settings.accepts(message.headers.get("authorization", "")):
            return "401", REFUSALS["401"]
        lifetime_s = settings.key_expires_s
        if lifetime_s is not None and message.received_s - self._started_s > lifetime_s:
            return "expired", REFUSALS["expired"]
        return None

    def _complete(self, connection: Connection, message: Message, path: str, entry: Entry) -> None:
        fault = self.settings.faults.draw(self._faults)
        if fault in REFUSALS:
            entry.outcome = fault
            connection.refuse(REFUSALS[fault])
            return
        try:
            ask = read_ask(path == COMPLETIONS[0], message.body, self.settings.model)
        except BadRequestError as error:
            entry.outcome = "404-model" if error.status == 404 else str(error.status)
            if self.settings.gateway and error.status == 404:
                connection.refuse(REFUSALS["no-choices"])  # what such a gateway says of a wrong id
            else:
                connection.answer(error.status, error.body)
            return
        self._submit(connection, ask, entry, fault)

    def _submit(self, connection: Connection, ask: Ask, entry: Entry, fault: str) -> None:
        template = self.settings.template_tokens if ask.chat else 0
        tokens = [*([""] * template), *ask.prompt]  # every chat begins with the same template
        blocks = block_hashes(tokens, self.cluster.engine.block_tokens)
        output = ask.answer_tokens(self._lengths)
        entry.request = Request(entry.received_s, len(tokens), output, blocks)
        Exchange(self.cluster, connection, ask, entry, self.settings.tokens_per_chunk, fault)
        now = time.monotonic()
        self.cluster.advance(now)
        self.cluster.submit(entry.request, now)
        self._set_timer()

    # -- pages ---------------------------------------------------------------------------------------

    @staticmethod
    def _answer(connection: Connection, page: Page) -> None:
        status, body, kind = page
        connection.answer(status, body, {"Content-Type": kind})

    def _page(self, message: Message, path: str) -> Page:
        if path == "/deployment":
            return self._deployment(message)
        role, number, rest = _instance(path)
        page = self._pages.get(path)
        if page is None and rest == "/metrics":
            page = lambda: self._metrics(role, number)  # noqa: E731
        if page is None and rest in ("/get_server_info", "/server_info"):
            page = lambda: self._info(role)  # noqa: E731
        if page is None and rest == "/health":
            page = self._pages["/health"]
        if page is None and path not in COMPLETIONS:
            return 404, error_body(404, "NotFoundError", f"There is no {path} here."), JSON
        if page is None or message.method not in ("GET", "HEAD"):
            sentence = f"{message.method} is not allowed on {path}."
            return 405, error_body(405, "MethodNotAllowedError", sentence), JSON
        return page()

    def _metrics(self, role: str, number: int) -> Page:
        now = time.monotonic()
        text = metrics_text(self.cluster, self.telemetry, self.settings.model, now, (role, number))
        return 200, text.encode(), "text/plain; version=0.0.4; charset=utf-8"

    def _models(self) -> Page:
        model = {"id": self.settings.model, "object": "model", "owned_by": "emulator"}
        return 200, orjson.dumps({"object": "list", "data": [model]}), JSON

    def _info(self, role: str) -> Page:
        engine, deployment = self.cluster.engine, self.cluster.deployment
        info = {
            "version": "emulator",
            "served_model_name": self.settings.model,
            "disaggregation_mode": role or "null",
            "max_running_requests": deployment.max_running_requests,
            "max_total_num_tokens": engine.kv_tokens,
            "chunked_prefill_size": engine.chunk_tokens,
        }
        return 200, orjson.dumps(info), JSON

    def _workers(self) -> Page:
        """As the SGLang router lists them, with paths in place of URLs."""
        workers = [
            *(
                {
                    "url": f"/prefill/{p.number}",
                    "worker_type": "prefill",
                    "load": p.load,
                    "is_healthy": True,
                }
                for p in prefills_in_use(self.cluster)
            ),
            *(
                {
                    "url": f"/decode/{d.number}",
                    "worker_type": "decode",
                    "load": d.load,
                    "is_healthy": True,
                }
                for d in decodes_in_use(self.cluster)
            ),
        ]
        return 200, orjson.dumps({"workers": workers, "total": len(workers)}), JSON

    def _deployment(self, message: Message) -> Page:
        if message.method == "PUT":
            try:
                self._change(message.body)
            except (ValueError, TypeError) as error:
                return 400, error_body(400, "BadRequestError", str(error)), JSON
        elif message.method != "GET":
            sentence = f"{message.method} is not allowed on /deployment."
            return 405, error_body(405, "MethodNotAllowedError", sentence), JSON
        deployment = self.cluster.deployment
        keys = {name: getattr(deployment, name) for name in deployment.__slots__}
        return 200, orjson.dumps(keys), JSON

    def _change(self, body: bytes) -> None:
        keys = orjson.loads(body)
        if not isinstance(keys, dict):
            raise ValueError("The body must be a JSON object.")
        changed = self.cluster.deployment.changed(**keys)
        now = time.monotonic()
        self.cluster.advance(now)
        self.cluster.apply(changed, now)
        self._set_timer()


def _instance(path: str) -> tuple[str, int, str]:
    """``/prefill/0/metrics`` as ("prefill", 0, "/metrics"); other paths as ("", -1, path)."""
    role, _, rest = path.lstrip("/").partition("/")
    number, slash, tail = rest.partition("/")
    if role in ("prefill", "decode") and number.isdigit():
        return role, int(number), slash + tail
    return "", -1, path
