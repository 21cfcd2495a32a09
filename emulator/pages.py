"""The pages beside completions: models, health, metrics, the deployment, the log."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from emulator.live import LiveCluster
from emulator.metrics_text import decodes_in_use, metrics_text, prefills_in_use
from emulator.openai_api import error_body
from emulator.settings import Settings
from emulator.truth import Log

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer that is no completion."""

    body: bytes
    status: int = 200
    kind: str = JSON


def error_page(status: int, kind: str, sentence: str) -> Page:
    """In OpenAI's shape."""
    return Page(error_body(status, kind, sentence), status)


class Pages:
    """Looks at the cluster; changes nothing."""

    def __init__(self, live: LiveCluster, log: Log, settings: Settings) -> None:
        self._cluster, self._telemetry = live.cluster, live.telemetry
        self._settings = settings
        health = Page(b"{}")
        self._common: dict[str, Callable[[], Page]] = {
            "/v1/models": self._models,
            "/health": lambda: health,
            "/health_generate": lambda: health,
            "/truth": lambda: Page(log.text().encode(), kind="text/csv; charset=utf-8"),
            "/workers": self._workers,
            "/deployment": self.deployment,
        }
        # of one instance (/decode/1/metrics), or of all
        self._instance: dict[str, Callable[[str, int], Page]] = {
            "/metrics": self._metrics,
            "/server_info": self._info,
            "/get_server_info": self._info,
            "/health": lambda _role, _number: health,
        }

    def get(self, method: str, path: str) -> Page:
        """The page at ``path``."""
        role, number, rest = _split(path)
        common, instance = self._common.get(path), self._instance.get(rest)
        if common is None and instance is None:
            return error_page(404, "NotFoundError", f"There is no {path} here.")
        if method not in ("GET", "HEAD"):
            sentence = f"{method} is not allowed on {path}."
            return error_page(405, "MethodNotAllowedError", sentence)
        if common is not None:
            return common()
        assert instance is not None
        return instance(role, number)

    def deployment(self) -> Page:
        """What is deployed now."""
        deployment = self._cluster.deployment
        keys = {name: getattr(deployment, name) for name in deployment.__slots__}
        return Page(orjson.dumps(keys))

    def _metrics(self, role: str, number: int) -> Page:
        now, model = time.monotonic(), self._settings.model
        text = metrics_text(self._cluster, self._telemetry, model, now, (role, number))
        return Page(text.encode(), kind="text/plain; version=0.0.4; charset=utf-8")

    def _models(self) -> Page:
        model = {"id": self._settings.model, "object": "model", "owned_by": "emulator"}
        return Page(orjson.dumps({"object": "list", "data": [model]}))

    def _info(self, role: str, _number: int) -> Page:
        engine, deployment = self._cluster.engine, self._cluster.deployment
        info = {
            "version": "emulator",
            "served_model_name": self._settings.model,
            "disaggregation_mode": role or "null",
            "max_running_requests": deployment.max_running_requests,
            "max_total_num_tokens": engine.kv_tokens,
            "chunked_prefill_size": engine.chunk_tokens,
        }
        return Page(orjson.dumps(info))

    def _workers(self) -> Page:
        """As the SGLang router lists them, with paths in place of URLs."""
        prefills = [("prefill", p.number, p.load) for p in prefills_in_use(self._cluster)]
        decodes = [("decode", d.number, d.load) for d in decodes_in_use(self._cluster)]
        workers = [
            {"url": f"/{role}/{number}", "worker_type": role, "load": load, "is_healthy": True}
            for role, number, load in [*prefills, *decodes]
        ]
        return Page(orjson.dumps({"workers": workers, "total": len(workers)}))


def _split(path: str) -> tuple[str, int, str]:
    """``/prefill/0/metrics`` as ("prefill", 0, "/metrics"); other paths as ("", -1, path)."""
    role, _, rest = path.lstrip("/").partition("/")
    number, slash, tail = rest.partition("/")
    if role in ("prefill", "decode") and number.isdigit():
        return role, int(number), slash + tail
    return "", -1, path
