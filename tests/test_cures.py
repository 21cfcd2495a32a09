"""Each trouble by its name, with the right cure."""

import re
from html import escape
from types import SimpleNamespace
from typing import Any

import pytest

from pd_users.cures import (
    CURES,
    cure,
    cures_for,
    diagnose,
    diagnose_evidence,
    evidence_of,
    pages_for,
    tpot_jitter,
)
from pd_users.failures import FAILURES, failure_of_status
from planner.page import _linked
from tests.processes import ROOT

DOC = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")

# HTTP status, what the answer says, the name, a word of its cure.
TABLE = [
    # the article's table
    (401, "Incorrect API key provided.", "key-wrong", "key"),
    (502, "local proxy failed: dial tcp: connection refused", "decode-unregistered", "every D"),
    (500, "dial tcp 10.0.0.7:30001: connect: connection refused", "decode-unregistered", "every D"),
    (401, "OAuth token has expired.", "key-expired", "new one"),
    (200, '{"id":"none","object":"chat.completion"}', "no-choices", "model id"),
    # keys
    (401, "You didn't provide an API key.", "key-missing", "--api-key-env"),
    (401, "Missing bearer authentication: no api key", "key-missing", "--api-key-env"),
    (401, "无效的令牌", "key-wrong", "key"),
    (401, "该令牌已过期", "key-expired", "new one"),
    (401, "未提供令牌", "key-missing", "--api-key-env"),
    (401, "Unauthorized", "key-wrong", "key"),
    (403, "You may not use this model", "key-rights", "right to this model"),
    (403, "用户额度不足", "key-quota", "top it up"),
    (429, "You exceeded your current quota, check your billing", "key-quota", "top it up"),
    (429, "Rate limit reached, retry in 1 s", "rate-limited", "quota"),
    (429, "请求过于频繁", "rate-limited", "quota"),
    # P and D
    (503, "No decode workers available. Please check", "decode-unregistered", "every D"),
    (500, "no available decode servers", "decode-unregistered", "every D"),
    (500, "No prefill workers available. Please check", "prefill-unregistered", "every P"),
    (502, "prefill_server_error: connect", "prefill-unregistered", "every P"),
    (
        503,
        "No available servers: Failed to select prefill worker",
        "prefill-unregistered",
        "every P",
    ),
    (503, "server_selection_failed: all circuits open", "no-pair", "/workers"),
    (500, "KVTransferError: bootstrap room 77", "kv-transfer", "bootstrap port"),
    (503, "The model is still loading.", "loading", "--wait"),
    (503, "not ready to serve requests yet", "loading", "--wait"),
    (503, "Service Unavailable", "unavailable", "up and registered"),
    # model and body
    (404, "The model `gpt-9` does not exist.", "model-unknown", "/v1/models"),
    (404, "Model not found", "model-unknown", "/v1/models"),
    (503, "当前分组 default 下对于模型 m 无可用渠道", "model-unknown", "/v1/models"),
    (404, "Not Found", "not-found", "base URL"),
    (400, "Unsupported parameter(s): `foo`", "field-refused", "--target"),
    (422, "Extra inputs are not permitted", "field-refused", "--target"),
    (400, "This model's maximum context length is 4096 tokens", "too-long", "lengths"),
    (400, "something else", "http-4xx", "doctor"),
    # pages
    (200, "text/html; charset=utf-8: <html><body>Login", "html", "portal"),
    (403, "<!DOCTYPE html><title>Just a moment", "html", "portal"),
    (404, "<html><h1>404 page not found</h1>", "base-url", "before /v1"),
    (502, "<html><h1>502 Bad Gateway</h1>", "unavailable", "up and registered"),
]


@pytest.mark.parametrize(("status", "text", "name", "word"), TABLE)
def test_an_answer_has_a_name_and_its_cure(status: int, text: str, name: str, word: str) -> None:
    failure = failure_of_status(status) or "not-a-stream"
    assert diagnose(failure, status, text) == name
    assert word in cure(name)
    assert diagnose_evidence(failure, f"HTTP {status}: {text}") == name


