"""Laws of the emulated cluster, and its agreement with theory."""

import random
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from itertools import pairwise
from math import isnan, log, nan, sqrt

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.cluster import Cluster, Listener, simulate
from emulator.decode import Decode
from emulator.histogram import Histogram
from emulator.metrics_text import metrics_text
from emulator.model import Arrival, Deployment, Engine, Request, interpolate
from emulator.prefix_cache import PrefixCache, block_hashes
from emulator.telemetry import Telemetry

MOMENTS = [f.name for f in fields(Request) if f.name.endswith("_s")]
LAWS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FAST = Engine(prefill_a=1e-6, prefill_b=0, prefill_c=0, transfer_base=1e-6, transfer_per_token=0)

milliseconds = st.floats(0.1, 20).map(lambda ms: ms / 1000)
engines = st.builds(
    Engine,
    prefill_a=milliseconds,
    prefill_b=st.floats(0, 1e-3),
    prefill_c=st.floats(0, 1e-6),
    decode_alpha=milliseconds,
    decode_beta=st.floats(0, 1e-3),
    decode_gamma=st.sampled_from([0, 1e-7, 1e-5]),
    decode_table=st.sampled_from([(), ((1, 0.004), (4, 0.006), (16, 0.02))]),
    transfer_base=milliseconds,
    chunk_tokens=st.integers(1, 300),
    kv_tokens=st.integers(100, 3000),
    kv_reserve=st.sampled_from([None, None, 0, 16]),
    cache_tokens=st.integers(0, 400),
    jitter=st.sampled_from([0, 0, 0.1]),
)
deployments = st.builds(
    Deployment,
    prefill_instances=st.integers(1, 3),
    decode_instances=st.integers(1, 3),
    max_running_requests=st.integers(1, 6),
    routing_prefill=st.sampled_from(["random", "round-robin", "least-load"]),
    routing_decode=st.sampled_from(["random", "round-robin", "least-load"]),
    admission=st.sampled_from(["early", "sequential"]),
)


@st.composite
def traffic(draw: st.DrawFn) -> list[Arrival]:
    """Up to 40 requests; some come together, some share a prefix."""
    rng = random.Random(draw(st.integers(0, 10**6)))
    rate = draw(st.sampled_from([5, 50, 500]))
    at_s, arrivals = 0.0, []
    for _ in range(draw(st.integers(1, 40))):
        at_s += rng.choice([0.0, rng.expovariate(rate)])
        prompt, output = rng.randint(1, 400), rng.choice([1, 2, rng.randint(1, 60)])
        shared = [rng.randint(0, 2)] * rng.randint(0, prompt)
        tokens = [*shared, *(rng.random() for _ in range(prompt - len(shared)))]
        hit = rng.choice([0, 0, rng.randint(0, prompt)])
        arrivals.append(Arrival(at_s, prompt, output, block_hashes(tokens, 16), hit))
    return arrivals


Deed = tuple[float, Callable[[Cluster, list[Request], float], None]]


def play(
    engine: Engine,
    deployment: Deployment,
    arrivals: list[Arrival],
    single_steps: bool = False,
    deeds: Iterable[Deed] = (),
    on_play: Callable[[Decode], None] | None = None,
) -> tuple[Cluster, list[Request]]:
    """A run in virtual time with other things happening in between."""
    listener = Listener(on_play, lambda _request: None) if on_play else None
    cluster = Cluster(engine, deployment, 3, single_steps, listener)
    requests = [Request(*arrival) for arrival in arrivals]
    plan: list[Deed] = [(r.received_s, submit(r)) for r in requests]
    for now, deed in sorted([*plan, *deeds], key=lambda one: one[0]):
        cluster.advance(now)
        deed(cluster, requests, now)
    cluster.advance(float("inf"))
    return cluster, requests


def submit(request: Request) -> Callable[[Cluster, list[Request], float], None]:
    return lambda cluster, _requests, now: cluster.submit(request, now)


