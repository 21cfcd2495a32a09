"""/metrics in Prometheus text, under SGLang's names, for one instance or all. Pure."""

from emulator.cluster import Cluster
from emulator.instances import Decode, Prefill


def metrics_text(cluster: Cluster, model: str, role: str = "", number: int = -1) -> str:
    """The page; ``role`` and ``number`` pick one instance."""
    lines: list[str] = []
    if role in ("", "prefill"):
        for prefill in cluster.prefills:
            if number in (-1, prefill.number):
                lines += _prefill(prefill, model)
    if role in ("", "decode"):
        for decode in cluster.decodes:
            if number in (-1, decode.number):
                lines += _decode(decode, model, cluster.deployment.max_running_requests)
    lines += _transfers(cluster.transfers_s, model) if role in ("", "prefill") else []
    return "\n".join(sorted(lines, key=lambda line: line.partition("{")[0])) + "\n"


def _prefill(p: Prefill, model: str) -> list[str]:
    labels = f'{{model_name="{model}",engine_type="prefill",instance="prefill-{p.number}"}}'
    waiting = len(p.queue) - len(p.batch)
    cache = p.cache
    return [
        f"sglang:num_prefill_bootstrap_queue_reqs{labels} {p.bootstrapping}",
        f"sglang:num_queue_reqs{labels} {max(waiting, 0)}",
        f"sglang:num_running_reqs{labels} {len(p.batch)}",
        f"sglang:num_prefill_inflight_queue_reqs{labels} 0",
        f"sglang:forward_execution_seconds_total{labels} {p.busy_s:.6f}",
        f"sglang:cache_hit_rate{labels} {cache.hits / max(cache.queries, 1):.6f}",
    ]


def _decode(d: Decode, model: str, cap: int) -> list[str]:
    labels = f'{{model_name="{model}",engine_type="decode",instance="decode-{d.number}"}}'
    return [
        f"sglang:num_running_reqs{labels} {len(d.running)}",
        f"sglang:num_queue_reqs{labels} {len(d.ready)}",
        f"sglang:num_decode_prealloc_queue_reqs{labels} {len(d.waiting)}",
        f"sglang:num_decode_transfer_queue_reqs{labels} {d.slots - len(d.running) - len(d.ready)}",
        f"sglang:token_usage{labels} {d.kv / d.engine.kv_tokens:.6f}",
        f"sglang:max_running_requests{labels} {cap}",
        f"sglang:num_retracted_reqs{labels} 0",
    ]


def _transfers(seconds: list[float], model: str) -> list[str]:
    labels = f'{{model_name="{model}",engine_type="prefill"}}'
    return [
        f"sglang:kv_transfer_latency_ms_sum{labels} {sum(seconds) * 1000:.3f}",
        f"sglang:kv_transfer_latency_ms_count{labels} {len(seconds)}",
    ]
