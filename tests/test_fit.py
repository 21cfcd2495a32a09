"""Profiles fitted to traces, and those that are shipped: they come back to what they were made of."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.trace_folder import real
from workloads.__main__ import main
from workloads.describe import describe, requests_of
from workloads.fit import course, day_curve, fit, quantile_table
from workloads.lengths import Lognormal
from workloads.processes import GammaGaps, Minutes
from workloads.profile import profile
from workloads.traces import load_trace
from workloads.workload import load_workload, names


def samples() -> dict[str, "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    rng = np.random.default_rng(5)
    return {
        "lognormal": Lognormal.of_cv(2000, 3).sample(rng, 20_000),
        "ones": np.ones(500, np.int64),
        "few": np.array([1, 5, 900]),
        "a jump": np.where(rng.random(30_000) < 0.853, 10, 9_000),
        "a limit": np.minimum(Lognormal.of_cv(4000, 1).sample(rng, 20_000), 7_436),
    }


@pytest.mark.parametrize("name", ["lognormal", "ones", "a jump", "a limit"])
def test_a_table_keeps_the_mean_and_the_tail(name: str) -> None:
    found = fit(samples()[name])
    assert found.mean_ratio == pytest.approx(1, abs=0.02)
    assert found.p99_ratio == pytest.approx(1, abs=0.05)
    assert found.ks < 0.09


def test_the_end_of_a_table_is_one_that_keeps_the_mean_of_the_tail() -> None:
    data = samples()["lognormal"]
    table = quantile_table(data)
    assert len(table.q) == 24
    assert table.max == data.max()
    assert table.v[-1] < data.max()
    tail = data[data >= np.quantile(data, 0.999)]
    u = 0.999 + 0.001 * (np.arange(1000) + 0.5) / 1000
    assert table.continuous(u).mean() == pytest.approx(tail.mean(), rel=0.01)
    assert list(table.v) == sorted(table.v)
    assert quantile_table(samples()["few"]).v[0] == 1


def arrivals(
    cv: float, minutes: Minutes, rate: float, seed: int
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    gaps = GammaGaps(cv).gaps(np.random.default_rng(seed), int(rate * 36_000))
    return minutes.pieces(seed).when(np.cumsum(gaps) / rate)


def test_arrivals_are_told_apart_into_bursts_and_minutes() -> None:
    found = course(arrivals(1.5, Minutes(0.6, 0.7, 0.1), 8, 3))
    assert found.gap_cv == pytest.approx(1.5, abs=0.12)
    assert found.cv == pytest.approx(0.6, abs=0.15)
    assert found.ar1 == pytest.approx(0.7, abs=0.12)
    assert found.idle == pytest.approx(0.1, abs=0.04)
    even = course(np.cumsum(np.random.default_rng(1).exponential(0.2, 20_000)))
    assert even.gap_cv == pytest.approx(1, abs=0.03)
    assert even.cv < 0.05  # Poisson counts differ too: that is not a course


def test_a_long_trace_has_a_curve_of_its_day() -> None:
    due_s = np.arange(0, 3 * 86_400, 20.0)
    busy = due_s[((due_s // 3600) % 24 < 12) | (np.arange(len(due_s)) % 2 == 0)]
    assert day_curve(busy) == pytest.approx([4 / 3] * 12 + [2 / 3] * 12, abs=0.01)


def trace_file(tmp_path: Path, n: int = 12_000) -> Path:
    rng = np.random.default_rng(7)
    inputs = Lognormal.of_cv(900, 1.2).sample(rng, n)
    outputs = np.maximum(inputs // 9 + rng.integers(0, 90, n), 1)
    moments = np.cumsum(rng.gamma(0.25, 0.8, n))
    path = tmp_path / "mine.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("arrived_at", "num_prefill_tokens", "num_decode_tokens"))
        rows.writerows(zip(moments.tolist(), inputs.tolist(), outputs.tolist(), strict=True))
    return path


def test_a_fitted_profile_is_like_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, made = trace_file(tmp_path), tmp_path / "made.yaml"
    monkeypatch.setattr(sys, "argv", ["workloads", "fit", str(path), "-o", str(made)])
    assert main() == 0
    told = capsys.readouterr().err
    assert "input: KS 0.0" in told
    assert "P99 x" in told
    trace, w = load_trace(str(path)), load_workload(str(made))
    a, b = (describe(s, requests_of(s, n=20_000)) for s in (trace, w))
    assert a.moments is not None
    assert b.moments is not None
    assert b.input.mean == pytest.approx(a.input.mean, rel=0.02)
    assert b.input.p99 == pytest.approx(a.input.p99, rel=0.05)
    assert b.output.p99 == pytest.approx(a.output.p99, rel=0.05)
    assert b.rank_correlation == pytest.approx(a.rank_correlation, abs=0.03)
    assert b.moments.rate_rps == pytest.approx(a.moments.rate_rps, rel=0.05)
    assert b.moments.gap_cv_60s == pytest.approx(a.moments.gap_cv_60s, rel=0.1)


def test_conversations_become_sessions(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    rows = ["conv,agent,input_tokens,output_tokens,reused_blocks,think_time_s"]
    for conv in range(400):
        tokens = int(rng.integers(500, 1500))
        for turn in range(int(rng.integers(1, 8))):
            pause = f"{rng.lognormal(2, 0.5):.3f}" if turn else ""
            rows.append(f"{conv},main,{tokens},200,0,{pause}")
            tokens += 200 + int(rng.integers(50, 150))
    path, made = tmp_path / "agents.csv", tmp_path / "made.yaml"
    path.write_text("\n".join(rows) + "\n")
    made.write_text(profile(load_trace(str(path)))[0])
    w = load_workload(str(made))
    assert w.users == 20
    talk = w.classes[0].talk
    assert talk is not None
    assert talk.turns.mean == pytest.approx(4, rel=0.1)
    assert talk.new_input.mean == pytest.approx(100, rel=0.05)
    assert w.classes[0].input.mean == pytest.approx(1000, rel=0.05)
    assert w.mean_think_s == pytest.approx(np.exp(2 + 0.125), rel=0.05)


def test_a_trace_of_one_row_has_a_profile(tmp_path: Path) -> None:
    path, made = tmp_path / "one.csv", tmp_path / "made.yaml"
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n7,120,30\n")
    made.write_text(profile(load_trace(str(path)))[0])
    w = load_workload(str(made))
    means = w.classes[0].input.mean, w.classes[0].output.mean
    assert means == (pytest.approx(120), pytest.approx(30))
    assert w.rate_rps is None


REAL = [
    "azure_llm_2023_code.csv.gz",
    "azure_llm_2023_conv.csv.gz",
    "mooncake_fast25_conversation.jsonl.gz",
    "mooncake_fast25_synthetic.jsonl.gz",
    "vidur_arxiv_summarization_lengths.csv.gz",
    "sharegpt_v3_lengths_qwen3tok.csv.gz",
    "servegen_deepseek-r1_length_sample20k.csv.gz",
    "servegen_m-small_length_sample20k.csv.gz",
]


@pytest.mark.full
@pytest.mark.parametrize("file", REAL)
def test_real_traces_are_kept_by_their_tables(file: str) -> None:
    t = load_trace(real(file)).table
    for side in (t.input, t.output):
        found = fit(side)
        assert found.mean_ratio == pytest.approx(1, abs=0.02)
        assert found.p99_ratio == pytest.approx(1, abs=0.05)
        assert found.ks <= 0.075


@pytest.mark.full
def test_what_a_cache_would_have_goes_into_the_profile(tmp_path: Path) -> None:
    trace = load_trace(real("mooncake_fast25_conversation.jsonl.gz"))
    made = tmp_path / "made.yaml"
    made.write_text(profile(trace)[0])
    assert "9.36M tokens: 0.2" in made.read_text()
    pool = load_workload(str(made)).classes[0].pool
    assert pool is not None
    assert (pool.hit, pool.repeats, pool.block_tokens) == (0.374, False, 512)


# Of the source: input mean and P99, output mean and P99, rate (None: the user's), rank correlation.
SHIPPED = {
    "azure_code_2023": (2048, 7436, 27.9, 251, 2.567, -0.021),
    "azure_conv_2023": (1155, 4142, 211, 601, 5.53, 0.073),
    "mooncake_conversation": (12035, 85400, 343, 1118, 3.399, 0.072),
    "mooncake_synthetic": (15326, 66456, 149, 768, 3.907, -0.517),
    "arxiv_summarization": (2588, 3933, 291, 3271, None, -0.114),
    "sharegpt_first_turn": (184, 2624, 309, 796, None, 0.06),
    "servegen_deepseek_r1": (1281, 24054, 1540, 12720, 16.0, -0.377),
    "servegen_mm_image": (1431, 5637, 130, 590, 9.47, 0.106),
    "servegen_m_small": (118.4, 1477, 14.9, 142, 1174, 0.473),
    "servegen_m_mid": (309, 2630, 51.6, 417, 1790, 0.043),
    "servegen_m_large": (908, 5491, 154, 865, 195.8, 0.119),
}
TALKS = {"claude_code_agentic": (118_296, 440, 0.962), "sharegpt_multi_turn": (831, 286, 0.61)}


def test_each_profile_names_its_source_licence_and_use() -> None:
    assert set(names()) == {*SHIPPED, *TALKS, "seed_example"}
    for name in (*SHIPPED, *TALKS):
        text = (Path(load_workload.__code__.co_filename).parent / f"{name}.yaml").read_text()
        assert text.startswith("# ")
        for key in ("about: ", "source: ", "licence: ", "# Licence of the data: ", "# From "):
            assert f"\n{key}" in text, (name, key)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_is_like_its_source(name: str) -> None:
    w = load_workload(name)
    c = w.classes[0]
    in_mean, in_p99, out_mean, out_p99, rate, ranks = SHIPPED[name]
    assert w.rate_rps == (pytest.approx(rate, rel=0.001) if rate else None)
    for side, mean, p99 in ((c.input, in_mean, in_p99), (c.output, out_mean, out_p99)):
        assert side.mean == pytest.approx(mean, rel=0.02)
        assert side.quantile(0.99) == pytest.approx(p99, rel=0.01)
    assert c.rank_correlation == ranks


def test_only_azure_code_has_its_course_on() -> None:
    """A course would make a short run at --rate X one at another rate."""
    assert [n for n in SHIPPED if load_workload(n).course is not None] == ["azure_code_2023"]
    assert load_workload("servegen_deepseek_r1").peak_rate_rps == pytest.approx(2.66 * 16, rel=0.01)


@pytest.mark.parametrize("name", TALKS)
def test_a_profile_of_conversations_is_like_its_source(name: str) -> None:
    w = load_workload(name)
    d = describe(w, requests_of(w, n=2_000))
    inputs, outputs, hit = TALKS[name]
    assert w.classes[0].output.mean == pytest.approx(outputs, rel=0.02)
    assert d.ideal_hit == pytest.approx(hit, abs=0.02)
    assert d.input.mean == pytest.approx(inputs, rel=0.25)  # of the first 2,000 turns of a run