@st.composite
def disturbances(draw: st.DrawFn) -> list[Deed]:
    """Clients that go away, and other deployments."""
    deeds: list[Deed] = []
    for _ in range(draw(st.integers(0, 8))):
        at_s = draw(st.floats(0.001, 3))
        victim = draw(st.integers(0, 39))
        keys = {
            "prefill_instances": draw(st.integers(1, 3)),
            "decode_instances": draw(st.integers(1, 3)),
            "max_running_requests": draw(st.integers(1, 6)),
        }
        deeds.append((at_s, draw(st.sampled_from([abort(victim), change(keys)]))))
    return deeds


def abort(victim: int) -> Callable[[Cluster, list[Request], float], None]:
    def deed(cluster: Cluster, requests: list[Request], now: float) -> None:
        if victim < len(requests) and requests[victim].phase != "new":
            cluster.abort(requests[victim], now)

    return deed


def change(keys: dict[str, int]) -> Callable[[Cluster, list[Request], float], None]:
    return lambda cluster, _requests, now: cluster.apply(cluster.deployment.changed(**keys), now)


def moments(request: Request) -> list[float]:
    return [getattr(request, name) for name in MOMENTS]


# -- laws ------------------------------------------------------------------------------------------


@LAWS
@given(engines, deployments, traffic(), disturbances())
def test_stepping_and_jumping_give_the_same_moments(
    engine: Engine, deployment: Deployment, arrivals: list[Arrival], deeds: list[Deed]
) -> None:
    _, jumped = play(engine, deployment, arrivals, False, deeds)
    _, stepped = play(engine, deployment, arrivals, True, deeds)
    for a, b in zip(jumped, stepped, strict=True):
        assert moments(a) == pytest.approx(moments(b), abs=1e-6, nan_ok=True)
        assert (a.outcome, a.produced, a.retractions) == (b.outcome, b.produced, b.retractions)


@LAWS
@given(engines, deployments, traffic(), disturbances())
def test_whatever_happens_every_request_ends_and_nothing_stays_taken(
    engine: Engine, deployment: Deployment, arrivals: list[Arrival], deeds: list[Deed]
) -> None:
    cluster, requests = play(engine, deployment, arrivals, False, deeds)
    assert {r.outcome for r in requests} <= {"ok", "aborted"}
    assert {r.phase for r in requests} == {"over"}
    assert all(p.idle and p.pending_tokens == 0 for p in cluster.prefills)
    for decode in cluster.decodes:
        assert decode.idle
        assert decode.slots.outside_kv == 0
        assert decode.kv_used(1e9) == 0
        assert not decode.running
        assert not decode.arrived


@LAWS
@given(engines, deployments, traffic())
def test_tokens_are_conserved(
    engine: Engine, deployment: Deployment, arrivals: list[Arrival]
) -> None:
    cluster, requests = play(engine, deployment, arrivals)
    assert [r.produced for r in requests] == [a.output_tokens for a in arrivals]
    assert sum(d.generated_tokens for d in cluster.decodes) == sum(
        a.output_tokens for a in arrivals
    )
    computed = sum(r.prompt_tokens - r.cached_tokens for r in requests)
    assert sum(p.computed_tokens for p in cluster.prefills) == computed


@LAWS
@given(engines, deployments, traffic())
def test_moments_come_in_the_order_of_the_stages(
    engine: Engine, deployment: Deployment, arrivals: list[Arrival]
) -> None:
    early = deployment.admission == "early"
    stages = ("slot_s", "queued_s", "prefill_began_s", "prefilled_s", "arrived_s", "joined_s")
    if not early:
        stages = ("queued_s", "prefill_began_s", "prefilled_s", "slot_s", "arrived_s", "joined_s")
    _, requests = play(replace(engine, kv_reserve=None), deployment, arrivals)
    for r in requests:
        way = [r.received_s, *(getattr(r, name) for name in stages), r.first_token_s]
        assert all(a <= b for a, b in pairwise(way))
        assert r.first_token_s == r.joined_s or not early
        assert isnan(r.second_token_s) == (r.output_tokens == 1)
        assert r.first_token_s <= r.last_token_s
        if r.output_tokens == 2:
            assert r.second_token_s == r.last_token_s