def test_a_refused_connection_of_ours_is_not_the_gateways() -> None:
    assert diagnose("connect", 0, "cannot connect to h:1: Connection refused") == "connect"


def test_an_answer_that_came_whole_is_told_from_one_without_choices() -> None:
    whole = 'application/json: {"id":"x","choices":[{"message":{}}]}'
    assert diagnose("not-a-stream", 200, whole) == "no-streaming"


@pytest.mark.parametrize("name", FAILURES)
def test_each_failure_of_a_request_has_a_cure(name: str) -> None:
    assert name in CURES


@pytest.mark.parametrize("name", CURES)
def test_each_name_has_a_section_in_the_troubleshooting_page(name: str) -> None:
    assert re.search(rf"^### `{name}`$", DOC, re.M)


def test_the_troubleshooting_page_has_no_section_too_many() -> None:
    assert set(re.findall(r"^### `([\w-]+)`$", DOC, re.M)) == set(CURES)


def test_the_lines_of_a_run_name_the_finer_trouble_the_most_frequent_first() -> None:
    failed = {"auth": 2, "unavailable": 7, "reset": 1}
    said = {
        "auth": "HTTP 401: OAuth token has expired",
        "unavailable": "HTTP 502: local proxy failed",
    }
    lines = cures_for(failed, said)
    assert lines[0].startswith("7 x unavailable (decode-unregistered): P answers but no D does")
    assert lines[1].startswith("2 x auth (key-expired): ")
    assert lines[2].startswith("1 x reset: ")
    assert cures_for({"auth": 2})[0].startswith("2 x auth: ")


def test_a_run_names_the_entries_of_the_page_and_the_report_links_them() -> None:
    told = pages_for({"auth": 3, "reset": 1}, {"auth": "HTTP 401: OAuth token has expired."})
    assert told == ["docs/troubleshooting.md#key-expired", "docs/troubleshooting.md#reset"]
    assert all(f"### `{entry.partition('#')[2]}`" in DOC for entry in told)
    linked = _linked(escape(f"<b>{told[1]}, more"))
    target = "docs/troubleshooting.md#reset"
    assert linked == f'&lt;b&gt;<a href="../../{target}">{target}</a>, more'


def test_locusts_error_texts_are_evidence() -> None:
    texts = [
        "RequestError('auth: HTTP 401: OAuth token has expired.')",
        "RequestError('auth: HTTP 401: another')",
        'RequestError("unavailable: HTTP 502: local proxy failed: can\'t dial")',
        "CatchResponseError('something else')",
    ]
    found = evidence_of(texts)
    assert found["auth"] == "HTTP 401: OAuth token has expired."
    assert cures_for({"auth": 1, "unavailable": 2}, found)[0].startswith(
        "2 x unavailable (decode-unregistered)"
    )


def run(ttft: float, middle: float, tpot: float, retractions: float = 0.0) -> Any:
    """A run with SLOs of 500 and 50 ms, as far as the rule looks."""
    return SimpleNamespace(
        ttft_ms=SimpleNamespace(p99=ttft),
        tpot_ms=SimpleNamespace(p50=middle, p99=tpot),
        slo=SimpleNamespace(ttft_p99_ms=500.0, tpot_p99_ms=50.0),
        server={"decode": [{"retractions": retractions}]},
    )


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (run(300, 25, 80), True),  # the article's row
        (run(300, 48, 55), False),  # slow all the time: that is the planner's
        (run(300, 48, 55, retractions=3), True),  # KV was swapped
        (run(800, 25, 80), False),  # TTFT is not fine
        (run(300, 25, 45), False),  # TPOT is
    ],
)
def test_a_tpot_that_jitters_under_a_fine_ttft_is_named(measured: Any, said: bool) -> None:
    sentence = tpot_jitter(measured)
    assert (sentence is not None) == said
    if sentence is not None:
        assert sentence.startswith("tpot-jitter: ")
        assert "lower --max-running-requests, or add D" in sentence
