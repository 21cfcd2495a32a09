"""/metrics of every engine, in one set of words; and what is made of them over a run."""

import pickle
from itertools import pairwise

import gevent
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_users.client import Client
from pd_users.errors import TargetError
from pd_users.instances import find_instances, read_dynamo, read_workers
from pd_users.metric_names import COUNTERS, GAUGES, HISTOGRAMS
from pd_users.series import PACK, Series
from pd_users.server_metrics import (
    Page,
    PageClient,
    Scraper,
    gain,
    notes,
    poll,
    read_cap,
    summarise,
)
from pd_users.signals import Histogram, read_page
from pd_users.target import DEFAULT_EXTRAS, build_target
from planner.signals import Instance, ServerSignals
from tests.access import Given
from tests.processes import emulator
from tests.raw_server import Request, Wire, serving
from workloads.errors import ConfigError

SGLANG_P = """
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="prefill",model_name="m",pp_rank="0",tp_rank="0"} 2.0
sglang:num_queue_reqs{engine_type="prefill",model_name="m",pp_rank="0",tp_rank="0"} 5.0
sglang:num_prefill_bootstrap_queue_reqs{engine_type="prefill",model_name="m",tp_rank="0"} 1.0
sglang:num_prefill_inflight_queue_reqs{engine_type="prefill",model_name="m",tp_rank="0"} 3.0
sglang:cache_hit_rate{engine_type="prefill",model_name="m",tp_rank="0"} 0.25
# TYPE sglang:kv_transfer_latency_ms histogram
sglang:kv_transfer_latency_ms_bucket{engine_type="prefill",le="10.0",tp_rank="0"} 90.0
sglang:kv_transfer_latency_ms_bucket{engine_type="prefill",le="100.0",tp_rank="0"} 100.0
sglang:kv_transfer_latency_ms_bucket{engine_type="prefill",le="+Inf",tp_rank="0"} 100.0
sglang:kv_transfer_latency_ms_sum{engine_type="prefill",tp_rank="0"} 800.0
sglang:kv_transfer_latency_ms_count{engine_type="prefill",tp_rank="0"} 100.0
# TYPE sglang:prefill_effective_tokens_total counter
sglang:prefill_effective_tokens_total{engine_type="prefill",mode="input",tp_rank="0"} 700.0
sglang:prefill_effective_tokens_total{engine_type="prefill",mode="device_hit",tp_rank="0"} 200.0
sglang:prefill_effective_tokens_total{engine_type="prefill",mode="host_hit",tp_rank="0"} 100.0
sglang:prefill_effective_tokens_total{engine_type="prefill",mode="storage_hit",tp_rank="0"} 0.0
sglang:forward_execution_seconds_total{category="prefill",engine_type="prefill",tp_rank="0"} 4.0
sglang:forward_execution_seconds_total{category="idle",engine_type="prefill",tp_rank="0"} 1.0
sglang:num_transfer_failed_reqs_total{engine_type="prefill",tp_rank="0"} 2.0
sglang:num_bootstrap_failed_reqs_total{engine_type="prefill",tp_rank="0"} 1.0
process_cpu_seconds_total 12.0
"""
SGLANG_D = """
sglang:num_running_reqs{engine_type="decode",tp_rank="0",dp_rank="0"} 15.0
sglang:num_running_reqs{engine_type="decode",tp_rank="1",dp_rank="0"} 15.0
sglang:num_running_reqs{engine_type="decode",tp_rank="2",dp_rank="1"} 14.0
sglang:num_running_reqs{engine_type="decode",tp_rank="3",dp_rank="1"} 14.0
sglang:num_queue_reqs{engine_type="decode",tp_rank="0",dp_rank="0",priority=""} 4.0
sglang:num_queue_reqs{engine_type="decode",tp_rank="0",dp_rank="0",priority="0"} 3.0
sglang:num_queue_reqs{engine_type="decode",tp_rank="0",dp_rank="0",priority="1"} 1.0
sglang:num_decode_prealloc_queue_reqs{engine_type="decode",tp_rank="0",dp_rank="0"} 6.0
sglang:num_decode_transfer_queue_reqs{engine_type="decode",tp_rank="0",dp_rank="0"} 7.0
sglang:token_usage{engine_type="decode",tp_rank="0",dp_rank="0"} 0.5
sglang:token_usage{engine_type="decode",tp_rank="2",dp_rank="1"} 0.9
sglang:num_retracted_requests_total{engine_type="decode",tp_rank="0",dp_rank="0"} 11.0
sglang:utilization{engine_type="decode",tp_rank="0",dp_rank="0"} -1.0
"""
SGLANG_OLD = """
sglang:num_prefill_prealloc_queue_reqs{model_name="m",engine_type="prefill"} 4
sglang:num_prefill_infight_queue_reqs{model_name="m",engine_type="prefill"} 2
sglang:kv_transfer_latency_ms{model_name="m",engine_type="prefill"} 37.5
sglang:cached_tokens_total{model_name="m",engine_type="prefill"} 30
sglang:prompt_tokens_total{model_name="m",engine_type="prefill"} 120
"""
VLLM_D = """
vllm:num_requests_running{engine="0",model_name="m"} 60.0
vllm:num_requests_running{engine="1",model_name="m"} 64.0
vllm:num_requests_waiting{engine="0",model_name="m"} 9.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 7.0
vllm:num_requests_kv_fetch_by_stage{engine="0",model_name="m",stage="waiting_to_start"} 1.0
vllm:num_requests_kv_fetch_by_stage{engine="0",model_name="m",stage="in_progress"} 2.0
vllm:num_requests_kv_fetch_by_stage{engine="0",model_name="m",stage="completed_waiting"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.75
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.75
vllm:num_preemptions_total{engine="0",model_name="m"} 3.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 400.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 100.0
vllm:nixl_xfer_time_seconds_bucket{engine="0",le="0.005",model_name="m"} 10.0
vllm:nixl_xfer_time_seconds_bucket{engine="0",le="+Inf",model_name="m"} 10.0
vllm:nixl_xfer_time_seconds_sum{engine="0",model_name="m"} 0.04
vllm:nixl_xfer_time_seconds_count{engine="0",model_name="m"} 10.0
"""
VLLM_OLD = (
    'vllm:num_requests_running{model_name="m"} 3\nvllm:num_requests_waiting{model_name="m"} 2\n'
)
_C = 'dynamo_component="prefill",dynamo_namespace="dynamo",worker_id="5c"'
DYNAMO_P = f"""
dynamo_component_inflight_requests{{{_C},dynamo_endpoint="generate"}} 3
dynamo_component_inflight_requests{{{_C},dynamo_endpoint="worker_kv_query_source_1"}} 8
dynamo_component_requests_total{{{_C},dynamo_endpoint="generate"}} 40
dynamo_work_handler_queue_depth 2
"""
_D = 'dynamo_component="backend",dynamo_namespace="dynamo",worker_id="85"'
DYNAMO_D = f"""
dynamo_component_inflight_requests{{{_D},dynamo_endpoint="generate"}} 5
dynamo_work_handler_queue_depth 0
vllm:num_requests_running{{engine="0",model_name="mock"}} 4
vllm:num_requests_waiting{{engine="0",model_name="mock"}} 1
vllm:kv_cache_usage_perc{{engine="0",model_name="mock"}} 0.1
"""