@LAWS
@given(engines, deployments, traffic())
def test_first_come_first_served(
    engine: Engine, deployment: Deployment, arrivals: list[Arrival]
) -> None:
    _, requests = play(replace(engine, kv_reserve=None), deployment, arrivals)
    for p in range(3):
        here = sorted(
            (r for r in requests if r.prefill_instance == p),
            key=lambda r: (r.queued_s, r.prefilled_s),
        )
        assert all(a.prefilled_s <= b.prefilled_s for a, b in pairwise(here))
    for d in range(3):
        there = sorted(
            (r for r in requests if r.decode_instance == d), key=lambda r: (r.prealloc_s, r.slot_s)
        )
        assert all(a.slot_s <= b.slot_s for a, b in pairwise(there))


@LAWS
@given(engines, deployments, traffic())
def test_a_decode_instance_never_holds_more_than_its_cap_and_its_memory(
    engine: Engine, deployment: Deployment, arrivals: list[Arrival]
) -> None:
    def look(decode: Decode) -> None:
        assert len(decode.running) + len(decode.arrived) <= decode.slots.taken
        assert decode.slots.taken <= deployment.max_running_requests
        if decode.slots.taken > 1:
            assert decode.kv_used(decode.next_s if decode.running else 0) <= engine.kv_tokens

    play(replace(engine, kv_reserve=None), deployment, arrivals, True, on_play=look)


@LAWS
@given(engines, deployments, traffic())
def test_time_in_the_batch_is_steps_times_batch(
    engine: Engine, deployment: Deployment, arrivals: list[Arrival]
) -> None:
    """Little's law, exactly: the integral of the batch size is the sum of the residence times."""
    area = 0.0

    def look(decode: Decode) -> None:
        nonlocal area
        area += decode.played_tokens * decode.step_s

    _, requests = play(replace(engine, kv_reserve=None), deployment, arrivals, on_play=look)
    assert area == pytest.approx(sum(r.last_token_s - r.joined_s for r in requests), abs=1e-6)


@LAWS
@given(st.integers(1, 200), st.lists(st.floats(0, 0.2), min_size=1, max_size=40))
def test_a_prefill_instance_works_whenever_there_is_work(prompt: int, gaps_s: list[float]) -> None:
    """With one prompt an iteration, the ends follow Lindley's recursion."""
    engine = replace(FAST, prefill_a=0.003, prefill_b=2e-4, prefill_c=1e-6, chunk_tokens=prompt)
    arrivals, at_s = [], 0.0
    for gap_s in gaps_s:
        at_s += gap_s
        arrivals.append(Arrival(at_s, prompt, 1))
    cluster, requests = play(engine, Deployment(1, 1, 1000), arrivals)
    end_s = 0.0
    for request in requests:
        end_s = max(end_s, request.received_s) + engine.prefill_s(prompt)
        assert request.prefilled_s == pytest.approx(end_s, abs=1e-9)
    assert cluster.prefills[0].busy_s == pytest.approx(len(requests) * engine.prefill_s(prompt))


@LAWS
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=40), st.integers(1, 4))
def test_more_prefill_never_makes_anybody_wait_longer(
    gaps_and_prompts: list[tuple[int, int]], prefills: int
) -> None:
    """Least-load on a grid of whole tokens is a central queue, where this holds for each request."""
    token_s = 1 / 1024  # exact in binary, so that arrivals meet the ends of iterations
    engine = replace(FAST, prefill_a=0, prefill_b=token_s, chunk_tokens=1)
    arrivals, at = [], 0
    for gap, prompt in gaps_and_prompts:
        at += gap
        arrivals.append(Arrival(at * token_s, prompt, 1))
    few, more = (
        play(engine, Deployment(n, 1, 1000, "least-load"), arrivals)[1]
        for n in (prefills, prefills + 1)
    )
    assert all(m.prefilled_s <= f.prefilled_s for f, m in zip(few, more, strict=True))


