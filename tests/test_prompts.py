"""Prompts: as many tokens as asked for, shared text where asked for and nowhere else."""

import json
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

from workloads.arrivals import Arrival, Segment
from workloads.errors import ConfigError
from workloads.prompts import WORDS, Calibration, PromptWriter, words_of
from workloads.workload import load_workload


def arrival(index: int, tokens: int, *prefix: Segment) -> Arrival:
    return Arrival(index, 0.0, "chat", tokens, 10, prefix)


def shared_words(a: str, b: str) -> int:
    pairs = zip(a.split(), b.split(), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@pytest.mark.parametrize("tokens", [1, 5, 6, 7, 500, 200_000])
def test_a_prompt_has_as_many_words_as_tokens_are_left(tokens: int) -> None:
    assert len(PromptWriter("s").prompt(arrival(3, tokens)).split()) == tokens
    with_template = PromptWriter("s", Calibration(template_tokens=20.0))
    assert len(with_template.prompt(arrival(3, tokens)).split()) == max(tokens - 20, 1)
    assert len(PromptWriter("s").token_ids(arrival(3, tokens))) == tokens


def test_no_two_prompts_begin_alike_in_any_run_or_worker() -> None:
    writers = [PromptWriter(salt) for salt in ("a", "b")]
    texts = [w.prompt(arrival(k, 50)) for w in writers for k in range(500)]
    assert len({tuple(t.split()[:6]) for t in texts}) == 1000


def test_the_same_salt_writes_the_same_text_on_every_worker() -> None:
    assert PromptWriter("a").prompt(arrival(9, 80)) == PromptWriter("a").prompt(arrival(9, 80))


def test_pool_heads_are_shared_up_to_their_length_and_no_further() -> None:
    writer = PromptWriter("s")
    one, two = (writer.prompt(arrival(k, 100, Segment("pool", 4, 0, 48))) for k in (1, 2))
    assert shared_words(one, two) == 48
    other = writer.prompt(arrival(3, 100, Segment("pool", 5, 0, 48)))
    assert shared_words(one, other) == 0


def test_a_repeated_request_is_the_same_text_and_a_conversation_grows() -> None:
    writer = PromptWriter("s")
    again = [writer.prompt(arrival(k, 70, Segment("repeat", 2, 0, 70))) for k in (1, 2)]
    assert again[0] == again[1]
    turns = [
        writer.prompt(arrival(k, n, Segment("system", 0, 0, 30), Segment("session", 7, 0, n - 30)))
        for k, n in ((1, 100), (2, 250), (3, 70_000))
    ]
    assert [len(t.split()) for t in turns] == [100, 250, 70_000]
    assert shared_words(turns[0], turns[1]) == 100
    assert shared_words(turns[1], turns[2]) == 250


def test_token_ids_share_what_texts_share() -> None:
    writer = PromptWriter("s")
    one, two = (writer.token_ids(arrival(k, 100, Segment("pool", 4, 0, 48))) for k in (1, 2))
    assert [a == b for a, b in zip(one, two, strict=True)][:48] == [True] * 48
    assert one[48:54] != two[48:54]


@pytest.mark.parametrize("template", [0, 9, 37, 300])
@pytest.mark.parametrize("per_word", [1.0, 1.31, 2.4])
def test_probes_that_were_off_are_corrected_by_the_answers(template: int, per_word: float) -> None:
    """The calibration begins 20 % off, as it does with a template that only long prompts get."""
    rng = np.random.default_rng(1)
    calibration = Calibration(template * 0.8, per_word * 1.05)
    wanted = rng.integers(400, 3000, 4000)
    errors = []
    for tokens in wanted.tolist():
        words = calibration.words_for(tokens)
        told = round(template + per_word * words)
        calibration.learn(words, told)
        errors.append(abs(told - tokens))
    late = np.array(errors[500:]) / wanted[500:]
    allowed = np.maximum(0.01, 2 / wanted[500:])
    assert np.median(late) <= 0.01
    assert (late <= np.maximum(0.03, allowed)).mean() >= 0.99


def test_a_target_that_counts_something_else_moves_nothing() -> None:
    calibration = Calibration(10, 1.0)
    for words in range(100, 200):
        calibration.learn(words, 5000 * words)
    assert calibration.words_for(110) == 100


def test_profiles_share_as_much_as_they_promise() -> None:
    """30 % of each prompt, in whole blocks, from a pool: rounded so that the mean is right."""
    sample = load_workload("seed_example").schedule(1, 100).sample(20_000)
    assert sample.shared_tokens.sum() / sample.input_tokens.sum() == pytest.approx(0.3, abs=0.002)
    assert set((sample.shared_tokens % 16).tolist()) == {0}


def test_a_fraction_of_whole_requests_repeats(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        "rate_rps: 10\ninput: {dist: lognormal, mean: 900, cv: 1}\noutput: {dist: fixed, value: 9}\n"
        "prefix: {hit: 0.3, mode: requests, pool: 50, zipf: 1.0}\n",
        encoding="utf-8",
    )
    rows = list(load_workload(str(path)).schedule(1, 500).stripe(0, 1))
    again = [a for a in rows if a.prefix]
    assert len(again) / len(rows) == pytest.approx(0.3, abs=0.02)
    lengths: dict[int, set[int]] = {}
    for a in again:
        lengths.setdefault(a.prefix[0].key, set()).add(a.input_tokens)
    assert all(len(found) == 1 for found in lengths.values())
    popular = sorted((sum(a.prefix[0].key == k for a in again) for k in lengths), reverse=True)
    assert popular[0] / len(again) == pytest.approx(1 / sum(1 / k for k in range(1, 51)), rel=0.2)


def test_a_tokenizer_file_leaves_words_that_are_one_token(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(
        json.dumps({"model": {"vocab": {f"Ġ{w}": k for k, w in enumerate(WORDS[:99])}}})
    )
    assert words_of(str(file)) == WORDS[:99]
    for text, said in (("{}", "no model.vocab"), ('{"model": {"vocab": {"a": 1}}}', "at least 64")):
        file.write_text(text)
        with pytest.raises(ConfigError, match=said):
            words_of(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        words_of(str(tmp_path / "none"))