GAUGE_TABLE = [
    (SGLANG_P, "sglang", "prefill", {"running": 2, "queued": 5, "bootstrap": 1, "inflight": 3}),
    (SGLANG_D, "sglang", "decode", {"running": 29, "queued": 4, "prealloc": 6, "transfer": 7}),
    (SGLANG_D, "sglang", "decode", {"token_usage": 0.9}),
    (SGLANG_OLD, "sglang", "prefill", {"bootstrap": 4, "inflight": 2, "kv_transfer_ms": 37.5}),
    (VLLM_D, "vllm", "", {"running": 124, "queued": 6, "transfer": 3, "token_usage": 0.75}),
    (VLLM_OLD, "vllm", "", {"running": 3, "queued": 2}),
    (DYNAMO_P, "dynamo", "prefill", {"running": 3, "queued": 2}),
    (DYNAMO_D, "dynamo", "decode", {"running": 4, "queued": 1, "token_usage": 0.1}),
]


@pytest.mark.parametrize(("text", "engine", "role", "gauges"), GAUGE_TABLE)
def test_gauges_mean_the_same_whatever_the_engine(
    text: str, engine: str, role: str, gauges: dict[str, float]
) -> None:
    (reading,) = read_page(text)
    assert (reading.engine, reading.role) == (engine, role)
    assert {name: reading.gauges[name] for name in gauges} == gauges