@LAWS
@given(engines, deployments, traffic())
def test_the_caches_account_for_every_prompt_token(
    engine: Engine, deployment: Deployment, arrivals: list[Arrival]
) -> None:
    cluster, requests = play(engine, deployment, arrivals)
    assert sum(p.cache.queried for p in cluster.prefills) == sum(a.prompt_tokens for a in arrivals)
    assert sum(p.cache.hit for p in cluster.prefills) == sum(r.cached_tokens for r in requests)
    assert all(r.hit_tokens - 1 <= r.cached_tokens < r.prompt_tokens for r in requests)
    assert all(len(p.cache) <= engine.cache_tokens // 16 for p in cluster.prefills)


@LAWS
@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=40), max_size=12))
def test_a_cache_finds_the_longest_prefix_it_has_seen(prompts: list[list[int]]) -> None:
    cache, seen = PrefixCache(10_000, 4), set[tuple[int, ...]]()
    for prompt in prompts:
        expected = 0
        while tuple(prompt[: expected + 4]) in seen and expected + 4 <= len(prompt):
            expected += 4
        blocks = block_hashes(prompt, 4)
        assert cache.look_up(blocks, len(prompt)) == min(expected, len(prompt) - 1)
        cache.insert(blocks)
        seen |= {tuple(prompt[:n]) for n in range(4, len(prompt) + 1, 4)}


def test_a_full_cache_forgets_the_oldest_and_ends_before_beginnings() -> None:
    cache = PrefixCache(capacity_tokens=6 * 4, block_tokens=4)
    old, kept, new = (block_hashes([name] * 12, 4) for name in "abc")
    for blocks in (old, kept):
        cache.insert(blocks)
    cache.look_up(kept, 12)
    cache.insert(new[:2])
    assert [cache.look_up(b, 13) for b in (old, kept, new)] == [4, 12, 8]


# -- effects that a planner may not know -------------------------------------------------------------


def test_a_batch_that_outgrows_the_memory_is_retracted_and_comes_back() -> None:
    engine = replace(FAST, kv_tokens=1000, kv_reserve=10, decode_alpha=0.01)
    arrivals = [Arrival(k * 0.001, 200, 150) for k in range(8)]
    highest = 0

    def look(decode: Decode) -> None:
        nonlocal highest
        if len(decode.running) > 1:
            highest = max(highest, decode.kv_used(decode.next_s))

    cluster, requests = play(engine, Deployment(1, 1, 8), arrivals, True, on_play=look)
    assert 900 < highest <= 1000
    assert cluster.decodes[0].retractions == sum(r.retractions for r in requests) > 0
    assert all(r.produced == 150 and r.outcome == "ok" for r in requests)
    put_out = max(requests, key=lambda r: r.retractions)
    spared = min(requests, key=lambda r: r.retractions)
    assert put_out.last_token_s - put_out.first_token_s > spared.last_token_s - spared.first_token_s


def test_jitter_widens_the_steps_and_keeps_their_mean() -> None:
    times = []
    for jitter in (0.0, 0.1):
        engine = replace(FAST, decode_alpha=0.01, decode_beta=0, decode_gamma=0, jitter=jitter)
        request = simulate([Arrival(0, 10, 4001)], Deployment(1, 1), engine)[0]
        times.append(request.last_token_s - request.first_token_s)
    assert times[0] == pytest.approx(40.0)
    assert times[1] == pytest.approx(40.0, rel=0.01)
    assert times[1] != times[0]


def test_a_table_replaces_the_line() -> None:
    line = Engine()
    table = replace(
        line,
        prefill_table=tuple((n, line.prefill_piece_s(0, n)) for n in (0, 100, 200, 3000)),
        decode_table=((1, line.step_base_s(1)), (64, line.step_base_s(64))),
        prefill_c=nan,
        decode_alpha=nan,
    )
    assert table.prefill_s(200) == pytest.approx(line.prefill_s(200))
    assert table.step_s(10, 500) == pytest.approx(line.step_s(10, 500))
    assert table.step_base_s(128) == pytest.approx(line.step_base_s(128))
    assert interpolate(((4, 0.5),), 99) == 0.5


