"""/metrics in Prometheus text, under SGLang's names, for one instance or for all. Pure.

The names and labels are those of SGLang 0.5.23 (per instance, ``engine_type`` prefill or decode);
``instance`` tells instances apart on the common page. ``emulator:`` names are our own.
"""

from collections.abc import Iterable

from emulator.cluster import Cluster
from emulator.decode import Decode
from emulator.histogram import Histogram
from emulator.prefill import Prefill
from emulator.telemetry import DecodeTelemetry, PrefillTelemetry, Telemetry

Value = float | Histogram


class Page:
    """Samples by name; a name ending in _total is a counter."""

    def __init__(self) -> None:
        self._samples: dict[str, list[str]] = {}
        self._histograms: set[str] = set()

    def add(self, name: str, labels: str, value: Value) -> None:
        """One sample, or the samples of one histogram; ``labels`` as in ``a="1",b="2"``."""
        lines = self._samples.setdefault(name, [])
        if not isinstance(value, Histogram):
            lines.append(f"{name}{{{labels}}} {value:.9g}")
            return
        self._histograms.add(name)
        for bound, count in value.cumulative():
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {count}')
        lines.append(f"{name}_sum{{{labels}}} {value.sum:.9g}")
        lines.append(f"{name}_count{{{labels}}} {value.count}")

    def text(self) -> str:
        """The page."""
        parts = []
        for name in sorted(self._samples):
            kind = "counter" if name.endswith("_total") else "gauge"
            kind = "histogram" if name in self._histograms else kind
            parts += [f"# TYPE {name} {kind}", *self._samples[name]]
        return "\n".join(parts) + "\n"


def metrics_text(
    cluster: Cluster, telemetry: Telemetry, model: str, now: float, only: tuple[str, int] = ("", -1)
) -> str:
    """The page of every instance; ``only`` = (role, number) picks one."""
    role, number = only
    page = Page()
    for prefill in prefills_in_use(cluster):
        if role != "decode" and number in (-1, prefill.number):
            labels = _labels(model, "prefill", prefill.number)
            _add(page, labels, _prefill(prefill, telemetry.prefill(prefill.number)))
            _add_stages(page, labels, telemetry.prefill(prefill.number).stages)
            for mode, tokens in (
                ("input", prefill.computed_tokens),
                ("device_hit", prefill.cache.hit),
            ):
                name = "sglang:prefill_effective_tokens_total"
                page.add(name, f'{labels},mode="{mode}"', tokens)
    for decode in decodes_in_use(cluster):
        if role != "prefill" and number in (-1, decode.number):
            labels = _labels(model, "decode", decode.number)
            _add(page, labels, _decode(decode, telemetry.decode(decode.number), cluster, now))
            _add_stages(page, labels, telemetry.decode(decode.number).stages)
    if not role:
        page.add("emulator:tick_late_seconds", f'model_name="{model}"', telemetry.tick_late_s)
    return page.text()


def prefills_in_use(cluster: Cluster) -> list[Prefill]:
    """Those of the deployment, and those that still have something to do."""
    wanted = cluster.deployment.prefill_instances
    return [p for p in cluster.prefills if p.number < wanted or not p.idle]


def decodes_in_use(cluster: Cluster) -> list[Decode]:
    """Those of the deployment, and those that still have something to do."""
    wanted = cluster.deployment.decode_instances
    return [d for d in cluster.decodes if d.number < wanted or not d.idle]


def _labels(model: str, role: str, number: int) -> str:
    common = f'model_name="{model}",engine_type="{role}",disaggregation_mode="{role}"'
    return f'{common},instance="{role}-{number}",tp_rank="0",dp_rank="0"'


def _add(page: Page, labels: str, samples: Iterable[tuple[str, Value]]) -> None:
    for name, value in samples:
        page.add(f"sglang:{name}", labels, value)


def _add_stages(page: Page, labels: str, stages: dict[str, Histogram]) -> None:
    for stage, histogram in stages.items():
        page.add("sglang:per_stage_req_latency_seconds", f'{labels},stage="{stage}"', histogram)


def _prefill(p: Prefill, seen: PrefillTelemetry) -> list[tuple[str, Value]]:
    return [
        ("num_prefill_bootstrap_queue_reqs", p.bootstrapping),
        ("num_queue_reqs", len(p.queue) - len(p.batch)),
        ("num_running_reqs", len(p.batch)),
        ("num_prefill_inflight_queue_reqs", p.inflight),
        ("pending_prefill_tokens", p.pending_tokens),
        ("forward_execution_seconds_total", p.busy_s),
        ("prompt_tokens_total", p.cache.queried),
        ("cached_tokens_total", p.cache.hit),
        ("cache_hit_rate", p.cache.hit / max(p.cache.queried, 1)),
        ("num_requests_total", seen.requests),
        ("queue_time_seconds", seen.stages["prefill_queue"]),
        ("kv_transfer_latency_ms", seen.transfer_ms),
    ]


def _decode(
    d: Decode, seen: DecodeTelemetry, cluster: Cluster, now: float
) -> list[tuple[str, Value]]:
    slots, capacity = d.slots, cluster.engine.kv_tokens
    outside = slots.taken - len(d.running) - len(d.arrived)
    return [
        ("num_running_reqs", len(d.running)),
        ("num_queue_reqs", len(d.arrived)),
        ("num_decode_prealloc_queue_reqs", len(slots.waiting)),
        ("num_decode_transfer_queue_reqs", outside),
        ("num_retracted_reqs", len(slots.retracted)),
        ("num_retracted_requests_total", d.retractions),
        ("max_running_requests", slots.cap),
        ("max_total_num_tokens", capacity),
        ("num_used_tokens", d.kv_used(now)),
        ("token_usage", d.kv_used(now) / capacity),
        ("decode_sum_seq_lens", d.running_kv(now)),
        ("gen_throughput", len(d.running) / d.step_s if d.running and d.step_s else 0.0),
        ("generation_tokens_total", d.generated_tokens),
        ("prompt_tokens_total", seen.prompt_tokens),
        ("num_requests_total", seen.requests),
        ("num_aborted_requests_total", seen.aborted),
        ("time_to_first_token_seconds", seen.ttft_s),
        ("inter_token_latency_seconds", seen.itl_s),
        ("request_time_per_output_token_seconds", seen.tpot_s),
        ("e2e_request_latency_seconds", seen.e2e_s),
        ("queue_time_seconds", seen.stages["decode_waiting"]),
    ]
