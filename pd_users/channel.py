"""Channels: what ``--target`` names. Where the API is, how it takes the key, which fields, whose errors.

A channel is a name of ``CHANNELS`` or a YAML file with the same keys:

name: my-gateway
base_url: https://gateway.example/api      # -H wins over it
path: /v1/chat/completions                 # or /v1/completions
api_key_env: MY_GATEWAY_KEY                # the name of a variable, never a key
auth_header: Authorization
auth_scheme: Bearer
takes: [ignore_eos, min_tokens, stream_options]
errors: vllm                               # whose signs and cures: taotoken, openai, sglang, vllm, dynamo
headers: {X-Team: load-test}
body: {temperature: 0}                     # further fields of every request
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pd_users.evidence import mask
from workloads.errors import ConfigError

# Fields beside OpenAI's oldest ones; the target's preflight leaves out what a server refuses by name.
PINS = ("ignore_eos", "min_tokens")  # so that an answer has the length that was planned
USAGE = "stream_options"  # include_usage: token counts in the last chunk
RUNNING_USAGE = (
    "continuous_usage_stats"  # token counts in each chunk, for servers that merge tokens
)
LONG_NAME = "max_completion_tokens"  # in place of max_tokens
EXTRAS = (*PINS, USAGE, RUNNING_USAGE, LONG_NAME)

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESERVED = ("model", "messages", "prompt", "stream", "max_tokens", *EXTRAS)
ENGINES = ("taotoken", "openai", "sglang", "vllm", "dynamo")


@dataclass(frozen=True, slots=True)
class Channel:
    """How to talk to one kind of server."""

    name: str
    base_url: str | None = None
    path: str = CHAT
    api_key_env: str = "OPENAI_API_KEY"
    auth_header: str = "Authorization"
    auth_scheme: str = (
        "Bearer"  # before the key in Authorization; another header takes the bare key
    )
    takes: tuple[str, ...] = (*PINS, USAGE, RUNNING_USAGE)
    engine: str = ""  # one of ENGINES, or '' when not known
    needs_key: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)


# Without --target: OpenAI's API, with the extra fields that SGLang, vLLM and Dynamo share.
DEFAULT = Channel("default")
CHANNELS = {
    "taotoken": Channel(
        "taotoken",
        base_url="https://taotoken.net/api",
        api_key_env="TAOTOKEN_API_KEY",
        engine="taotoken",
        needs_key=True,
    ),
    "openai": Channel(
        "openai",
        base_url="https://api.openai.com",
        takes=(USAGE, LONG_NAME),
        engine="openai",
        needs_key=True,
    ),
    "sglang": Channel("sglang", engine="sglang"),
    "vllm": Channel("vllm", engine="vllm"),
    "dynamo": Channel("dynamo", engine="dynamo"),
}


class ChannelFile(BaseModel):
    """The YAML file of a channel of one's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = Field(default=None, min_length=1)
    base_url: str | None = None
    path: Literal["/v1/chat/completions", "/v1/completions"] = "/v1/chat/completions"
    api_key_env: str = Field(default=DEFAULT.api_key_env, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    auth_header: str = Field(default="Authorization", min_length=1)
    auth_scheme: str = "Bearer"
    takes: tuple[str, ...] = DEFAULT.takes
    errors: Literal["taotoken", "openai", "sglang", "vllm", "dynamo"] | None = None
    needs_key: bool = False
    headers: dict[str, str] = Field(default_factory=dict)
    body: dict[str, Any] = Field(default_factory=dict)


def find_channel(target: str | None) -> Channel:
    """The channel that ``--target`` names, or the default. Raises ConfigError."""
    if not target:
        return DEFAULT
    if target in CHANNELS:
        return CHANNELS[target]
    path = Path(target)
    if path.suffix in (".yaml", ".yml"):
        return _build(path, _parse(path))
    near = get_close_matches(target, CHANNELS, 1)
    hint = f"; did you mean {near[0]!r}" if near else ""
    raise ConfigError(
        f"--target: found {mask(target)!r}, allowed are {', '.join(CHANNELS)} or a YAML file{hint}."
    )


def _parse(path: Path) -> ChannelFile:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--target: {path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where else ""
        raise ConfigError(f"{path}: is not YAML{line}.") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected keys such as base_url and takes.")
    try:
        return ChannelFile.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_sentence(error)}") from None


def _sentence(error: ValidationError) -> str:
    """The first complaint; a value is never shown, for it may be a key in the wrong place."""
    first = error.errors(include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        if any(word in key.lower() for word in ("key", "token", "secret", "password")):
            return f"{key}: a key does not belong into a file of settings: name its variable in api_key_env."
        near = get_close_matches(key, ChannelFile.model_fields, 1)
        hint = f"; did you mean {near[0]!r}" if near else ""
        return f"unknown key {key!r}, allowed are {', '.join(ChannelFile.model_fields)}{hint}."
    if key == "api_key_env":
        return "api_key_env: allowed is the name of a variable, not the key itself."
    return f"{key}: {first['msg'].removeprefix('Value error, ')}."


def _build(path: Path, file: ChannelFile) -> Channel:
    for name in file.takes:
        if name not in EXTRAS:
            near = get_close_matches(name, EXTRAS, 1)
            hint = f"; did you mean {near[0]!r}" if near else ""
            raise ConfigError(
                f"{path}: takes: found {name!r}, allowed are {', '.join(EXTRAS)}{hint}."
            )
    for name in file.body:
        if name in RESERVED:
            raise ConfigError(f"{path}: body.{name}: is written by the load test: leave it out.")
    for name, value in file.headers.items():
        if mask(f"{name}: {value}") != f"{name}: {value}":
            raise ConfigError(
                f"{path}: headers.{name}: looks like a key: name its variable in api_key_env and "
                f"the header in auth_header."
            )
    return Channel(
        name=file.name or path.stem,
        base_url=file.base_url,
        path=file.path,
        api_key_env=file.api_key_env,
        auth_header=file.auth_header,
        auth_scheme=file.auth_scheme,
        takes=file.takes,
        engine=file.errors or "",
        needs_key=file.needs_key,
        headers=file.headers,
        body=file.body,
    )
