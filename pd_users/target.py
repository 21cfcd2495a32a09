"""The target of a run: one model behind one channel, and the bodies of the requests to it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson

from pd_users.channel import (
    DEFAULT,
    LONG_NAME,
    PINS,
    RUNNING_USAGE,
    TEXT,
    USAGE,
    Channel,
    find_channel,
)
from pd_users.endpoint import Endpoint, parse_base_url
from pd_users.secrets import Key, find_key
from workloads.errors import ConfigError

# Whatever the channel takes; what the server then refuses by name is left out (preflight.py).
DEFAULT_EXTRAS = ("*",)


class Access(Protocol):
    """Of a run's options those that say where the target is, and with which key (no value of it)."""

    @property
    def target(self) -> str | None:
        """``--target``."""

    @property
    def api_key_env(self) -> str | None:
        """``--api-key-env``."""

    @property
    def api_key_file(self) -> str | None:
        """``--api-key-file``."""


Prompt = str | list[int]  # text, or token ids


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What goes on the wire for one arrival."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """One model behind one endpoint. Its repr shows no key."""

    endpoint: Endpoint
    model: str
    fields: tuple[str, ...] = (*PINS, USAGE)  # the extra fields that are sent
    channel: Channel = DEFAULT
    token_ids: bool = False  # prompts are token ids

    @property
    def path(self) -> str:
        """Where requests go."""
        return self.channel.path

    def chat_request(self, prompt: Prompt, output_tokens: int, stream: bool = True) -> ChatRequest:
        """A request whose answer has ``output_tokens`` tokens, where the server lets us say so."""
        limit = LONG_NAME if LONG_NAME in self.fields else "max_tokens"
        body: dict[str, Any] = {
            **self.channel.body,
            "model": self.model,
            **self._prompt(prompt),
            limit: output_tokens,
            "stream": stream,
        }
        if stream and USAGE in self.fields:
            body[USAGE] = {"include_usage": True}
            if RUNNING_USAGE in self.fields:
                body[USAGE][RUNNING_USAGE] = True
        if "ignore_eos" in self.fields:
            body["ignore_eos"] = True
        if "min_tokens" in self.fields:
            body["min_tokens"] = output_tokens
        return ChatRequest(self.path, orjson.dumps(body))

    def _prompt(self, prompt: Prompt) -> dict[str, Any]:
        if self.path == TEXT or self.token_ids:
            return {"prompt": prompt}
        return {"messages": [{"role": "user", "content": prompt}]}

    def without(self, name: str) -> "Target":
        """The same without a field that the server refuses; max_tokens has another name then."""
        if name == "max_tokens":
            return replace(self, fields=(*self.fields, LONG_NAME))
        dropped = (USAGE, RUNNING_USAGE) if name == USAGE else (name,)
        return replace(self, fields=tuple(f for f in self.fields if f not in dropped))

    def with_running_usage(self) -> "Target":
        """The same with token counts in each chunk."""
        return replace(self, fields=(*self.fields, RUNNING_USAGE))

    def with_token_ids(self) -> "Target":
        """The same where prompts are token ids: at the path that takes them."""
        return replace(self, channel=replace(self.channel, path=TEXT), token_ids=True)

    def extras(self) -> tuple[str, ...]:
        """The extra fields that are sent, for ``build_target`` on a worker."""
        return self.fields

    def refused(self, said: str) -> str | None:
        """The field of ours that a server's complaint names, or None."""
        known = [*self.fields, *(() if LONG_NAME in self.fields else ("max_tokens",))]
        return next((name for name in sorted(known, key=len, reverse=True) if name in said), None)


def build_target(options: Access, host: str, model: str, extras: tuple[str, ...]) -> Target:
    """The target of a run; the key comes from this process's own environment or file.

    ``extras`` are the extra fields to send. Raises ConfigError.
    """
    channel = find_channel(options.target)
    endpoint = endpoint_of(channel, host, key_of(options, channel))
    if extras == DEFAULT_EXTRAS:
        # Counts in each chunk make every chunk longer: only where a server merges tokens.
        extras = tuple(name for name in channel.takes if name != RUNNING_USAGE)
    target = Target(endpoint, model, extras, channel)
    return target.with_token_ids() if getattr(options, "prompts", "text") == "ids" else target


def key_of(options: Access, channel: Channel) -> Key:
    """The API key of a run: file, named variable, or the channel's own. Raises ConfigError."""
    key = find_key(options.api_key_env, options.api_key_file, channel.api_key_env, os.environ)
    if channel.needs_key and not key.value:
        raise ConfigError(
            f"--target {channel.name} needs a key: export {channel.api_key_env}=..., or name "
            "another variable with --api-key-env."
        )
    return key


def endpoint_of(channel: Channel, host: str, key: Key) -> Endpoint:
    """Where the channel is, with the key in the header that it wants. Raises ConfigError."""
    url = host or channel.base_url
    if not url:
        raise ConfigError(f"--target {channel.name} has no URL of its own: give it with -H.")
    headers = dict(channel.headers)
    bare = key.value
    if bare and channel.auth_header.lower() != "authorization":
        headers[channel.auth_header] = bare
        bare = ""  # there is no Authorization then
    elif bare and channel.auth_scheme != "Bearer":
        headers["Authorization"] = f"{channel.auth_scheme} {bare}".strip()
    return parse_base_url(url, key=bare, headers=headers, environ=os.environ)
