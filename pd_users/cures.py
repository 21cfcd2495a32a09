"""What went wrong, by name, and what to do about it. Pure.

Two kinds of names: those a request fails under (failures.py), and finer ones that the text of an
answer tells apart (an expired key from a wrong one, a D that is not registered from a model that
still loads). docs/troubleshooting.md has a section for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # numpy and scipy, which the doctor would wait for
    from planner.measurement import Measurement

CURES = {
    # -- key and rights --
    "key-missing": "no key was sent: export the channel's variable, or name one with --api-key-env",
    "key-wrong": "the key is not known there: check for a cut copy, and that key and base URL belong together",
    "key-expired": "the key or OAuth token has expired: get a new one; for a long run take one that outlives it",
    "key-rights": "the key is valid but may not do this: ask for the right to this model, or take another key",
    "key-quota": "the account's balance or quota is used up: top it up; this says nothing of the cluster",
    # -- connection and endpoints --
    "base-url": "the base URL is wrong: give scheme, host and the path before /v1, such as https://taotoken.net/api",
    "decode-unregistered": "P answers but no D does: register every D behind the channel (router: --decode URL; "
    "Dynamo: start a decode worker), and check that the router reaches its port",
    "prefill-unregistered": "no P answers: register every P behind the channel (router: --prefill URL BOOTSTRAP_PORT; "
    "Dynamo: start a prefill worker)",
    "no-pair": "the router has no healthy pair of P and D: look at GET /workers and the engines' logs; its circuit "
    "breaker closes again some seconds after they are back",
    "kv-transfer": "the KV cache did not get from P to D: check that D reaches P's bootstrap port and the transfer "
    "network (RDMA or TCP), and that both run the same version and model",
    "loading": "the model is still loading: wait for it with --wait 120s",
    "model-unknown": "the model is not served there: take an id from /v1/models with --model",
    "no-choices": "the answer has no choices: the model id differs from what the channel knows (see /v1/models), or "
    "max_tokens is 0",
    "html": "a web page answers instead of the API: a login, a portal or a proxy is in the way, or the base URL lacks "
    "its path",
    "no-streaming": "the answer came whole: the model or the channel does not stream, so there is no TTFT to measure",
    "field-refused": "the server refuses a field of the request: name its kind with --target, or list what it takes in "
    "a channel file",
    "too-long": "the prompt and its answer are longer than the model's context: cut the lengths in the workload",
    # -- performance --
    "tpot-jitter": "TTFT is fine but TPOT jitters: the decode batch is too large or KV is swapped: lower "
    "--max-running-requests, or add D",
    # -- the names that a request fails under --
    "connect": "is the target's address right, and does it listen? Behind a channel: is every P and D registered?",
    "tls": "check the certificate and the host name, or use http:// where the port has no TLS",
    "proxy": "check HTTPS_PROXY, or set NO_PROXY for the target",
    "auth": "the key is missing, wrong or expired: check --api-key-env",
    "not-found": "check the base URL and the model id",
    "rate-limited": "the gateway's quota is reached: raise it; this says nothing of the cluster",
    "unavailable": "nothing behind the gateway took the request: are P and D up and registered?",
    "http-4xx": "the server refuses the request: see the evidence; python -m pd_users.doctor finds the field",
    "http-5xx": "the server failed: see its log",
    "redirect": "use the URL that the redirect names as base URL",
    "protocol": "something that is not HTTP answers there",
    "not-a-stream": "the answer is no event stream: a login page, or a model that does not stream",
    "engine-error": "the engine gave up in mid-answer: see its log, a D may be lost or out of KV memory",
    "truncated": "a proxy or a timeout on the way cuts streams off",
    "reset": "the connection broke: see the server's and the proxy's logs",
    "stalled": "no token for too long: a lost KV transfer, a D that is not registered, or one that swaps",
    "timeout": "the answer took longer than the total limit",
    "empty": "the model answered with no token: check the model id and max_tokens",
}


@dataclass(frozen=True, slots=True)
class _Sign:
    """A diagnosis, the HTTP statuses it comes with, and what the text then says; both are patterns."""

    name: str
    statuses: str
    text: str

    def fits(self, status: int, text: str) -> bool:
        return bool(re.match(self.statuses, str(status)) and re.search(self.text, text, re.I))


# In this order; the first that fits. Gateways of the one-api family answer in Chinese.
_SIGNS = (
    _Sign(
        "key-quota",
        "401|402|403|429",
        r"insufficient.{0,10}(quota|balance|credit)|exceeded your current quota|billing"
        r"|payment required|余额|额度(不足|已用尽)",
    ),
    _Sign("key-expired", "401|403", r"expired|过期"),
    _Sign(
        "key-missing",
        "401|403",
        r"(no|missing|without|provide an?|未提供).{0,20}(api.?key|token|authorization|令牌|bearer)"
        r"|not authenticated",
    ),
    _Sign("key-rights", "403", r""),
    _Sign("key-wrong", "401", r""),
    _Sign(
        "decode-unregistered",
        "404|5..|200",
        r"no (available |healthy )?decode (worker|server|instance)s?|failed to select decode"
        r"|decode_server_error|decode server (error|unreachable)|no decode",
    ),
    _Sign(
        "prefill-unregistered",
        "404|5..|200",
        r"no (available |healthy )?prefill (worker|server|instance)s?|failed to select prefill"
        r"|prefill_server_error|no prefill",
    ),
    _Sign(
        "no-pair",
        "5..",
        r"failed to select (worker )?pair|failed to select PD pair|server_selection_failed"
        r"|all circuits open|no_available_workers|no available workers",
    ),
    _Sign(
        "decode-unregistered", "4..|5..|200", r"local proxy failed|connection refused|ECONNREFUSED"
    ),
    _Sign(
        "kv-transfer",
        "5..|200",
        r"kv.?(cache)?.?transfer|kvtransfererror|bootstrap|disaggregat|prefill.{0,30}(failed|lost)",
    ),
    _Sign(
        "model-unknown",
        "400|404|503",
        r"model.{0,80}(not exist|not found|not served|unknown)|(unknown|no such|invalid) model"
        r"|model_not_found|无可用渠道|no available channel",
    ),
    _Sign("loading", "503", r"load|not ready|starting|warm|initiali"),
    _Sign(
        "too-long",
        "400|413|422",
        r"context.?length|longer than the model|maximum.{0,20}(context|model) len"
        r"|(input|prompt).{0,40}(too long|exceeds?)",
    ),
    _Sign(
        "field-refused",
        "400|422",
        r"unsupported (parameter|value|field)|unknown (field|parameter|argument)|unrecognized"
        r"|extra (inputs|fields).{0,20}not (permitted|allowed)|extra_forbidden",
    ),
)
_HTML = re.compile(r"(?i)\s*(<!doctype html|<html|<head|<body)|.{0,40}text/html")


def diagnose(failure: str, status: int, text: str) -> str:
    """The finest name for a failed request: by its failure name, HTTP status and what was said.

    Without an answer (status 0), the failure name itself: what is refused then is our connection.
    """
    if not status:
        return failure
    if _HTML.match(text) and status < 500:  # a proxy's own page says the same as its status
        return "base-url" if status == 404 else "html"
    for sign in _SIGNS:
        if sign.fits(status, text):
            return sign.name
    if failure == "not-a-stream" and status == 200:
        return "no-streaming" if '"choices"' in text else "no-choices"
    return failure


def cure(name: str) -> str:
    """What to do about a failure or a diagnosis."""
    return CURES.get(name, "see the evidence; python -m pd_users.doctor looks closer")


def cures_for(failed: Mapping[str, int], evidence: Mapping[str, str] | None = None) -> list[str]:
    """One line for each failure that occurred, the most frequent first.

    ``evidence`` is what one request of each name was told ("HTTP 401: ..."); it makes the cure finer.
    """
    lines = []
    for name in sorted(failed, key=lambda name: -failed[name]):
        finer = diagnose_evidence(name, (evidence or {}).get(name, ""))
        label = name if finer == name else f"{name} ({finer})"
        lines.append(f"{failed[name]} x {label}: {cure(finer)}")
    return lines


def pages_for(failed: Iterable[str], evidence: Mapping[str, str]) -> list[str]:
    """Where docs/troubleshooting.md says more on each failure that occurred."""
    names = (diagnose_evidence(name, evidence.get(name, "")) for name in failed)
    return [f"docs/troubleshooting.md#{name}" for name in dict.fromkeys(names)]


def diagnose_evidence(failure: str, evidence: str) -> str:
    """``diagnose`` for the one line that a failed request leaves: ``HTTP 401: ...``."""
    found = re.match(r"HTTP (\d{3}) ?(.*)", evidence, re.S)
    return diagnose(failure, int(found[1]), found[2].removeprefix(": ")) if found else failure


def evidence_of(errors: Iterable[str]) -> dict[str, str]:
    """What one request of each failure name was told, from the texts of Locust's error report."""
    found: dict[str, str] = {}
    for text in errors:
        if (
            seen := re.search(r"RequestError\(['\"]([a-z0-9-]+): (.*)['\"]\)", text, re.S)
        ) is not None:
            found.setdefault(seen[1], seen[2])
    return found


def tpot_jitter(m: Measurement) -> str | None:
    """The sentence for a run whose TTFT is fine while its TPOT jitters; None for any other run."""
    ttft_ms, tpot_ms, middle_ms = m.ttft_ms.p99, m.tpot_ms.p99, m.tpot_ms.p50
    if ttft_ms is None or tpot_ms is None or not middle_ms:
        return None
    if ttft_ms > m.slo.ttft_p99_ms or tpot_ms <= m.slo.tpot_p99_ms:
        return None
    lost = sum(float(d.get("retractions", 0.0)) for d in (m.server or {}).get("decode", []))
    if tpot_ms < JITTER * middle_ms and not lost:
        return None  # it is slow all the time, not now and then
    swapped = f", {lost:.0f} requests lost their KV memory" if lost else ""
    return (
        f"tpot-jitter: TTFT P99 {ttft_ms:.0f} ms is within its SLO, TPOT goes from {middle_ms:.1f} (P50) "
        f"to {tpot_ms:.1f} ms (P99){swapped}: {cure('tpot-jitter')}"
    )


JITTER = 1.3  # P99 over P50 of TPOT, from which on it is not just slow
