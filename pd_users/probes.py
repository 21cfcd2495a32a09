"""Single questions to a target, as the preflight and the doctor ask them; trouble has a name."""

import time
from dataclasses import dataclass, field
from difflib import get_close_matches

import gevent
import orjson

from pd_users.checks import DiagnosisError
from pd_users.client import Client
from pd_users.errors import TargetError
from pd_users.evidence import mask
from pd_users.explain import diagnose_response, explain, said_by, unreachable
from pd_users.records import OK
from pd_users.stream import StreamResult
from pd_users.target import Prompt, Target
from pd_users.whole import Response

LOADING_WAIT_S = 5.0  # without --wait: for a server that says it is loading, or asks to come back
AGAIN_S = 0.25
BUSY = (429, 503)
EMULATOR = "pd-emulator"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to ask again: while nothing is there, and while what is there says 429 or 503."""

    absent_until: float
    busy_until: float
    said: list[str] = field(default_factory=list)  # why it was asked again, for the notes

    @classmethod
    def of(cls, wait_s: float | None) -> "Patience":
        """``--wait``; None: not given."""
        now = time.monotonic()
        given = wait_s or 0.0
        return cls(now + given, now + (LOADING_WAIT_S if wait_s is None else given))


def ask(
    client: Client, patience: Patience, method: str, path: str, body: bytes | None = None
) -> Response:
    """A small request, repeated as patience has it. Raises TargetError when nothing answers."""
    while True:
        try:
            answer = client.request(method, path, body)
        except TargetError as error:
            if time.monotonic() >= patience.absent_until:
                raise unreachable(client, str(error)) from None
            gevent.sleep(AGAIN_S)
            continue
        if answer.status not in BUSY or time.monotonic() >= patience.busy_until:
            return answer
        patience.said.append(said_by(answer, client))
        gevent.sleep(_pause_s(answer, patience))


def _pause_s(answer: Response, patience: Patience) -> float:
    try:
        asked_s = float(answer.headers.get("retry-after", ""))
    except ValueError:
        asked_s = AGAIN_S
    left_s = patience.busy_until - time.monotonic()
    return max(min(max(asked_s, AGAIN_S), left_s), 0.01)


# -- the model ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Models:
    """What /v1/models said; ``listed`` is None where it does not exist."""

    listed: tuple[str, ...] | None
    is_emulator: bool
    trouble: DiagnosisError | None = None  # why it does not, where that may matter


def ask_models(client: Client, patience: Patience) -> Models:
    """The ids that are served. Raises TargetError: not reachable, key refused, loading, HTML."""
    answer = ask(client, patience, "GET", "/v1/models")
    is_emulator = EMULATOR in answer.headers.get("server", "")
    names = model_names(answer.body) if answer.status == 200 else None
    if names is not None:
        return Models(names, is_emulator)
    name = diagnose_response(answer, client)
    said = f"{client.endpoint.origin} /v1/models: {said_by(answer, client)}"
    if answer.status in (401, 403, 429, 503) or name == "html":
        raise DiagnosisError(name, said)
    # Many gateways have no such page; the first completion settles it.
    trouble = DiagnosisError(name, said) if name == "base-url" else None
    return Models(None, is_emulator, trouble)


def model_names(body: bytes) -> tuple[str, ...] | None:
    """The ids in an answer of /v1/models, or None where it is none."""
    try:
        return tuple(str(model["id"]) for model in orjson.loads(body)["data"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def choose_model(wanted: str, models: Models, where: str) -> str:
    """The model to use. Raises TargetError, with the nearest name or the list."""
    listed = models.listed
    if listed is None:
        if wanted:
            return wanted
        if models.trouble is not None:
            raise models.trouble
        raise DiagnosisError(
            "model-unknown", f"{where} has no /v1/models to take the model from", "give --model"
        )
    if not listed:
        raise DiagnosisError("decode-unregistered", f"{where} lists no model at all")
    if wanted in listed:
        return wanted
    shown = ", ".join(mask(name) for name in listed[:8]) + (", ..." if len(listed) > 8 else "")
    if wanted:
        near = nearest(wanted, listed)
        hint = f"did you mean --model {near}" if near else "give one of these with --model"
        raise DiagnosisError(
            "model-unknown", f"{where} does not serve {wanted!r}, it lists {shown}", hint
        )
    if len(listed) == 1:
        return listed[0]
    raise DiagnosisError(
        "model-unknown", f"{where} serves several models: {shown}", "say which with --model"
    )


def nearest(wanted: str, listed: tuple[str, ...]) -> str | None:
    """The id that was probably meant: like it, whatever the case and the owner's name before it."""
    plain = {name.lower().rpartition("/")[2]: name for name in reversed(listed)}
    near = get_close_matches(wanted.lower().rpartition("/")[2], plain, 1, cutoff=0.5)
    return plain[near[0]] if near else None


# -- completions ------------------------------------------------------------------------------------


def stream(
    client: Client, target: Target, prompt: Prompt, tokens: int, patience: Patience
) -> tuple[Target, StreamResult]:
    """Stream one answer; a field that the server refuses by name is left out from then on.

    Raises TargetError with the finest name for any other failure.
    """
    while True:
        request = target.chat_request(prompt, tokens)
        result = client.stream(request.path, request.body, request.headers)
        if result.outcome == OK:
            return target, result
        if result.status in (400, 422) and (name := target.refused(result.evidence)):
            target = target.without(name)
        elif result.status in BUSY and time.monotonic() < patience.busy_until:
            patience.said.append(result.evidence)
            gevent.sleep(AGAIN_S)
        else:
            raise explain(client, target, prompt, result)
