"""Where a command also writes its result."""

from pathlib import Path

from planner.errors import PlanError


def write(path: str | None, text: str) -> None:
    """``-o FILE``; nothing without one. Raises PlanError."""
    if path is not None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise PlanError(f"-o: {path} cannot be written: {error.strerror}.") from None