def test_a_burst_of_hits_saves_prefill() -> None:
    cold = simulate([Arrival(0, 1000, 2)], Deployment(), Engine())[0]
    warm = simulate([Arrival(0, 1000, 2, hit_tokens=900)], Deployment(), Engine())[0]
    assert warm.cached_tokens == 900
    saved = Engine().prefill_s(1000) - Engine().prefill_s(100)
    assert cold.first_token_s - warm.first_token_s == pytest.approx(saved)


# -- what PD clusters are known for ------------------------------------------------------------------


def poisson(rate_rps: float, count: int, prompt: int, output: int, seed: int = 1) -> list[Arrival]:
    rng, at_s, arrivals = random.Random(seed), 0.0, []
    for _ in range(count):
        at_s += rng.expovariate(rate_rps)
        arrivals.append(Arrival(at_s, prompt, output))
    return arrivals


def p99(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[int(0.99 * len(ordered))]


def ttft_p99(requests: list[Request]) -> float:
    return p99(r.first_token_s - r.received_s for r in requests)


def tpot_p99(requests: list[Request]) -> float:
    return p99((r.last_token_s - r.first_token_s) / (r.output_tokens - 1) for r in requests)


@pytest.mark.parametrize("admission", ["early", "sequential"])
def test_a_full_d_raises_ttft_while_tpot_is_fine_and_p_idles(admission: str) -> None:
    arrivals = poisson(8, 1500, 500, 200)
    engine = Engine()
    full, roomy = (
        simulate(arrivals, Deployment(4, d, 8, admission=admission), engine) for d in (1, 4)
    )
    assert ttft_p99(full) > 20 * ttft_p99(roomy)
    assert tpot_p99(full) < 1.2 * engine.step_s(8, 8 * 700)
    more_p = simulate(arrivals, Deployment(8, 1, 8, admission=admission), engine)
    assert ttft_p99(more_p) > 0.9 * ttft_p99(full)


def test_a_slow_p_holds_decode_slots_under_early_admission_only() -> None:
    arrivals = poisson(6, 800, 1000, 20)
    early, sequential = (
        simulate(arrivals, Deployment(1, 1, 2, admission=a)) for a in ("early", "sequential")
    )
    held = [sum(r.last_token_s - r.slot_s for r in run) for run in (early, sequential)]
    assert held[0] > 1.2 * held[1]


@pytest.mark.parametrize(
    ("rate_rps", "rho", "expected_ms"),
    [(5.02, 0.6, 660), pytest.param(4.18, 0.5, 518, marks=pytest.mark.full), (2.51, 0.3, 345)],
)
def test_one_prefill_instance_is_m_d_1(rate_rps: float, rho: float, expected_ms: float) -> None:
    """Fixed lengths, S = 1434 / 12000 s: P99 of wait and service (planning notes, table 4.1)."""
    service_s = 1434 / 12000
    engine = replace(FAST, prefill_a=service_s, chunk_tokens=10)
    arrivals = poisson(rate_rps, 20_000, 10, 1)
    requests = simulate(arrivals, Deployment(1, 1, 10_000), engine)
    assert rate_rps * service_s == pytest.approx(rho, rel=0.01)
    assert 1000 * p99(r.prefilled_s - r.received_s for r in requests) == pytest.approx(
        expected_ms, rel=0.06
    )


def mean_tpot_of_formula(rate_rps: float, output: int, cap: int) -> float:
    """The state-dependent processor-sharing queue (planning notes, 5.1)."""
    weight, weights = 1.0, [1.0]
    for n in range(1, 2000):
        batch = min(n, cap)
        weight *= rate_rps * output * (0.008 + 0.000232 * batch) / batch
        weights.append(weight)
    running = sum(w * min(n, cap) for n, w in enumerate(weights)) / sum(weights)
    return running / (rate_rps * output)


@pytest.mark.parametrize("cv", [0, 1])
@pytest.mark.parametrize(
    ("rate_rps", "expected_ms"),
    [(4.0, 15.7), pytest.param(4.5, 17.7, marks=pytest.mark.full), (5.0, 20.2)],
)
def test_one_decode_instance_is_a_processor_sharing_queue(
    rate_rps: float, expected_ms: float, cv: int
) -> None:
    """Table 5.1 of the planning notes: t(b) = 8 + 0.232 b ms, 512 tokens, cap 64."""
    engine = replace(FAST, decode_alpha=0.008, decode_beta=0.000232, decode_gamma=0)
    rng = random.Random(7)
    sigma = sqrt(log(1 + cv * cv))
    mu = log(512) - sigma * sigma / 2
    arrivals = [
        a._replace(output_tokens=max(round(rng.lognormvariate(mu, sigma)), 2))
        for a in poisson(rate_rps, 6000, 10, 512)
    ]
    requests = simulate(arrivals, Deployment(1, 1, 64), engine)[500:]
    span_s = sum(r.last_token_s - r.first_token_s for r in requests)
    tpot_ms = 1000 * span_s / sum(r.output_tokens - 1 for r in requests)
    assert 1000 * mean_tpot_of_formula(rate_rps, 512, 64) == pytest.approx(expected_ms, abs=0.1)
    assert tpot_ms == pytest.approx(expected_ms, rel=0.04)


# -- what a scraper sees -----------------------------------------------------------------------------


def test_a_watcher_sees_the_same_gauges_in_jumped_as_in_stepped_time() -> None:
    arrivals = poisson(6, 60, 300, 80)
    pages: list[list[str]] = []
    for single in (False, True):
        telemetry = Telemetry()
        cluster = Cluster(
            Engine(), Deployment(), 0, single, Listener(telemetry.on_play, telemetry.on_end)
        )
        seen = []
        for arrival in arrivals:
            cluster.advance(arrival.at_s)
            cluster.submit(Request(*arrival), arrival.at_s)
            page = metrics_text(cluster, telemetry, "m", arrival.at_s)
            seen += [
                line
                for line in page.splitlines()
                if line.startswith(("sglang:num_", "sglang:token_usage", "sglang:decode_sum"))
            ]
        pages.append(seen)
    assert pages[0] == pages[1]
    assert any(line.endswith(" 3") for line in pages[0] if "running_reqs" in line)


def test_a_watch_looks_at_regular_moments() -> None:
    looks: list[float] = []
    simulate(
        [Arrival(0.5, 100, 10), Arrival(2.2, 100, 10)],
        Deployment(),
        watch=(1.0, lambda _cluster, now: looks.append(now)),
    )
    assert looks == [1.0, 2.0]


def test_a_histogram_counts_what_is_at_or_below_its_bounds() -> None:
    histogram = Histogram((1, 2))
    for value, times in ((1, 1), (1.5, 2), (9, 1)):
        histogram.observe(value, times)
    assert list(histogram.cumulative()) == [("1", 1), ("2", 3), ("+Inf", 4)]
    assert (histogram.sum, histogram.count) == (13, 4)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"prefill_instances": 0}, "found 0, allowed is a whole number from 1 to 10000."),
        ({"decode_instances": True}, "found True, allowed is a whole number"),
        ({"routing_decode": "sticky"}, "allowed are random, round-robin, least-load."),
        ({"prefils": 1}, "prefils: unknown, allowed are prefill_instances,"),
    ],
)
def test_a_deployment_refuses_what_it_cannot_be(keys: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Deployment().changed(**keys)


def test_admission_stays_as_it_began() -> None:
    with pytest.raises(ValueError, match="admission: fixed"):
        Cluster(Engine(), Deployment()).apply(Deployment(admission="sequential"), 0)
