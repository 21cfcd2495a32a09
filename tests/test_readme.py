"""The README is true: its console blocks run, its option table is the one of --help."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pd_users.options import FLAGS, LISTS, OPTIONS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console(?: exit=(\d+))?\n(.*?)```", README, re.DOTALL)


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "block"), BLOCKS, ids=[b.splitlines()[0][2:50] for _, b in BLOCKS]
)
def test_a_console_block_runs_and_prints_what_it_shows(
    code: str, block: str, tmp_path: Path
) -> None:
    command, *shown = block.splitlines()
    assert command.startswith("$ ")
    tools = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    env["LOCUST_RUN_DIR"] = f"{tmp_path}/runs"
    done = subprocess.run(
        ["bash", "-c", command[2:]], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == int(code or 0), done.stdout + done.stderr
    printed = done.stdout.splitlines()
    for line in shown:
        wanted = line.replace("Files: runs/", f"Files: {tmp_path}/runs/")
        assert any(p.startswith(wanted) for p in printed), f"{wanted!r} is not in:\n{done.stdout}"


def options_table() -> str:
    rows = [f"| `--{name}` | {text} |" for name, text in (OPTIONS | LISTS | FLAGS).items()]
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


def test_the_options_are_those_of_the_code() -> None:
    between = README.split("<!-- options -->")[1].split("<!-- /options -->")[0]
    assert between.strip() == options_table()


def test_every_link_to_a_file_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