def test_counters_add_up_what_belongs_together() -> None:
    (prefill,) = read_page(SGLANG_P)
    assert prefill.counters["hit_tokens"] == 300
    assert prefill.counters["asked_tokens"] == 1000
    assert prefill.counters["busy_s"] == 5
    assert prefill.counters["failed_transfers"] == 3
    assert read_page(SGLANG_D)[0].counters["retractions"] == 11
    assert read_page(VLLM_D)[0].counters["retractions"] == 3
    assert read_page(SGLANG_OLD)[0].counters["hit_tokens"] == 30


def test_histograms_are_in_milliseconds() -> None:
    sglang = read_page(SGLANG_P)[0].histograms["kv_transfer_ms"]
    assert (sglang.sum_ms, sglang.count) == (800, 100)
    assert sglang.quantile(0.99) == pytest.approx(91)
    vllm = read_page(VLLM_D)[0].histograms["kv_transfer_ms"]
    assert vllm.sum_ms / vllm.count == pytest.approx(4)


def test_dead_metrics_are_not_read() -> None:
    names = [s.name for _, many in GAUGES.values() for a in many for s in a]
    assert "sglang:utilization" not in names
    assert "sglang:max_running_requests_under_SLO" not in names
    assert not set(GAUGES) & set(COUNTERS)
    assert set(HISTOGRAMS) & set(GAUGES) == {"kv_transfer_ms"}


def test_a_page_of_several_instances_is_taken_apart() -> None:
    both = SGLANG_P.replace('tp_rank="0"', 'instance="a"') + SGLANG_D.replace(
        'tp_rank="', 'instance="b",tp_rank="'
    )
    assert [(r.role, r.instance) for r in read_page(both)] == [("decode", "b"), ("prefill", "a")]


@pytest.mark.parametrize("text", ["", "<html><body>Login</body></html>", "go_goroutines 7\n"])
def test_a_page_of_something_else_has_no_engine(text: str) -> None:
    assert [r.engine for r in read_page(text)] == [""]


def test_a_broken_line_of_ours_is_an_error() -> None:
    with pytest.raises(ValueError, match="many"):
        read_page('sglang:num_running_reqs{engine_type="prefill"} many\n')


def test_reading_stops_for_breath() -> None:
    breaths: list[int] = []
    read_page(SGLANG_P, lambda: breaths.append(1))
    assert len(breaths) >= 2


# -- over time ------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(0, 50))
def test_a_counters_gain_is_its_sum_of_steps_even_over_restarts(
    steps: list[float], restart: int
) -> None:
    values, total = [0.0], 0.0
    for k, step in enumerate(steps):
        if k == restart:
            values.append(0.0)
        values.append(values[-1] + step)
        total += step
    assert gain(values) == pytest.approx(total)


