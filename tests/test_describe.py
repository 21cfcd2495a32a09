"""What traffic is like: against values that can be worked out, and against what is published."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.trace_folder import real
from workloads.__main__ import main
from workloads.describe import Requests, describe, per_minute, requests_of, spearman, windowed_cv
from workloads.reuse import hit_curve, ideal_tokens, lru_tokens, working_set_tokens
from workloads.screen import histogram
from workloads.trace_rows import Blocks
from workloads.traces import load_trace
from workloads.workload import load_workload

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def blocks(*rows: list[int], size: int = 10) -> Blocks:
    ids = np.array([k for row in rows for k in row], np.int64)
    begins = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return Blocks(ids, begins, size)


def test_a_block_counts_only_with_its_whole_chain_and_no_more_than_the_prompt() -> None:
    b = blocks([1, 2, 3], [1, 2, 3], [1, 9, 3], [], [1, 9, 4], [7])
    inputs = np.array([25, 25, 30, 5, 28, 10])
    assert ideal_tokens(b, inputs).tolist() == [0, 25, 10, 0, 20, 0]


def test_a_small_cache_forgets_the_ends_of_chains_first() -> None:
    b = blocks([1, 2, 3], [1, 2, 3], [8], [1, 2, 3], [1, 2, 3])
    inputs = np.array([30, 30, 10, 30, 30])
    assert lru_tokens(b, inputs, 3).tolist() == [0, 30, 0, 20, 30]
    assert lru_tokens(b, inputs, 4).tolist() == [0, 30, 0, 30, 30]
    assert lru_tokens(b, inputs, 2).tolist() == [0, 20, 0, 10, 20]


def test_a_cache_of_everything_is_the_ideal_one() -> None:
    rng = np.random.default_rng(1)
    rows = [[0, *sorted(rng.integers(1, 60, rng.integers(0, 9)).tolist())] for _ in range(300)]
    b, inputs = blocks(*rows), np.array([10 * len(row) for row in rows])
    ideal = ideal_tokens(b, inputs)
    assert lru_tokens(b, inputs, 61).tolist() == ideal.tolist()
    curve = hit_curve(b, inputs, [20, 100, 300, working_set_tokens(b)])
    assert curve == sorted(curve)
    assert curve[-1] == ideal.sum() / inputs.sum()


def test_rank_correlation_as_scipy_has_it_ties_too() -> None:
    i = np.arange(500)
    a, b = i * i * 7919 % 31, i * i * 104_729 % 29
    b[:250] = a[:250]
    # scipy.stats.spearmanr(a, b).statistic of SciPy 1.17.1, which takes 1.5 s to import
    assert spearman(a, b) == pytest.approx(0.5406866793251478, abs=1e-12)
    assert spearman(a, np.ones(500)) == 0


def test_burstiness_within_minutes_is_told_from_the_course_of_the_rate() -> None:
    rng = np.random.default_rng(3)
    parts = [
        60 * k + np.sort(rng.uniform(0, 60, rng.poisson(20 + 400 * (k % 2)))) for k in range(60)
    ]
    due_s = np.concatenate([[0.0], *parts])  # minutes are counted from the first arrival
    assert windowed_cv(due_s) == pytest.approx(1.0, abs=0.05)
    gaps = np.diff(due_s)
    assert gaps.std() / gaps.mean() > 1.5
    assert windowed_cv(due_s[:10]) is None


def test_only_whole_minutes_count_for_the_peak() -> None:
    due_s = np.array([0.0, 1, 61, 62, 63, 125])
    assert per_minute(due_s, np.ones(6)).tolist() == [2, 3]
    assert per_minute(due_s[:2], np.array([5, 6])).tolist() == [11]


def test_a_workload_comes_out_as_it_is_written() -> None:
    w = load_workload("azure_conv_2023")
    d = describe(w, requests_of(w, n=30_000))
    assert d.moments is not None
    assert d.moments.rate_rps == pytest.approx(5.53, rel=0.02)
    assert d.moments.gap_cv_60s == pytest.approx(1.0, abs=0.03)
    assert d.input.mean == pytest.approx(1154.7, rel=0.02)
    assert d.rank_correlation == pytest.approx(0.073, abs=0.02)
    assert d.ideal_hit is None


def test_what_is_not_told_is_left_open() -> None:
    w = load_workload("D(100,200)")
    d = describe(w, Requests(None, np.full(5, 100), np.full(5, 200), np.zeros(5, np.int64)))
    assert (d.moments, d.ideal_hit, d.uncached, d.hit_at) == (None, None, None, ())
    assert (d.in_out, d.rank_correlation, d.input.cv) == (0.5, 0, 0)


# -- published numbers: rate, cv in all and within 60 s, peak, means, P99, cv, rank correlation, in:out ---

PUBLISHED = {
    "azure_llm_2023_code.csv.gz": (2.567, 13.15, 3.18, 4.18, 2048, 7436, 28, 251, -0.02, 73.45),
    "azure_llm_2023_conv.csv.gz": (5.53, 1.09, 1.02, 1.52, 1155, 4142, 211, 601, 0.07, 5.47),
    "mooncake_fast25_conversation.jsonl.gz": (
        *(3.40, 1.01, 0.99, 1.21, 12035, 85400, 343, 1119, 0.07, 35.13),
    ),
    "mooncake_fast25_synthetic.jsonl.gz": (
        *(3.91, 1.01, 1.00, 1.17, 15325, 66456, 149, 768, -0.52, 102.77),
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("file", PUBLISHED)
def test_real_traces_come_out_as_published(file: str) -> None:
    trace = load_trace(real(file))
    d = describe(trace, requests_of(trace))
    m = d.moments
    assert m is not None
    rate, cv, cv_60s, peak, *lengths, ranks, in_out = PUBLISHED[file]
    assert m.rate_rps == pytest.approx(rate, rel=0.002)
    assert m.gap_cv == pytest.approx(cv, abs=0.03)
    assert m.gap_cv_60s == pytest.approx(cv_60s, abs=0.03)
    assert m.peak_rate == pytest.approx(peak, abs=0.02)
    found = [d.input.mean, d.input.p99, d.output.mean, d.output.p99]
    assert found == pytest.approx(lengths, rel=0.005)
    assert d.rank_correlation == pytest.approx(ranks, abs=0.006)
    assert d.in_out == pytest.approx(in_out, rel=0.001)


HITS = {
    "mooncake_fast25_conversation.jsonl.gz": (0.374, {500: 0.043, 5000: 0.114, 20_000: 0.294}),
    "mooncake_fast25_synthetic.jsonl.gz": (0.651, {1000: 0.086, 5000: 0.285, 20_000: 0.582}),
}


@pytest.mark.parametrize(
    "file",
    [pytest.param(f, marks=[pytest.mark.full] if "conversation" in f else []) for f in HITS],
)
def test_hit_rates_of_real_traces_come_out_as_published(file: str) -> None:
    ideal, lru = HITS[file]
    trace = load_trace(real(file))
    d = describe(trace, requests_of(trace), [512 * k for k in lru])
    assert d.ideal_hit == pytest.approx(ideal, abs=0.001)
    assert [rate for _, rate in d.hit_at] == pytest.approx(list(lru.values()), abs=0.002)
    assert d.uncached is not None
    assert d.uncached.cv == pytest.approx(1.80 if ideal == 0.374 else 2.16, abs=0.01)


# -- the command ----------------------------------------------------------------------------------------------


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["workloads", *words])
    return main()


def small(tmp_path: Path) -> str:
    path = tmp_path / "small.csv"
    rows = "".join(
        f"2023-11-16 18:{k // 60:02}:{k % 60:02}.5,{90 + k},{9 + k % 7}\n" for k in range(300)
    )
    path.write_text(AZURE + rows)
    return str(path)


def test_describe_says_what_was_read_and_writes_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert run(monkeypatch, "describe", small(tmp_path), "-o", str(page)) == 0
    told = capsys.readouterr().out
    assert (
        "note: small.csv: read as azure (Azure LLM inference trace): moments in wall clock" in told
    )
    assert "arrivals 1.003 req/s over 299 s; cv of gaps 0.00 in all" in told
    assert "| small | 300 | 299 s, 1.00 rps |" in told
    html = page.read_text(encoding="utf-8")
    assert html.count('class="figure"') == 3  # no blocks, so no hit curve
    assert html.count("Plotly.newPlot('f") == 3
    assert "https://cdn" not in html.split("<script>")[-1]


def test_list_names_each_profile_with_its_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "list") == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 14
    assert all(len(line.split()) > 5 for line in told)


def test_constant_lengths_have_a_histogram_too() -> None:
    bars = histogram("output", np.full(9, 5))
    assert bars.split()[1:] == ["5", "█", "10"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("describe", "azure_cod_2023"), "did you mean 'azure_code_2023'"),
        (("describe", "azure_code_2023", "--cache-tokens", "2.6X"), "--cache-tokens: found '2.6X'"),
        (("describe", "none.csv"), "none.csv cannot be read"),
        (("fit", "azure_code_2023"), "is a workload already; allowed is a trace file"),
        (("describe", "D(100,100)", "-o", "/none/x.html"), "-o: /none/x.html cannot be written"),
    ],
)
def test_the_command_refuses_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    told: str,
) -> None:
    assert run(monkeypatch, *words) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert told in error
