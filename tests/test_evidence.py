"""Evidence: readable, one line, short, and never a secret."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_users.evidence import evidence, mask

KEY = "sk-proj-AbC123_xyz-789"


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}.",
        f"Authorization: Bearer {KEY}",
        f'{{"authorization": "Bearer {KEY}"}}',
        f"api_key={KEY}&x=1",
        f"x-api-key: {KEY}",
        f"Basic {KEY}==",
        f"http://user:{KEY}@host/path",
    ],
)
def test_what_looks_like_a_key_is_masked(text: str) -> None:
    assert KEY not in mask(text)
    assert "***" in mask(text)


@pytest.mark.parametrize(
    "token", ["hf_abcdefgh", "nvapi-abc123", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.sig"]
)
def test_other_kinds_of_keys_are_masked(token: str) -> None:
    assert mask(f"token {token} refused") == "token *** refused"


def test_the_very_key_is_masked_whatever_it_looks_like() -> None:
    assert "hunter22" not in mask("you sent hunter22!", ["hunter22"])
    assert "a%2Fb%2Bc%3D" not in mask("you sent a%2Fb%2Bc%3D", ["a/b+c="])


@pytest.mark.parametrize(
    "words",
    [
        "task-force 12",
        "the basic model",
        "risk-averse",
        "bearer of bad news",
        "no secret here",
        "ask-me",
    ],
)
def test_plain_words_are_left_alone(words: str) -> None:
    assert mask(words) == words


@pytest.mark.parametrize(
    ("body", "gist"),
    [
        ({"error": {"message": "当前负载已饱和", "code": 1}}, "当前负载已饱和"),
        ({"error": "boom"}, "boom"),
        ({"message": "boom", "code": 404}, "boom"),
        (
            {"detail": [{"loc": ["body"], "msg": "field required"}]},
            '[{"loc":["body"],"msg":"field required"}]',
        ),
        ({"detail": "Not Found"}, "Not Found"),
        ({"a": "é"}, '{"a":"é"}'),
        ([1, 2], "[1,2]"),
    ],
)
def test_of_json_it_is_the_message_unescaped(body: object, gist: str) -> None:
    assert evidence(json.dumps(body).encode()) == gist


def test_a_key_cut_in_two_by_the_limit_is_not_half_shown() -> None:
    for pad in range(150, 200):
        assert "AbC" not in evidence("x" * pad + " " + KEY, [KEY])


@given(st.binary(max_size=600), st.text(max_size=20))
def test_always_one_printable_line_of_at_most_200_bytes(body: bytes, label: str) -> None:
    line = evidence(body, [KEY], "HTTP 200")
    assert line.isprintable()
    assert len(line.encode()) <= 200
    assert evidence(label).isprintable()
