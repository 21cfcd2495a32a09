"""Why an answer is not what it should be: the finest name for it, and what was seen."""

from typing import Any

import orjson

from pd_users.checks import DiagnosisError
from pd_users.client import Client
from pd_users.cures import diagnose, diagnose_evidence
from pd_users.errors import TargetError
from pd_users.evidence import evidence
from pd_users.failures import failure_of_status
from pd_users.instances import find_instances
from pd_users.stream import StreamResult
from pd_users.target import Prompt, Target
from pd_users.whole import Response

UNREACHED = ("connect", "tls", "proxy", "redirect")
PLAIN = ("redirect", "rate-limited")  # failures that need no second look
PD_ENGINES = ("", "sglang", "vllm", "dynamo")  # whose routers tell who is behind them


def unreachable(client: Client, said: str) -> DiagnosisError:
    """The error for a target that does not answer at all."""
    low = said.lower()
    found = said.rstrip(".")
    if "certificate" in low or "tls" in low or "ssl" in low:
        return DiagnosisError("tls", found)
    if "proxy" in low:
        return DiagnosisError("proxy", found)
    if "redirect" in low:
        return DiagnosisError("redirect", found)
    advice = (
        f"nothing answers at {client.endpoint.origin}: check host and port of -H, and that the "
        "server runs and can be reached from here (--wait 60s waits for it)"
    )
    return DiagnosisError("connect", f"The target is not reachable: {found}", advice)


def explain(client: Client, target: Target, prompt: Prompt, failed: StreamResult) -> DiagnosisError:
    """Why a stream failed; where the answer does not say, the target is asked once more."""
    where = client.endpoint.origin
    if not failed.status and failed.outcome in UNREACHED:
        return unreachable(client, f"{where}: {failed.evidence or failed.outcome}")
    name = diagnose_evidence(failed.outcome, failed.evidence)
    found = f"{where}: {failed.evidence or failed.outcome}"
    found = found.replace(f"HTTP {failed.status}: redirect to", f"redirect {failed.status} to")
    if name == failed.outcome and name not in PLAIN:
        name, found = _second_look(client, target, prompt, failed, found)
    return DiagnosisError(name, found, _advice(target, name))


def _second_look(
    client: Client, target: Target, prompt: Prompt, failed: StreamResult, found: str
) -> tuple[str, str]:
    """Who is behind the target, and does it answer a request of one token?"""
    name = failed.outcome
    instances = find_instances(client) if target.channel.engine in PD_ENGINES else None
    if instances is not None and (role := instances.lacking()):
        return f"{role}-unregistered", f"{found}; {instances.shown()}"
    if name == "stalled":
        return name, found  # one more would stall as long
    try:
        answer = one_token(client, target, prompt)
    except TargetError:
        return name, found
    if finer := diagnose_response(answer, client):
        return finer, f"{client.endpoint.origin}: {said_by(answer, client)}"
    return _while_one_token_works(failed, found)


def _while_one_token_works(failed: StreamResult, found: str) -> tuple[str, str]:
    if failed.outcome == "not-a-stream":
        return "no-streaming", found
    if failed.token_events > 1:
        return failed.outcome, found
    # One token comes from P alone; what fails is what needs D.
    return "decode-unregistered", f"{found}, while a request of one token succeeds"


def _advice(target: Target, name: str) -> str:
    base = target.channel.base_url
    if name in ("base-url", "html") and base and target.endpoint.base_path == "":
        return f"the path is missing: {target.channel.name}'s base URL is {base}"
    return ""


def one_token(client: Client, target: Target, prompt: Prompt) -> Response:
    """One token, not streamed: what works when anything does."""
    request = target.chat_request(prompt, 1, stream=False)
    return client.request("POST", request.path, request.body)


def diagnose_response(answer: Response, client: Client) -> str:
    """The name for a whole answer that is no completion; '' for one that is."""
    text = evidence(answer.body, client.endpoint.secrets)
    if answer.status == 200:
        kind = answer.headers.get("content-type", "")
        if "html" in kind or text.lstrip()[:1] == "<":
            return "html"
        if "event-stream" in kind and b'"choices"' in answer.body:
            return ""  # a server that always streams
        return "" if choices(answer.body) else diagnose("not-a-stream", 200, text)
    if "html" in answer.headers.get("content-type", ""):
        text = f"text/html {text}"
    return diagnose(failure_of_status(answer.status), answer.status, text)


def choices(body: bytes) -> list[Any]:
    """The choices of a completion; [] when there are none."""
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return []
    found = told.get("choices") if isinstance(told, dict) else None
    return found if isinstance(found, list) else []


def said_by(answer: Response, client: Client) -> str:
    """Status and gist of an answer, without secrets."""
    return evidence(answer.body, client.endpoint.secrets, f"HTTP {answer.status}")
