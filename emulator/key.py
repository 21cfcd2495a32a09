"""The bearer key that the server asks for: from the environment or a file, never an argument."""

import os
import stat
from pathlib import Path


def read_key(variable: str | None, file: str | None) -> str:
    """The key; '' when neither is given. Raises ValueError: one sentence, without the key."""
    if variable and file:
        raise ValueError("--api-key-env and --api-key-file: only one of them may be given.")
    if variable:
        key = os.environ.get(variable, "").strip()
        if not key:
            raise ValueError(f"--api-key-env: the variable {variable} is not set.")
        return key
    return _of_file(Path(file)) if file else ""


def _of_file(path: Path) -> str:
    try:
        mode, key = path.stat().st_mode, path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ValueError(f"--api-key-file: {path}: {why.lower()}.") from None
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        raise ValueError(f"--api-key-file: {path} can be read by others; chmod 600 it.")
    if not key:
        raise ValueError(f"--api-key-file: {path} is empty.")
    return key
