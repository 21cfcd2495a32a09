"""A run's folder: run.json, records.csv.gz and report.html, written and read."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.decision import Decision
from planner.errors import PlanError
from planner.measurement import SCHEMA_VERSION, Measurement
from planner.page import html
from planner.records import Records, moved_into_place, read_records, write_records


def run_json(measurement: Measurement, decision: Decision) -> dict[str, Any]:
    """run.json as a dict: the verdict first, then what was measured."""
    told = decision.model_dump(mode="json")
    measured = measurement.model_dump(mode="json")
    head = {name: told.pop(name) for name in ("verdict", "exit_code", "rule", "confidence")}
    return {"schema_version": measured.pop("schema_version"), **head, **measured, **told}


def write_run(folder: Path, measurement: Measurement, decision: Decision, records: Records) -> None:
    """All three files; records first, since they cannot be made again. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_records(folder / "records.csv.gz", records)
    _write(folder / "run.json", json.dumps(run_json(measurement, decision), indent=2) + "\n")
    _write(folder / "report.html", html(measurement, decision, records))


def _write(path: Path, text: str) -> None:
    with moved_into_place(path) as part:
        part.write_text(text, encoding="utf-8")


def load_run(path: str | Path) -> tuple[Measurement, Records]:
    """A run by its folder or its run.json. Raises PlanError."""
    file, content = _content(path)
    try:
        measurement = Measurement.model_validate(content)
    except ValidationError as error:
        raise PlanError(f"{file}: {_first(error)}") from None
    return measurement, read_records(file.with_name("records.csv.gz"))


def load_decision(path: str | Path) -> tuple[Measurement, Decision]:
    """What was measured and decided, without the records. Raises PlanError."""
    file, content = _content(path)
    try:
        return Measurement.model_validate(content), Decision.model_validate(content)
    except ValidationError as error:
        raise PlanError(f"{file}: {_first(error)}") from None


def _content(path: str | Path) -> tuple[Path, dict[str, Any]]:
    given = Path(path)
    file = given / "run.json" if given.is_dir() else given
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{file}: cannot be read: {error.strerror}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{file}: is not JSON: {error}.") from None
    found = content.get("schema_version") if isinstance(content, dict) else None
    if found != SCHEMA_VERSION:
        raise PlanError(f"{file}: schema_version: found {found!r}, allowed is {SCHEMA_VERSION}.")
    return file, content


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}: {first['msg']}."
