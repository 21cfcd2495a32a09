"""Every wrong setting: one sentence, exit code 1, before any load is sent; never a traceback."""

import json
from pathlib import Path

import pytest

from tests.processes import Emulator, Locust, emulator

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cluster():  # type: ignore[no-untyped-def]
    with emulator() as running:
        yield running


@pytest.fixture(scope="module")
def guarded():  # type: ignore[no-untyped-def]
    with emulator(
        "--api-key-env", "PD_TEST_KEY", env={"PD_TEST_KEY": "sk-good-key-123"}
    ) as running:
        yield running


def refused(tmp_path: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    """The sentence that a run was refused with."""
    run = Locust("--headless", "-t", "5", *arguments, run_dir=tmp_path / "runs", env=env)
    finished = run.finish(30)
    assert finished.code == 1, finished.output
    assert "Traceback" not in finished.output
    assert not (tmp_path / "runs").exists()
    told = [line for line in finished.output.splitlines() if line.startswith("error: ")]
    assert len(told) == 1, finished.output
    return told[0]


OPTIONS = [
    (("--rate", "0"), "--rate: found '0'"),
    (("--rate", "-3"), "--rate: found '-3'"),
    (("--seed", "x"), "--seed: found 'x', allowed is a whole number"),
    (("--workload", "azure_conv_203"), "did you mean 'azure_conv_2023'"),
    (("--workload", "missing.yaml"), "missing.yaml: cannot be read"),
    (("--trace", "missing.csv"), "missing.csv cannot be read"),
    (("--plan", "missing.json"), "missing.json: cannot be read"),
    (("--confidence", "sure"), "--confidence: found 'sure', allowed are likely, confirmed"),
    (("--warmup", "soon"), "--warmup: found 'soon'"),
    (("--api-key-env", "PD_NO_SUCH_VARIABLE"), "PD_NO_SUCH_VARIABLE is not set"),
    (("--model", "emulatd"), "did you mean 'emulated'"),
    (("-H", "http://127.0.0.1:9"), "not reachable"),
    (("-H", "127.0.0.1:9"), "has no scheme"),
]


@pytest.mark.parametrize(("arguments", "sentence"), OPTIONS, ids=[" ".join(o[0]) for o in OPTIONS])
def test_a_wrong_option_is_told_in_one_sentence(
    cluster: Emulator, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    host = () if "-H" in arguments else ("-H", cluster.url)
    assert sentence in refused(tmp_path, *host, *arguments)
    assert len(cluster.truth()) <= 2  # probes at the most, no load


WORKLOADS = [
    (
        "rate_rps: 5\ninputs: {dist: fixed, value: 3}\n",
        "unknown key 'inputs'",
        "did you mean 'input'",
    ),
    ("input: {dist: fixd, value: 3}\noutput: {dist: fixed, value: 3}\n", "found 'fixd'", "'fixed'"),
    (
        "input: {dist: quantiles, q: [0, 1], v: [9, 3]}\noutput: {dist: fixed, value: 3}\n",
        "input: v must not fall",
        "found 3 at place 2",
    ),
    (
        "rate_rps: -1\ninput: {dist: fixed, value: 3}\noutput: {dist: fixed, value: 3}\n",
        "rate_rps",
        "-1",
    ),
    ("input: [\n", "is not YAML", ""),
]


@pytest.mark.parametrize(("text", "found", "allowed"), WORKLOADS)
def test_a_wrong_workload_file_is_told_with_file_and_key(
    cluster: Emulator, tmp_path: Path, text: str, found: str, allowed: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    told = refused(tmp_path, "-H", cluster.url, "--workload", str(file))
    assert str(file) in told
    assert found in told
    assert allowed in told


def test_a_broken_trace_row_is_told_with_file_and_line(cluster: Emulator, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\nnow,1,2\n"
    file.write_text(rows)
    told = refused(tmp_path, "-H", cluster.url, "--trace", str(file))
    assert f"{file}, line 3" in told


def test_a_misspelt_plan_key_is_told_with_the_right_one(cluster: Emulator, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"slo": {"ttft_p99": 500, "tpot_p99_ms": 50}}))
    told = refused(tmp_path, "-H", cluster.url, "--plan", str(file))
    assert "slo.ttft_p99" in told
    assert "did you mean 'ttft_p99_ms'" in told


def test_a_refused_key_is_told_without_showing_it(guarded: Emulator, tmp_path: Path) -> None:
    env = {"PD_BAD_KEY": "sk-bad-key-987"}
    told = refused(tmp_path, "-H", guarded.url, "--api-key-env", "PD_BAD_KEY", env=env)
    assert "401" in told
    assert "sk-bad-key-987" not in told


def test_a_target_that_does_not_stream_is_told(tmp_path: Path) -> None:
    with emulator("--fault", "no-choices=1") as broken:
        assert "gave no token stream" in refused(tmp_path, "-H", broken.url)
