"""A look at the target before any load: is it there, does it take the key and the model, does it
stream; and what the prompts must know of it (template tokens, tokens per word).
"""

import time
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import gevent
import orjson

from pd_users.client import Client
from pd_users.errors import TargetError
from pd_users.records import OK
from pd_users.stream import StreamResult
from pd_users.target import Target
from pd_users.timeouts import Timeouts
from pd_users.whole import Response
from workloads.arrivals import Arrival
from workloads.prompts import PromptWriter

PROBE_WORDS = (40, 400)
PROBE_TOKENS = 4
TIMEOUTS = Timeouts(connect_s=5, first_byte_s=60, between_bytes_s=30, total_s=120)


@dataclass(frozen=True, slots=True)
class Learned:
    """What the preflight found out."""

    target: Target
    template_tokens: float = 0.0
    tokens_per_word: float = 1.0
    is_emulator: bool = False
    notes: list[str] = field(default_factory=list)


def preflight(target: Target, wait_s: float = 0.0) -> Learned:
    """Look at the target. Raises TargetError: one sentence with the cure."""
    client = Client(target.endpoint, TIMEOUTS)
    try:
        target, is_emulator = _model(client, target, time.monotonic() + wait_s)
        target, probes = _probe(client, target)
        template, per_word, notes = _fit(probes)
        return Learned(target, template, per_word, is_emulator, notes)
    finally:
        client.close()


def _model(client: Client, target: Target, deadline: float) -> tuple[Target, bool]:
    """The target with its model settled, by what /v1/models lists."""
    answer = _models(client, deadline)
    where = target.endpoint.origin
    if answer.status in (401, 403):
        raise TargetError(
            f"{where} refuses the key (HTTP {answer.status}): check the variable that "
            "--api-key-env names, or the file of --api-key-file."
        )
    if answer.status == 503:
        raise TargetError(f"{where} is still loading (HTTP 503): use --wait 60s.")
    is_emulator = "pd-emulator" in answer.headers.get("server", "")
    models = _names(answer.body) if answer.status == 200 else []
    return replace(target, model=_choose(target.model, models, where)), is_emulator


def _models(client: Client, deadline: float) -> Response:
    """The answer of /v1/models, asked again until ``deadline`` while nothing is there yet."""
    while True:
        try:
            answer = client.request("GET", "/v1/models")
            if answer.status != 503 or time.monotonic() >= deadline:
                return answer
        except TargetError as error:
            if time.monotonic() >= deadline:
                raise TargetError(f"The target is not reachable: {error}") from None
        gevent.sleep(0.5)


def _choose(model: str, models: list[str], where: str) -> str:
    if model and (not models or model in models):
        return model
    if model:
        near = get_close_matches(model, models, 1)
        hint = f"; did you mean {near[0]!r}" if near else ""
        raise TargetError(
            f"--model: {where} does not serve {model!r}, it lists {', '.join(models[:8])}{hint}."
        )
    if len(models) == 1:
        return models[0]
    listed = f"it lists {', '.join(models[:8])}" if models else "it lists none"
    raise TargetError(f"--model: give the model id; {where} was asked and {listed}.")


def _names(body: bytes) -> list[str]:
    try:
        return [str(model["id"]) for model in orjson.loads(body)["data"]]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return []


def _probe(client: Client, target: Target) -> tuple[Target, list[tuple[int, int]]]:
    """Stream two short answers; drop an extra field that the server refuses by name."""
    counts: list[tuple[int, int]] = []
    writer = PromptWriter(f"probe{time.monotonic_ns():x}")
    for k, words in enumerate(PROBE_WORDS):
        prompt = writer.prompt(Arrival(k, 0.0, "probe", words, PROBE_TOKENS))
        result = _ask(client, target, prompt)
        while result.outcome == "http-4xx" and (name := _refused(target, result.evidence)):
            target = target.without(name)
            result = _ask(client, target, prompt)
        if result.outcome != OK:
            raise TargetError(
                f"{target.endpoint.origin} gave no token stream for a probe of {words} words "
                f"({result.outcome}): {result.evidence or 'no more is known'}."
            )
        if result.input_tokens > 0:
            counts.append((words, result.input_tokens))
    return target, counts


def _ask(client: Client, target: Target, prompt: str) -> StreamResult:
    request = target.chat_request(prompt, PROBE_TOKENS)
    return client.stream(request.path, request.body, request.headers)


def _refused(target: Target, evidence: str) -> str | None:
    return next((name for name in target.extras() if name in evidence), None)


def _fit(counts: list[tuple[int, int]]) -> tuple[float, float, list[str]]:
    """Template tokens and tokens per word from (words, prompt tokens) pairs."""
    if len(counts) < 2:
        return 0.0, 1.0, ["the server told no prompt tokens: prompt lengths are counted in words"]
    (w0, t0), (w1, t1) = counts[0], counts[-1]
    per_word = (t1 - t0) / (w1 - w0)
    return max(t0 - per_word * w0, 0.0), max(per_word, 0.1), []
