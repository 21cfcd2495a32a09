"""Which metric of which engine carries which signal: SGLang 0.5 and older, vLLM, Dynamo. Pure, tables only.

Of several alternatives the first that is present counts; the sources of one alternative add up.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SUM, MEAN, MAX = "sum", "mean", "max"  # how the data-parallel ranks of an instance combine


@dataclass(frozen=True, slots=True)
class Source:
    """A metric, of which only the samples count whose ``label`` is one of ``values``."""

    name: str
    label: str = ""
    values: tuple[str, ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a sample of this name, with these labels, counts."""
        return not self.label or labels.get(self.label) in self.values


Alternatives = tuple[tuple[Source, ...], ...]  # first that is present; within one, all add up


def _names(*names: str) -> Alternatives:
    return tuple((Source(name),) for name in names)


def _fetch(*stages: str) -> tuple[Source, ...]:
    return (Source("vllm:num_requests_kv_fetch_by_stage", "stage", stages),)


# signal: how data-parallel ranks combine, and where it is found. Meanings:
# running    requests in the batch                       queued     waiting for it (on D: for a slot)
# bootstrap  P: waiting until D has a place for the KV   inflight   P: KV being sent
# prealloc   D: waiting for a slot or memory for the KV  transfer   D: slot taken, KV not there yet
GAUGES: dict[str, tuple[str, Alternatives]] = {
    "running": (
        SUM,
        (
            *_names("sglang:num_running_reqs", "vllm:num_requests_running"),
            (Source("dynamo_component_inflight_requests", "dynamo_endpoint", ("generate",)),),
        ),
    ),
    "queued": (
        SUM,
        (
            *_names("sglang:num_queue_reqs"),
            # On a vLLM D those whose KV is under way are no queue: they stand in "transfer".
            (
                Source("vllm:num_requests_waiting_by_reason", "reason", ("capacity",)),
                *_fetch("completed_waiting"),
            ),
            *_names("vllm:num_requests_waiting", "dynamo_work_handler_queue_depth"),
        ),
    ),
    "bootstrap": (
        SUM,
        _names("sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_prealloc_queue_reqs"),
    ),
    "inflight": (
        SUM,
        _names("sglang:num_prefill_inflight_queue_reqs", "sglang:num_prefill_infight_queue_reqs"),
    ),
    "prealloc": (SUM, _names("sglang:num_decode_prealloc_queue_reqs")),
    "transfer": (
        SUM,
        (
            *_names("sglang:num_decode_transfer_queue_reqs"),
            _fetch("waiting_to_start", "in_progress"),
        ),
    ),
    "retracted": (SUM, _names("sglang:num_retracted_reqs")),
    "token_usage": (
        MAX,
        _names(
            *("sglang:token_usage", "sglang:full_token_usage"),
            *("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            "dynamo_component_gpu_cache_usage_percent",
            "dynamo_component_kvstats_gpu_cache_usage_percent",
        ),
    ),
    "cap": (SUM, _names("sglang:max_running_requests", "dynamo_frontend_model_max_num_seqs")),
    "gen_tps": (SUM, _names("sglang:gen_throughput")),
    "cache_hit_rate": (
        MEAN,
        _names(
            *("sglang:cache_hit_rate", "vllm:gpu_prefix_cache_hit_rate"),
            "dynamo_component_kvstats_gpu_prefix_cache_hit_rate",
        ),
    ),
    "kv_transfer_ms": (MEAN, _names("sglang:kv_transfer_latency_ms")),  # older: the last one's
}

_HIT_MODES = ("device_hit", "host_hit", "storage_hit")
_EFFECTIVE = "sglang:prefill_effective_tokens_total"
COUNTERS: dict[str, tuple[str, Alternatives]] = {
    "retractions": (
        SUM,
        _names("sglang:num_retracted_requests_total", "vllm:num_preemptions_total"),
    ),
    "failed_transfers": (
        SUM,
        (
            (
                Source("sglang:num_transfer_failed_reqs_total"),
                Source("sglang:num_bootstrap_failed_reqs_total"),
                Source("vllm:nixl_num_failed_transfers_total"),
                Source("vllm:nixl_num_kv_expired_reqs_total"),
                Source("vllm:mooncake_num_failed_transfers_total"),
                Source("vllm:mooncake_num_failed_recvs_total"),
                Source("vllm:mooncake_num_kv_expired_reqs_total"),
            ),
        ),
    ),
    "busy_s": (MEAN, _names("sglang:forward_execution_seconds_total")),
    "idle_s": (MEAN, _names("sglang:scheduler_idle_seconds_total")),
    "hit_tokens": (
        SUM,
        (
            (Source(_EFFECTIVE, "mode", _HIT_MODES),),
            *_names("sglang:cached_tokens_total", "vllm:prefix_cache_hits_total"),
        ),
    ),
    "asked_tokens": (
        SUM,
        (
            (Source(_EFFECTIVE, "mode", (*_HIT_MODES, "input")),),
            *_names("sglang:prompt_tokens_total", "vllm:prefix_cache_queries_total"),
        ),
    ),
    "requests": (
        SUM,
        (
            *_names("sglang:num_requests_total", "vllm:request_success_total"),
            (Source("dynamo_component_requests_total", "dynamo_endpoint", ("generate",)),),
        ),
    ),
}

_STAGES = "sglang:per_stage_req_latency_seconds"
# signal: milliseconds in one unit of the metric, and the histograms that carry it
HISTOGRAMS: dict[str, tuple[tuple[float, Source], ...]] = {
    "kv_transfer_ms": (
        (1.0, Source("sglang:kv_transfer_latency_ms")),
        (1000.0, Source("vllm:nixl_xfer_time_seconds")),
        (1000.0, Source("vllm:mooncake_xfer_time_seconds")),
    ),
    "queue_ms": (
        (1000.0, Source("sglang:queue_time_seconds")),
        (1000.0, Source("vllm:request_queue_time_seconds")),
    ),
    "prefill_ms": (
        (1000.0, Source(_STAGES, "stage", ("prefill_forward",))),
        (1000.0, Source("vllm:request_prefill_time_seconds")),
    ),
    "slot_wait_ms": ((1000.0, Source(_STAGES, "stage", ("decode_waiting",))),),
}


QUANTILES = ("kv_transfer_ms",)  # of these the buckets are read too


def _wanted() -> frozenset[str]:
    found = {s.name for _, many in (*GAUGES.values(), *COUNTERS.values()) for a in many for s in a}
    for signal, pairs in HISTOGRAMS.items():
        tails = ("_sum", "_count", *(("_bucket",) if signal in QUANTILES else ()))
        found |= {f"{source.name}{tail}" for _, source in pairs for tail in tails}
    return frozenset(found)


WANTED = _wanted()
