"""YAML as people mean it, with the line of every key: the border of workload files.

YAML 1.1 reads ``on`` as true, 1:30 as 90 and 4e4 as text, and of a key that is there twice the
last one wins in silence. Here numbers are numbers, only true and false are booleans, and a key that
is there twice is refused.
"""

import re
from collections.abc import Hashable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from workloads.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)
TAGS = [
    "fixed",
    "uniform",
    "normal",
    "lognormal",
    "gamma",
    "weibull",
    "quantiles",
    "empirical",
    "mixture",
]


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (the shape that yaml wants)
        first: [
            (tag, pattern)
            for tag, pattern in rules
            if not tag.endswith((":bool", ":float", ":int", ":timestamp"))
        ]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping without doubled keys."""
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            key, line = self.construct_object(key_node, deep=True), key_node.start_mark.line + 1
            if key in seen:
                raise ConfigError(f"key {key!r} is there twice, in lines {seen[key]} and {line}.")
            seen[key] = line
        return super().construct_mapping(node, deep)


for _tag, _pattern, _begins in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^[-+]?[0-9][0-9_]*$", "-+0123456789"),
    (
        "float",
        r"^[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?$",
        "-+.0123456789",
    ),
    ("float", r"^[-+]?\.(?:inf|Inf|INF)$", "-+."),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_begins))


def read(path: Path, model: type[Model]) -> Model:
    """The file as ``model``. Raises ConfigError: file, line, key, what was found, what is allowed."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        loader = _Loader(text)
        node = loader.get_single_node()
        content = loader.construct_document(node) if node is not None else None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())[:200]}.") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path}: found {type(content).__name__}, expected keys such as input and output."
        )
    try:
        return model.model_validate(content, context={"folder": path.parent})
    except ValidationError as error:
        first = _first(error)
        line = _line(node, [p for p in first["loc"] if p not in TAGS])
        raise ConfigError(f"{path}, line {line}: {_sentence(first, model)}") from None


def _first(error: ValidationError) -> Any:
    """The complaint to show: a misspelt key explains a missing one."""
    return min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")


def _line(node: yaml.Node | None, path: Sequence[Any]) -> int:
    """Where the key is, or the last one on the way to it that is there."""
    line = 1
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
            if found is None:
                continue  # the part of a mixture that is not a key of its own
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part] if part < len(node.value) else None
            line = node.start_mark.line + 1 if node is not None else line
    return line


def _sentence(first: Any, model: type[BaseModel]) -> str:
    path = [p for p in first["loc"] if p not in TAGS and p != "of"]
    key = ".".join(str(p) for p in path) or "the file"
    if first["type"] == "extra_forbidden":
        allowed = _keys_at(model, first["loc"][:-1])
        return f"unknown key {key!r}, allowed are {', '.join(allowed)}{_near(path[-1], allowed)}."
    if first["type"] == "union_tag_invalid":
        tag = first["ctx"]["tag"]
        return f"{key}.dist: found {tag!r}, allowed are {', '.join(TAGS)}{_near(tag, TAGS)}."
    if first["type"] == "union_tag_not_found":
        return f"{key}: dist is missing, allowed are {', '.join(TAGS)}."
    said = first["msg"].removeprefix("Value error, ")
    whole = isinstance(first["input"], dict | BaseModel) or "found" in said
    found = "" if whole else f", found {first['input']!r}{_percent(first)}"
    return f"{key}: {said}{found}."


def _percent(first: Any) -> str:
    """For a share that was given as percent."""
    value = first["input"]
    percent = first["type"] == "less_than_equal" and first["ctx"].get("le") == 1
    return f" (for {value:g} % write {value / 100:g})" if percent and value <= 100 else ""


def _near(word: Any, allowed: Sequence[str]) -> str:
    near = get_close_matches(str(word), allowed, 1)
    return f"; did you mean {near[0]!r}" if near else ""


def _keys_at(model: type[BaseModel], loc: Sequence[Any]) -> list[str]:
    """The keys that are allowed where ``loc`` leads."""
    here: Any = model.model_json_schema()
    whole = here
    for part in loc:
        here = _step(whole, here, part)
    return [k for k in _resolved(whole, here).get("properties", {}) if k != "values"]


def _step(whole: Any, here: Any, part: Any) -> Any:
    here = _resolved(whole, here)
    if isinstance(part, int):
        return here.get("items", here)
    if part in TAGS and "discriminator" in here:
        return {"$ref": here["discriminator"]["mapping"][part]}
    return here.get("properties", {}).get(part, here)


def _resolved(whole: Any, here: Any) -> Any:
    """Behind references and 'this or null'."""
    while True:
        if "$ref" in here:
            here = whole["$defs"][here["$ref"].rpartition("/")[2]]
        elif "anyOf" in here:
            here = next(x for x in here["anyOf"] if x.get("type") != "null")
        else:
            return here
