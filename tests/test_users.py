"""PDUser as people subclass it: several classes, their own workloads, weights and hooks."""

from pathlib import Path

import pytest

from tests.processes import Locust, emulator
from tests.test_run import assert_adds_up

pytestmark = pytest.mark.process

LOCUSTFILE = """
import os
from pathlib import Path

from pd_users.hooks import install
from pd_users.users import PDUser


class Chat(PDUser):
    workload = "{folder}/chat.yaml"
    weight = 3

    def on_record(self, record):
        with Path("{folder}/seen.txt").open("a") as seen:
            seen.write(f"{{record.class_name}} {{record.outcome}}\\n")


class Code(PDUser):
    workload = "{folder}/code.yaml"

    def build_request(self, arrival):
        request = super().build_request(arrival)
        return type(request)(request.path, request.body, {{"x-team": "code"}})


install()
"""
WORKLOAD = """
class: {name}
rate_rps: 10
input: {{dist: fixed, value: {tokens}}}
output: {{dist: fixed, value: 5}}
"""


def test_classes_share_the_rate_by_weight_and_keep_their_own_traffic(tmp_path: Path) -> None:
    for name, tokens in (("chat", 50), ("code", 400)):
        (tmp_path / f"{name}.yaml").write_text(WORKLOAD.format(name=name, tokens=tokens))
    file = tmp_path / "mine.py"
    file.write_text(LOCUSTFILE.format(folder=tmp_path))
    with emulator("--prefill", "2", "--prefill-ms", "2,0.01,0") as cluster:
        finished = Locust(
            *("--headless", "-H", cluster.url, "--rate", "40", "-t", "6"),
            run_dir=tmp_path / "runs",
            file=str(file),
        ).finish(60)
    assert_adds_up(finished)
    of = {name: [r for r in finished.records if r["class"] == name] for name in ("chat", "code")}
    assert {r["planned_input_tokens"] for r in of["chat"]} == {50}
    assert {r["planned_input_tokens"] for r in of["code"]} == {400}
    assert {r["input_tokens"] for r in of["chat"]} == {50}  # to the token
    expected = {"chat": 180, "code": 60}  # 40 req/s for 6 s, 3 to 1
    for name, n in expected.items():
        assert abs(len(of[name]) - n) < 5 * n**0.5
    seen = (tmp_path / "seen.txt").read_text().splitlines()
    assert len(seen) == len(of["chat"])
    assert "POST     chat" in finished.output
    assert "TTFT     code" in finished.output
