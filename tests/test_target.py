"""Channels and the bodies of requests: what each kind of server is sent."""

from pathlib import Path

import orjson
import pytest

from pd_users.channel import CHANNELS, EXTRAS, find_channel
from pd_users.secrets import Key
from pd_users.target import DEFAULT_EXTRAS, Target, build_target, endpoint_of
from tests.access import Given
from workloads.errors import ConfigError

HOST = "http://127.0.0.1:8000"
KEY = "sk-very-Secret-0123456789"


def body_of(target: Target, tokens: int = 7, *, stream: bool = True) -> dict[str, object]:
    body: dict[str, object] = orjson.loads(target.chat_request("some words", tokens, stream).body)
    return body


def build(name: str | None = None, extras: tuple[str, ...] = DEFAULT_EXTRAS) -> Target:
    """A target of a channel that needs no key."""
    return build_target(Given(target=name), HOST, "m", extras)


@pytest.mark.parametrize("name", [None, "sglang", "vllm", "dynamo"])
def test_engines_are_told_the_length_of_the_answer(name: str | None) -> None:
    assert body_of(build(name)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "some words"}],
        "max_tokens": 7,
        "min_tokens": 7,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_request_that_is_not_streamed_asks_for_no_stream_options() -> None:
    body = body_of(build(), 1, stream=False)
    assert body["stream"] is False
    assert "stream_options" not in body


def test_openai_gets_only_its_own_fields() -> None:
    target = Target(endpoint_of(CHANNELS["openai"], HOST, Key(KEY)), "m", CHANNELS["openai"].takes)
    body = body_of(target)
    assert set(body) == {"model", "messages", "max_completion_tokens", "stream", "stream_options"}


@pytest.mark.parametrize("name", ["ignore_eos", "min_tokens", "stream_options"])
def test_a_refused_field_is_left_out_and_stays_out_on_the_workers(name: str) -> None:
    target = build()
    assert target.refused(f"Unsupported parameter(s): `{name}`") == name
    less = target.without(name)
    assert name not in body_of(less)
    assert build(extras=less.extras()) == less


def test_max_tokens_is_renamed_where_it_is_refused() -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens'."
    target = build()
    assert target.refused(said) == "max_tokens"
    renamed = target.without("max_tokens")
    assert body_of(renamed)["max_completion_tokens"] == 7
    assert "max_tokens" not in body_of(renamed)
    assert renamed.refused("max_tokens is too large") is None
    assert build(extras=renamed.extras()) == renamed


def test_counts_in_each_chunk_travel_with_the_extras() -> None:
    target = build().with_running_usage()
    wanted = {"include_usage": True, "continuous_usage_stats": True}
    assert body_of(target)["stream_options"] == wanted
    assert build(extras=target.extras()) == target
    assert "stream_options" not in body_of(target.without("stream_options"))


def test_taotoken_is_where_its_manual_says() -> None:
    channel = CHANNELS["taotoken"]
    endpoint = endpoint_of(channel, "", Key(KEY))
    url = endpoint.origin + endpoint.target(channel.path)
    assert url == "https://taotoken.net/api/v1/chat/completions"
    assert channel.api_key_env == "TAOTOKEN_API_KEY"
    assert endpoint.key == KEY


def test_a_channel_that_needs_a_key_says_which_variable_is_missing() -> None:
    with pytest.raises(ConfigError, match="export TAOTOKEN_API_KEY"):
        build("taotoken")


def test_a_host_wins_over_the_channels_own_url_and_is_asked_for_where_there_is_none() -> None:
    assert endpoint_of(CHANNELS["taotoken"], HOST, Key(KEY)).origin == HOST
    with pytest.raises(ConfigError, match="give it with -H"):
        endpoint_of(CHANNELS["sglang"], "", Key())


# -- channel files ------------------------------------------------------------------------------------


def channel_file(folder: Path, text: str) -> str:
    path = folder / "gate.yaml"
    path.write_text(text)
    return str(path)


def test_a_channel_file_says_all_of_it(tmp_path: Path) -> None:
    text = """
base_url: https://gate.example/llm
path: /v1/completions
auth_header: X-Gate-Key
api_key_env: GATE_KEY
takes: [min_tokens]
errors: vllm
headers: {X-Team: load}
body: {temperature: 0}
"""
    channel = find_channel(channel_file(tmp_path, text))
    endpoint = endpoint_of(channel, "", Key(KEY))
    assert endpoint.headers == {"X-Team": "load", "X-Gate-Key": KEY}
    assert endpoint.key == ""
    assert KEY in endpoint.secrets
    body = body_of(Target(endpoint, "m", channel.takes, channel))
    assert body == {
        "temperature": 0,
        "model": "m",
        "prompt": "some words",
        "max_tokens": 7,
        "min_tokens": 7,
        "stream": True,
    }


def test_another_scheme_of_authorization(tmp_path: Path) -> None:
    channel = find_channel(channel_file(tmp_path, "auth_scheme: Token\nbase_url: http://h\n"))
    endpoint = endpoint_of(channel, "", Key(KEY))
    assert endpoint.headers == {"Authorization": f"Token {KEY}"}
    assert KEY in endpoint.secrets


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("base_urI: http://h", "unknown key 'base_urI'.*did you mean 'base_url'"),
        (f"api_key: {KEY}", "a key does not belong into a file"),
        (f"api_key_env: {KEY}", "the name of a variable, not the key itself"),
        ("takes: [min_token]", "found 'min_token'.*did you mean 'min_tokens'"),
        ("path: /v2/chat", "path: Input should be"),
        (f"headers: {{Authorization: Bearer {KEY}}}", "headers.Authorization: looks like a key"),
        ("body: {stream: false}", "body.stream: is written by the load test"),
        ("errors: sglan", "errors: Input should be"),
        ("- a\n- b", "expected keys"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_wrong_channel_file_is_one_sentence_that_shows_no_key(
    tmp_path: Path, text: str, wanted: str
) -> None:
    with pytest.raises(ConfigError, match=wanted) as caught:
        find_channel(channel_file(tmp_path, text))
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("sglan", "did you mean 'sglang'"), ("none.yaml", "cannot be read"), (KEY, "allowed are")],
)
def test_an_unknown_channel_is_told_with_the_nearest_name(name: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted) as caught:
        find_channel(name)
    assert KEY not in str(caught.value)


def test_every_channel_takes_only_fields_that_we_can_write() -> None:
    for channel in CHANNELS.values():
        assert set(channel.takes) <= set(EXTRAS)
