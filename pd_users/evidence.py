"""What a server said, fit for a report: one line, at most 200 bytes, readable, without secrets."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import orjson

EVIDENCE_BYTES = 200
BODY_BYTES = (
    4096  # so much of a body is looked at; more than is shown, so that no key is cut in two
)

_MASK = "***"
_SECRETS = re.compile(
    r"""(?ix)
      \b(?: sk | pk | ak | hf | gsk | nvapi | xai | ghp ) [-_] [\w.\-*]{3,}   # keys by their prefix
    | \b(?: bearer | basic ) \s+ [^\s"',;<>]{6,}                          # authorization schemes
    | \beyJ [\w\-]{8,} (?: \. [\w\-]* ){0,2}                              # JSON web tokens
    | (?<= ://) [^/\s@"']+ (?= @)                                         # user:password@ in a URL
    """
)
_NAMED = re.compile(
    r"""(?ix)
    (["']? \b
      (?: authorization | x-api-key | api[-_ ]?key | access[-_]?token | password | secret )
      \b ["']? \s* [:=] \s* ["']?)
    [^\s"',;&<>]+"""
)


def mask(text: str, secrets: Sequence[str] = ()) -> str:
    """``text`` without ``secrets`` and without anything that looks like one."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        for form in (secret, quote(secret, safe="")):
            text = text.replace(form, _MASK)
    text = _NAMED.sub(rf"\1{_MASK}", text)
    return _SECRETS.sub(_MASK, text)


def evidence(body: bytes | str, secrets: Sequence[str] = (), label: str = "") -> str:
    """``label`` and the gist of ``body`` on one line of at most 200 bytes.

    Of JSON it is the error's message, unescaped, so that a Chinese message stays readable.
    """
    text = body if isinstance(body, str) else _gist(body[:BODY_BYTES])
    line = mask("".join(c if c.isprintable() else " " for c in text), secrets).strip()
    line = f"{label}: {line}" if label and line else label or line
    return line.encode("utf-8", "replace")[:EVIDENCE_BYTES].decode("utf-8", "ignore")


def _gist(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    try:
        return error_message(orjson.loads(body))
    except orjson.JSONDecodeError:
        return text


def error_message(value: Any) -> str:
    """The sentence inside an error object, wherever its server puts it; else the whole as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for key in ("error", "message", "detail", "error_message", "msg"):
            if found := value.get(key):
                return error_message(found)
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode("utf-8", "replace")
