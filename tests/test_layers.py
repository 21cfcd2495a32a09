"""The arrows of the design, executed: who may import whom."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = {"locustfile", "pd_users", "planner", "workloads", "emulator", "benchmarks"}
ARROWS = {
    "workloads": {"workloads"},
    "planner": {"planner"},
    "emulator": {"emulator"},
    "pd_users": {"pd_users", "workloads", "planner"},
    "locustfile": {"pd_users"},
}
# The command that sizes for a workload puts the two together; no other file of the planner may.
COMPOSES = {"size_command.py": {"workloads"}}
PURE = (
    *(
        "stream",
        "sse",
        "answer",
        "delta",
        "template",
        "inflate",
        "evidence",
        "failures",
        "coalesced",
    ),
    *("endpoint", "redirect", "head", "timeouts", "whole"),
    *("records", "wire", "deal", "itl", "accounting"),
)
EVENT_LOOP = {"locust", "gevent"}


@cache
def imports(path: Path) -> frozenset[str]:
    """Top-level names that a file imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return frozenset(names)


def files(package: str) -> list[Path]:
    single = ROOT / f"{package}.py"
    return [single] if single.exists() else sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", ARROWS)
def test_no_arrow_points_back(package: str) -> None:
    assert files(package)
    for path in files(package):
        allowed = ARROWS[package] | (
            COMPOSES.get(path.name, set()) if package == "planner" else set()
        )
        assert imports(path) & OURS <= allowed, path.name


@pytest.mark.parametrize("package", ["workloads", "planner", "emulator"])
def test_only_pd_users_knows_locust(package: str) -> None:
    for path in files(package):
        assert not imports(path) & EVENT_LOOP, path.name


@pytest.mark.parametrize("module", PURE)
def test_the_pure_modules_of_pd_users_know_no_event_loop(module: str) -> None:
    assert not imports(ROOT / "pd_users" / f"{module}.py") & EVENT_LOOP


def test_nothing_imports_the_slow_parts_of_scipy() -> None:
    for package in ARROWS:
        for path in files(package):
            text = path.read_text(encoding="utf-8")
            assert "scipy.stats" not in text, path.name
            assert "scipy.signal" not in text, path.name


def test_this_python_is_one_that_we_promise() -> None:
    assert sys.version_info >= (3, 11)
