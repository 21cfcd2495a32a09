"""The API key: from the environment or a file, tidied, and never shown.

A key is never an argument (``ps`` shows those), never in a repr, and never in a sentence of ours:
errors name where it came from, and what is wrong with it, without a character of it.
"""

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pd_users.endpoint import clean_key
from pd_users.evidence import mask
from workloads.errors import ConfigError

_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060\u00a0"
_ARGUMENT = re.compile(r"--?api[-_]?k(ey?)?(=|$)|--?(api[-_]?)?(key|token|secret)(=|$)", re.I)
_PLACEHOLDER = re.compile(
    r"""(?ix) (?: sk - )? (?: x{3,} | \.{3,} | \*{3,} | … ) | <.*> | \$ \{? \w+ \}?
    | (?: sk - )? (?: your | my ) [\w-]* key [\w-]* | (?: sk - )? (?: changeme | replace[\w-]*me | key | todo )
    """
)


KEY_AS_ARGUMENT = (
    "a key is never given as an argument, for every process list shows it: export it "
    "and name the variable with --api-key-env, or use --api-key-file"
)


@dataclass(frozen=True, slots=True)
class Key:
    """An API key, '' for none, and where it came from."""

    value: str = field(default="", repr=False)
    source: str = ""
    tidied: tuple[str, ...] = ()  # what lay around it and was left out


def find_key(
    env_name: str | None, file: str | None, default_env: str, environ: Mapping[str, str]
) -> Key:
    """The key by ``--api-key-file``, ``--api-key-env``, or the channel's own variable.

    Raises ConfigError when one was named and is not there, or what is there is no key.
    """
    if file and env_name:
        raise ConfigError("--api-key-env and --api-key-file: both are given, allowed is one.")
    if file:
        return _key(read_key_file(Path(file)), f"the file {file}")
    name = env_name or default_env
    if env_name and looks_like_a_key(env_name):
        raise ConfigError(
            "--api-key-env: found what looks like a key itself, allowed is the name of the "
            "variable that holds it; change that key, for the shell's history has it now."
        )
    raw = environ.get(name, "")
    if not raw.strip(_INVISIBLE + " \t\r\n"):
        if env_name:
            state = "empty" if name in environ else "not set"
            raise ConfigError(f"--api-key-env: the variable {name} is {state}: export {name}=...")
        return Key(source=f"the variable {name}")
    return _key(raw, f"the variable {name}")


def read_key_file(path: Path) -> str:
    """The text of a key file that nobody but its owner can read. Raises ConfigError."""
    try:
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise ConfigError(
                f"--api-key-file: {path} can be used by others (mode {mode:o}): chmod 600 {path}."
            )
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"--api-key-file: {path} cannot be read: {error.strerror}.") from None
    if not text.strip(_INVISIBLE + " \t\r\n"):
        raise ConfigError(f"--api-key-file: {path} is empty.")
    return text


def is_key_given(arguments: Iterable[str]) -> bool:
    """Whether a key itself seems to be among a command's arguments."""
    return any(_ARGUMENT.match(argument) for argument in arguments)


def looks_like_a_key(text: str) -> bool:
    """Whether a text that should be a name is a secret."""
    return mask(text) != text or not re.fullmatch(r"[A-Za-z_]\w{0,99}", text)


def _key(raw: str, source: str) -> Key:
    text, tidied = tidy(raw)
    KNOWN.update(form for form in (text, raw.strip()) if len(form) >= MIN_SECRET)
    if _PLACEHOLDER.fullmatch(text):
        raise ConfigError(f"The API key from {source} is a placeholder, not a key.")
    try:
        return Key(clean_key(text), source, tidied)
    except ConfigError as error:
        said = str(error).removeprefix("The API key ")
        raise ConfigError(f"The API key from {source} {said}") from None


def tidy(raw: str) -> tuple[str, tuple[str, ...]]:
    """A key without what copying and files leave around it, and what that was."""
    text, found = raw, []
    for _ in range(4):  # such as a quoted "Bearer ..." with a line end behind it
        for name, shorter in _steps(text):
            if shorter != text:
                found.append(name)
                text = shorter
    return text, tuple(dict.fromkeys(found))


def _steps(text: str) -> Iterable[tuple[str, str]]:
    """Each way to tidy, applied to what the one before left."""
    shorter = text.strip(_INVISIBLE)
    yield "an invisible character", shorter
    text, shorter = shorter, shorter.rstrip("\r\n")
    yield "a line end", shorter
    text, shorter = shorter, shorter.strip()
    yield "spaces", shorter
    text = shorter
    if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'`":
        text = text[1:-1]
    yield "quotes", text
    yield "the word Bearer", re.sub(r"(?i)^(authorization:\s*)?bearer\s+", "", text)


MIN_SECRET = 6  # shorter ones would blot out words
KNOWN: set[str] = set()  # every key this process has found, for the logs


class MaskingFilter(logging.Filter):
    """Takes secrets out of what is logged, the text of exceptions included."""

    def __init__(self, secrets: Iterable[str] = KNOWN) -> None:
        super().__init__()
        self._secrets = secrets  # read at each record: a key may be found later

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the message in place; never drops a record."""
        record.msg, record.args = mask(record.getMessage(), tuple(self._secrets)), None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = mask(record.exc_text, tuple(self._secrets))
        return True


def guard_logs(secrets: Iterable[str] = ()) -> None:
    """From here on no log handler lets a known key or these through; what nobody caught is logged."""
    KNOWN.update(filter(None, secrets))
    loggers = [logging.getLogger(), *map(logging.getLogger, logging.root.manager.loggerDict)]
    handlers = {handler for logger in loggers for handler in logger.handlers}
    for handler in filter(None, (*handlers, logging.lastResort)):
        if not any(isinstance(one, MaskingFilter) for one in handler.filters):
            handler.addFilter(MaskingFilter())

    def uncaught(*what: Any) -> None:
        logging.getLogger("pd_users").critical("Uncaught:", exc_info=what)

    sys.excepthook = uncaught
