"""The channel to the model: base URL, key, and which extra fields its request body takes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from pd_users.endpoint import Endpoint, parse_base_url
from pd_users.options import RunOptions
from workloads.errors import ConfigError

# Pin the output length; asked for first, and left out when the server refuses one by name.
PINS: Mapping[str, Any] = {"ignore_eos": True, "min_tokens": None}
DEFAULT_EXTRAS = ("ignore_eos", "min_tokens", "stream_options")
DEFAULT_KEY_ENV = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What goes on the wire for one arrival."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """One model behind one endpoint."""

    endpoint: Endpoint
    model: str
    pins: tuple[str, ...] = tuple(PINS)
    usage: bool = True
    path: str = "/v1/chat/completions"

    def chat_request(self, prompt: str, output_tokens: int, stream: bool = True) -> ChatRequest:
        """A chat request whose answer has ``output_tokens`` tokens, where the server lets us say so."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": output_tokens,
            "stream": stream,
        }
        if stream and self.usage:
            body["stream_options"] = {"include_usage": True}
        if "ignore_eos" in self.pins:
            body["ignore_eos"] = True
        if "min_tokens" in self.pins:
            body["min_tokens"] = output_tokens
        return ChatRequest(self.path, orjson.dumps(body))

    def without(self, name: str) -> "Target":
        """The same without an extra field that the server refuses."""
        if name == "stream_options":
            return replace(self, usage=False)
        return replace(self, pins=tuple(p for p in self.pins if p != name))

    def extras(self) -> tuple[str, ...]:
        """The extra fields that are sent."""
        return (*self.pins, *(("stream_options",) if self.usage else ()))


def build_target(options: RunOptions, host: str, model: str, extras: tuple[str, ...]) -> Target:
    """The target of a run; the key comes from this process's own environment or file."""
    endpoint = parse_base_url(host, key=read_key(options), environ=os.environ)
    pins = tuple(p for p in PINS if p in extras)
    return Target(endpoint, model, pins, usage="stream_options" in extras)


def read_key(options: RunOptions) -> str:
    """The API key, or '' when none is named. Raises ConfigError; never shows the key."""
    if options.api_key_file:
        path = Path(options.api_key_file)
        try:
            if path.stat().st_mode & 0o077:
                raise ConfigError(
                    f"--api-key-file: {path} can be read by others: chmod 600 {path}."
                )
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--api-key-file: {path} cannot be read: {error.strerror}.") from None
    if options.api_key_env:
        key = os.environ.get(options.api_key_env, "")
        if not key.strip():
            raise ConfigError(
                f"--api-key-env: the variable {options.api_key_env} is not set or empty."
            )
        return key
    return os.environ.get(DEFAULT_KEY_ENV, "")