@given(st.lists(st.floats(0.1, 900.0), min_size=1, max_size=200), st.integers(0, 200))
def test_a_histograms_quantile_lies_in_the_bucket_of_the_true_one(
    values: list[float], before: int
) -> None:
    bounds = (1.0, 10.0, 100.0, 1000.0)

    def histogram(sample: list[float]) -> Histogram:
        counts = tuple((b, float(sum(v <= b for v in sample))) for b in (*bounds, float("inf")))
        return Histogram(sum(sample), len(sample), counts)

    old = values[:before]
    gained = histogram(values + old).since(histogram(old))
    assert gained.count == len(values)
    assert gained.sum_ms == pytest.approx(sum(values))
    true = sorted(values)[max(-(-99 * len(values) // 100) - 1, 0)]
    low, high = next((a, b) for a, b in pairwise((0.0, *bounds)) if true <= b)
    assert low <= gained.quantile(0.99) <= high


def page_saying(*texts: str, step_s: float = 1.0) -> Page:
    page = Page("prefill", "http://p/metrics")
    for k, text in enumerate(texts):
        page.series.setdefault("", Series()).append(k * step_s, read_page(text)[0])
    return page


def test_the_summary_has_levels_and_gains() -> None:
    later = (
        SGLANG_P.replace("num_queue_reqs{engine_type", "num_queue_reqs{ignored")
        .replace('mode="device_hit",tp_rank="0"} 200.0', 'mode="device_hit",tp_rank="0"} 600.0')
        .replace('mode="input",tp_rank="0"} 700.0', 'mode="input",tp_rank="0"} 1300.0')
        .replace(
            'category="prefill",engine_type="prefill",tp_rank="0"} 4.0',
            'category="prefill",engine_type="prefill",tp_rank="0"} 5.5',
        )
        .replace(
            '_sum{engine_type="prefill",tp_rank="0"} 800.0',
            '_sum{engine_type="prefill",tp_rank="0"} 1000.0',
        )
        .replace(
            '_count{engine_type="prefill",tp_rank="0"} 100.0',
            '_count{engine_type="prefill",tp_rank="0"} 110.0',
        )
    )
    (entry,) = summarise(page_saying(SGLANG_P, later, step_s=2.0), -1, 10)
    assert entry["queued_mean"] == entry["queued_max"] == entry["queued_p99"] == 5
    assert entry["hit_rate"] == pytest.approx(0.4)
    assert entry["busy_share"] == pytest.approx(0.75)
    assert (entry["kv_transfer_ms_n"], entry["kv_transfer_ms_mean"]) == (10, 20)
    assert entry["failed_transfers"] == 0


def test_only_polls_in_the_window_count() -> None:
    idle = SGLANG_P.replace("} 5.0", "} 0.0")
    (entry,) = summarise(page_saying(SGLANG_P, idle, idle), 0.5, 9)
    assert (entry["polls"], entry["queued_max"]) == (2, 0)


def test_a_long_series_has_every_poll_in_a_tenth_of_the_room() -> None:
    texts = [SGLANG_P.replace("} 200.0", f"}} {200 + 37 * k}.0") for k in range(5 * PACK + 7)]
    polls = [(float(k), read_page(text)[0]) for k, text in enumerate(texts)]
    series = Series()
    for at_s, reading in polls:
        series.append(at_s, reading)
    assert list(series) == polls
    assert series.between(PACK - 2, PACK + 3) == polls[PACK - 2 : PACK + 4]
    whole = sum(len(pickle.dumps(poll)) for poll in polls[: 5 * PACK])
    recent = sum(len(pickle.dumps(poll)) for poll in polls[5 * PACK :])
    assert len(pickle.dumps(series)) - recent < whole / 10


def test_a_page_that_never_answered_is_an_entry_without_figures() -> None:
    page = Page("decode", "http://d/metrics", polls=3, errors=3, last_error="http://d: HTTP 404.")
    (entry,) = summarise(page, 0, 9)
    assert (entry["polls"], entry["errors"]) == (0, 3)
    assert "running_mean" not in entry
    assert notes([page]) == ["3 of 3 polls failed: http://d: HTTP 404."]


@pytest.mark.parametrize(
    ("info", "cap"),
    [
        ({"max_running_requests": 128}, 128),
        ({"max_running_requests": None, "internal_states": [
            {"effective_max_running_requests_per_dp": 16}, {"effective_max_running_requests_per_dp": 16}
        ]}, 32),
        ({"max_running_requests": None}, None),
        ([], None),
    ],
)  # fmt: skip
def test_the_cap_of_an_instance_is_in_its_server_info(info: object, cap: float | None) -> None:
    assert read_cap(info) == cap


def test_every_figure_that_the_planner_reads_is_one_that_we_tell() -> None:
    gauges = {f"{name}_{tail}" for name in GAUGES for tail in ("mean", "max", "p99")}
    histograms = {f"{name}_{tail}" for name in HISTOGRAMS for tail in ("mean", "p99", "n")}
    made = {"url", "instance", "engine", "polls", "errors", "cap", "busy_share", "hit_rate"}
    assert set(Instance.model_fields) <= gauges | histograms | set(COUNTERS) | made


# -- who is there ---------------------------------------------------------------------------------------


def test_the_workers_of_a_router() -> None:
    told = {
        "workers": [
            {"url": "http://p1:30000", "worker_type": "prefill", "is_healthy": True},
            {"url": "http://d1:30001@0", "worker_type": "decode", "is_healthy": True},
            {"url": "http://d1:30001@1", "worker_type": "decode", "is_healthy": False},
            {"url": "/decode/7", "worker_type": {"decode": {}}},
        ]
    }
    found = read_workers(told, "http://router:8000")
    assert found is not None
    assert found.metrics_urls("prefill") == ("http://p1:30000/metrics",)
    assert found.metrics_urls("decode") == (
        "http://d1:30001/metrics",
        "http://router:8000/decode/7/metrics",
    )
    assert found.unhealthy == ("http://d1:30001",)


@pytest.mark.parametrize(
    "told", [{}, [], None, {"workers": "x"}, {"workers": [{"url": "http://a"}]}]
)
def test_what_is_no_list_of_p_and_d_is_none(told: object) -> None:
    assert read_workers(told, "http://router") is None


def test_dynamo_tells_components() -> None:
    told = {
        "status": "healthy",
        "instances": [
            {"component": "backend", "endpoint": "generate", "instance_id": 1},
            {"component": "prefill", "endpoint": "generate", "instance_id": 2},
            {"component": "prefill", "endpoint": "worker_kv_query_source_1", "instance_id": 2},
        ],
    }
    found = read_dynamo(told, "")
    assert found is not None
    assert (len(found.prefill), len(found.decode)) == (1, 1)
    assert found.metrics_urls("decode") == ()
    assert read_dynamo({"status": "ok"}, "") is None


# -- on the wire ----------------------------------------------------------------------------------------


def page_server(body: bytes, kind: bytes = b"text/plain", status: bytes = b"200 OK"):  # type: ignore[no-untyped-def]
    def handle(wire: Wire, request: Request) -> bool:
        head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
        wire.send(head % (status, kind, len(body)) + body)
        return True

    return serving(handle)


@pytest.mark.parametrize(
    ("body", "status", "wanted"),
    [
        (b"<html>Login</html>", b"200 OK", "no metric of SGLang, vLLM or Dynamo"),
        (b"nothing", b"404 Not Found", "HTTP 404"),
        (b'sglang:num_running_reqs{x="1} 2\n', b"200 OK", "no Prometheus text"),
    ],
)
def test_a_page_that_cannot_be_used_is_told(body: bytes, status: bytes, wanted: str) -> None:
    with page_server(body, status=status) as server:
        client = PageClient(f"{server.url}/metrics")
        with pytest.raises(TargetError, match=wanted):
            client.read()
        client.close()


def test_a_page_of_the_other_role_is_counted_as_what_it_says() -> None:
    with page_server(SGLANG_D.encode()) as server:
        page = Page("prefill", f"{server.url}/metrics")
        client = PageClient(page.url)
        poll(page, client)
        client.close()
        assert page.says_role == "decode"
        assert "was given as prefill, but says that it is decode" in notes([page])[0]


def test_a_wrong_url_is_told_before_the_run() -> None:
    with pytest.raises(ConfigError, match="base URL"):
        Scraper(["ftp://p:1/metrics"], [])
    assert Scraper([], []).summary() is None


@pytest.mark.process
def test_a_scraper_sees_the_cap_reached_on_d_and_not_on_p() -> None:
    """The discriminator of planning.md 6: running = cap with a queue on D, while P idles."""
    cluster = ("--prefill", "2", "--decode", "1", "--max-running-requests", "4")
    with emulator(*cluster, "--decode-ms", "20,0.1,0") as server:
        target = build_target(Given(), server.url, "emulated", DEFAULT_EXTRAS)
        client = Client(target.endpoint)
        found = find_instances(client)
        assert found is not None
        scraper = Scraper(found.metrics_urls("prefill"), found.metrics_urls("decode"))
        scraper.start()
        request = target.chat_request("one two three", 60)
        sent = [gevent.spawn(client.stream, request.path, request.body) for _ in range(16)]
        gevent.joinall(sent, timeout=20)
        scraper.stop()
        client.close()
    summary = scraper.summary()
    assert summary is not None
    (decode,) = summary["decode"]
    assert decode["cap"] == decode["running_max"] == 4
    assert decode["prealloc_mean"] + decode["queued_mean"] > 2
    assert decode["retractions"] == 0
    assert all(p["queued_mean"] < 1 for p in summary["prefill"])
    assert sum(p["kv_transfer_ms_n"] for p in summary["prefill"]) > 0
    assert summary["notes"] == []
    assert orjson.dumps(summary)
    told = ServerSignals.model_validate(summary)
    assert (told.cap, told.engine, len(told.prefill)) == (4, "sglang", 2)
