"""What the servers say of themselves: /metrics of every P and D, polled while a run is on.

SGLang's names (0.5 and older) and vLLM's are mapped to the same few signals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gevent
from prometheus_client.parser import text_string_to_metric_families

from pd_users.client import Client
from pd_users.endpoint import parse_base_url
from pd_users.errors import TargetError
from pd_users.timeouts import Timeouts

POLL_S = 1.0

# signal: the gauges that carry it, in any engine; several that are present are summed
SIGNALS: dict[str, tuple[str, ...]] = {
    "running": ("sglang:num_running_reqs", "vllm:num_requests_running"),
    "queued": ("sglang:num_queue_reqs", "vllm:num_requests_waiting"),
    "bootstrap": (
        "sglang:num_prefill_bootstrap_queue_reqs",
        "sglang:num_prefill_prealloc_queue_reqs",
    ),
    "prealloc": ("sglang:num_decode_prealloc_queue_reqs",),
    "transfer": ("sglang:num_decode_transfer_queue_reqs",),
    "token_usage": ("sglang:token_usage", "vllm:kv_cache_usage_perc"),
    "cap": ("sglang:max_running_requests",),
}


def signals(text: str) -> dict[str, float]:
    """The signals in one page of Prometheus text, summed over its label sets."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    found = {}
    for signal, names in SIGNALS.items():
        values = [sums[name] for name in names if name in sums]
        if values:
            found[signal] = sum(values)
    return found


@dataclass
class _Instance:
    role: str
    url: str
    samples: list[dict[str, float]] = field(default_factory=list)
    errors: int = 0


class Scraper:
    """Polls every given URL once a second from ``start`` to ``stop``."""

    def __init__(self, prefill: Sequence[str], decode: Sequence[str]) -> None:
        self._instances = [
            *(_Instance("prefill", url) for url in prefill),
            *(_Instance("decode", url) for url in decode),
        ]
        self._greenlets: list[gevent.Greenlet] = []

    def start(self) -> None:
        """Begin to poll; one greenlet an instance, so that a slow one holds nobody up."""
        self._greenlets = [gevent.spawn(self._poll, i) for i in self._instances]

    def stop(self) -> None:
        """No more polls."""
        gevent.killall(self._greenlets, block=False)

    def _poll(self, instance: _Instance) -> None:
        scheme, rest = (
            instance.url.split("://", 1) if "://" in instance.url else ("http", instance.url)
        )
        origin, _, path = rest.partition("/")
        limits = Timeouts(connect_s=2, first_byte_s=2, between_bytes_s=2, total_s=2)
        client = Client(parse_base_url(f"{scheme}://{origin}"), limits)
        try:
            while True:
                try:
                    text = client.request("GET", f"/{path or 'metrics'}").body.decode(
                        "utf-8", "replace"
                    )
                    instance.samples.append(signals(text))
                except (TargetError, ValueError):
                    instance.errors += 1
                gevent.sleep(POLL_S)
        finally:
            client.close()

    def summary(self) -> dict[str, Any] | None:
        """Mean and maximum of each signal, per instance; None when nothing was asked for."""
        if not self._instances:
            return None
        out: dict[str, Any] = {"prefill": [], "decode": []}
        for instance in self._instances:
            names = {name for sample in instance.samples for name in sample}
            entry: dict[str, Any] = {"polls": len(instance.samples), "errors": instance.errors}
            for name in sorted(names):
                values = [sample[name] for sample in instance.samples if name in sample]
                entry[f"{name}_mean"] = sum(values) / len(values)
                entry[f"{name}_max"] = max(values)
            out[instance.role].append(entry)
        return out
