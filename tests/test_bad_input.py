"""Every wrong setting: one sentence, exit code 1, before any load is sent; never a traceback."""

from pathlib import Path

import pytest

from pd_users.options import read
from tests.processes import Emulator, Locust, emulator
from workloads.errors import ConfigError
from workloads.traces import load_trace
from workloads.workload import load_workload


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
    (("--rate", "-3"), "--rate: found '-3'"),
    (("--model", "emulatd"), "did you mean --model emulated"),
    (("-H", "http://127.0.0.1:9"), "not reachable"),
]


@pytest.mark.process
@pytest.mark.parametrize(("arguments", "sentence"), OPTIONS, ids=[" ".join(o[0]) for o in OPTIONS])
def test_a_wrong_option_ends_the_run_before_any_load(
    cluster: Emulator, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    host = () if "-H" in arguments else ("-H", cluster.url)
    assert sentence in refused(tmp_path, *host, *arguments)
    assert len(cluster.truth()) <= 2  # probes at the most, no load


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"rate": "0"}, "--rate: found '0', allowed is a number more than 0"),
        ({"rate": "fast"}, "--rate: found 'fast'"),
        ({"rate": "inf"}, "--rate: found 'inf'"),
        ({"seed": "x"}, "--seed: found 'x', allowed is a whole number"),
        ({"seed": "-1"}, "--seed: found '-1'"),
        ({"confidence": "sure"}, "--confidence: found 'sure', allowed are likely, confirmed"),
        ({"confidence": "likly"}, "did you mean 'likely'"),
        ({"warmup": "soon"}, "--warmup: found 'soon', allowed are seconds"),
        ({"drain_timeout": "-5"}, "--drain-timeout: found '-5'"),
        ({"trace_limit": "0"}, "--trace-limit: found '0'"),
        ({"trace_speed": "0"}, "--trace-speed: found '0'"),
        ({"ttft_p99_ms": "-1"}, "--ttft-p99-ms: found '-1'"),
    ],
)
def test_a_wrong_value_names_the_option_and_what_is_allowed(
    given: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as told:
        read(given)
    assert sentence in str(told.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("azure_conv_203", "did you mean 'azure_conv_2023'"),
        ("missing.yaml", "missing.yaml: cannot be read"),
    ],
)
def test_a_workload_that_is_not_there_is_told(name: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as told:
        load_workload(name)
    assert sentence in str(told.value)


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
    # YAML 1.1 would read true, 90 and the last of two
    ("scenario: D(9,9)\nrate_rps: on\n", "line 2: rate_rps", "found 'on'"),
    ("scenario: D(9,9)\nrate_rps: true\n", "line 2: rate_rps: must be a number", "found True"),
    ("scenario: D(9,9)\nwindow_s: 1:30\n", "line 2: window_s", "found '1:30'"),
    ("scenario: D(9,9)\nrate_rps: 20\nrate_rps: 21\n", "'rate_rps' is there twice", "2 and 3"),
    ("scenario: D(9,9)\nprefix: {hit: 85}\n", "line 2: prefix.hit", "for 85 % write 0.85"),
    ("scenario: D(9,9)\nprefix: {hit: -0.1}\n", "line 2: prefix.hit", "found -0.1"),
    ("scenario: D(9,9)\nslo: {tpot_p99_m: 9}\n", "'slo.tpot_p99_m'", "did you mean 'tpot_p99_ms'"),
    ("scenario: D(9)\n", "found 'D(9)'", "D(in,out)"),
    ("scenario: D(0,9)\n", "lengths must be 1 or more", ""),
    ("scenario: D(9,9)\ninput: {dist: fixed, value: 3}\n", "scenario stands for input", ""),
    ("rate_rps: 3\noutput: {dist: fixed, value: 3}\n", "input is missing", ""),
    ("input: {dist: fixed, value: 0}\noutput: {dist: fixed, value: 3}\n", "input.value", "found 0"),
    ("input: {value: 3}\noutput: {dist: fixed, value: 3}\n", "input: dist is missing", "lognormal"),
    (
        "input: {dist: lognormal, mean: 3}\noutput: {dist: fixed, value: 3}\n",
        "give mean and cv, mean and p99, or mu and sigma",
        "found mean",
    ),
    (
        "input: {dist: empirical, file: no.csv, column: a}\noutput: {dist: fixed, value: 3}\n",
        "no.csv cannot be read",
        "",
    ),
    (
        "output: {dist: fixed, value: 3}\ninput: {dist: mixture, parts: [{weight: 1, dist: fixed, vlue: 3}]}\n",
        "unknown key 'input.parts.0.vlue'",
        "did you mean 'value'",
    ),
    ("scenario: D(9,9)\narrivals: {process: gamma}\n", "cv goes with process: gamma", ""),
    ("scenario: D(9,9)\narrivals: {rate: {}}\n", "give one of stages, ramp, day", "found none"),
    (
        "scenario: D(9,9)\narrivals: {rate: {minutes: {cv: 0.1, idle: 0.5}}}\n",
        "cv must be at least 1",
        "found 0.1",
    ),
    ("scenario: D(9,9)\nthink_s: {dist: fixed, value: 1}\n", "think_s goes with users", ""),
    ("classes: [{name: a, weight: 1}]\n", "class a: input is missing", ""),
    (
        "scenario: D(9,9)\nclasses: [{name: a, scenario: 'D(9,9)'}]\n",
        "scenario belongs into each",
        "",
    ),
    (
        "classes: [{name: a, scenario: 'D(9,9)'}, {name: a, scenario: 'D(9,9)'}]\n",
        "different names",
        "found a, a",
    ),
]


