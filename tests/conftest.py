"""Settings that all tests share."""

import gc
import os

# Tests hold the event loop up and serve from threads: they want the real time and real threads, so
# Locust must not patch this process. Processes that tests start do not inherit the variable.
os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"
import locust  # noqa: F401

del os.environ["LOCUST_SKIP_MONKEY_PATCH"]

import pytest
from hypothesis import settings

# The same examples on every machine: a run in CI is not the place for a new counterexample.
# `HYPOTHESIS_PROFILE=explore` (make test-full) looks further.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("explore", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden`` rewrites the golden files; the diff is the review."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the garbage collector need not look at them again and again."""
    gc.freeze()
