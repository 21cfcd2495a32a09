"""Where the real traces are, for tests that compare with published numbers; they are not ours to ship."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("PD_TRACES") or ROOT.parent / "shared" / "traces")


def real(name: str) -> str:
    """The path of a real trace; skips the test where it is not there."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"needs {name} in the folder that PD_TRACES names")
    return str(path)