@pytest.mark.parametrize(("text", "found", "allowed"), WORKLOADS)
def test_a_wrong_workload_file_is_told_with_file_and_key(
    tmp_path: Path, text: str, found: str, allowed: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_workload(str(file))
    told = str(error.value)
    assert told.startswith(str(file))
    assert found in told
    assert allowed in told


def test_numbers_are_read_as_people_write_them(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "rate_rps: 5e2\ninput: {dist: fixed, value: 4e4}\noutput: {dist: fixed, value: 1_000}\n"
    )
    read_back = load_workload(str(file))
    assert read_back.rate_rps == 500
    (kind,) = read_back.classes
    assert (kind.input.quantile(0.5), kind.output.quantile(0.5)) == (40_000, 1_000)


def test_an_empirical_column_is_told_with_its_line(tmp_path: Path) -> None:
    file, lengths = tmp_path / "mine.yaml", tmp_path / "lengths.csv"
    file.write_text(
        "input: {dist: empirical, file: lengths.csv, column: tokens}\noutput: {dist: fixed, value: 3}\n"
    )
    for text, told in (
        ("tokens\n12\nmany\n", "line 3: found 'many'"),
        ("tokens\n12\n-4\n", "line 3: found '-4'"),
        ("count\n12\n", "has no column 'tokens', it has count"),
        ("tokens\n", "holds no rows"),
    ):
        lengths.write_text(text)
        with pytest.raises(ConfigError, match=told):
            load_workload(str(file))
    lengths.write_text("tokens\n12\n30\n")
    assert load_workload(str(file)).classes[0].input.mean == 21


@pytest.mark.parametrize(
    ("row", "line"),
    [("now,1,2", 3), ("2023-11-16 18:15:50.1,0,4", 3), ("2023-11-16 18:15:50,5", 3)],
)
def test_a_broken_trace_row_is_told_with_file_and_line(tmp_path: Path, row: str, line: int) -> None:
    file = tmp_path / "trace.csv"
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    file.write_text(f"{head}{row}\n")
    with pytest.raises(ConfigError) as told:
        load_trace(str(file))
    assert f"{file}, line {line}" in str(told.value)


@pytest.mark.process
def test_a_refused_key_is_told_without_showing_it(guarded: Emulator, tmp_path: Path) -> None:
    env = {"PD_BAD_KEY": "sk-bad-key-987"}
    told = refused(tmp_path, "-H", guarded.url, "--api-key-env", "PD_BAD_KEY", env=env)
    assert "401" in told
    assert "sk-bad-key-987" not in told


@pytest.mark.process
def test_a_target_that_does_not_stream_is_told(tmp_path: Path) -> None:
    with emulator("--fault", "no-choices=1") as broken:
        assert "the answer has no choices" in refused(tmp_path, "-H", broken.url)
