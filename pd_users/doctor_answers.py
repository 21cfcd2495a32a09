"""The doctor's questions about answers: model, fields, streams, and whether P and D are both there."""

from collections.abc import Sequence

import orjson

from pd_users.channel import EXTRAS, RUNNING_USAGE, TEXT, USAGE
from pd_users.checks import CONNECTION, FAIL, OK, WARN, Check, DiagnosisError
from pd_users.client import Client
from pd_users.endpoint import shown_url
from pd_users.errors import TargetError
from pd_users.evidence import mask
from pd_users.instances import Instances
from pd_users.plain_reading import PlainReading
from pd_users.preflight import MERGING, Learned
from pd_users.server_metrics import PageClient
from pd_users.target import Target

TOKEN_IDS = (100, 200, 300, 400, 500, 600, 700, 800)


def _check(
    name: str, found: str, verdict: str = OK, advice: str = "", diagnosis: str = ""
) -> Check:
    return Check(CONNECTION, name, found, verdict, advice, diagnosis)


# -- answers --------------------------------------------------------------------------------------------


def model_check(wanted: str, model: str, listed: Sequence[str] | None) -> Check:
    """Which model it will be. Pure."""
    if listed is None:
        return _check("model", f"{mask(model)}, taken as given: there is no /v1/models")
    if not wanted:
        return _check("model", f"{mask(model)}, the only one there (--model was not given)")
    return _check("model", f"{mask(model)}, one of {len(listed)} in /v1/models")


def fields_checks(asked: Target, learned: Learned, token_ids: str) -> list[Check]:
    """Which fields beside the oldest ones the server takes, and what its answers tell. Pure."""
    found = learned.target
    refused = [name for name in asked.fields if name not in found.fields]
    taken = [name for name in EXTRAS if name in found.fields]
    text = f"takes {', '.join(taken) or 'none'}" + (
        f"; refuses {', '.join(refused)}" if refused else ""
    )
    checks = [_check("fields", text)]
    if not learned.keeps_length:
        advice = "outputs will be shorter than planned: use --target sglang or vllm where it is one"
        checks.append(_check("output length", "not as long as asked", WARN, advice))
    else:
        checks.append(_check("output length", "as asked"))
    checks.append(_usage_check(learned))
    cached = "told" if learned.cached_tokens else "not told"
    advice = (
        ""
        if learned.cached_tokens
        else (
            "prefix hits cannot be seen: SGLang --enable-cache-report, vLLM --enable-prompt-tokens-details"
        )
    )
    checks.append(_check("cached tokens", cached, OK if learned.cached_tokens else WARN, advice))
    checks.append(_check("token-id prompts", token_ids))
    return checks


def _usage_check(learned: Learned) -> Check:
    if learned.usage:
        return _check("usage in the stream", "token counts come with the stream")
    why = "refused" if USAGE not in learned.target.fields else "not sent"
    advice = "token counts are estimated from events, and prompt lengths counted in words"
    return _check("usage in the stream", why, WARN, advice)


def prompt_check(learned: Learned) -> Check:
    """What a prompt costs beside its words. Pure."""
    per_word, template = learned.tokens_per_word, learned.template_tokens
    text = f"{template:.0f} tokens of template, {per_word:.2f} tokens per word"
    if not learned.usage:
        return _check(
            "prompt tokens",
            "not told: counted in words",
            WARN,
            "lengths will be off by the tokenizer",
        )
    if per_word > 1.5:
        advice = "our words are more than one token there; prompts are shortened to fit, check input_tokens"
        return _check("prompt tokens", text, WARN, advice)
    return _check("prompt tokens", text)


def ask_token_ids(client: Client, target: Target) -> str:
    """Whether /v1/completions takes a prompt of token ids."""
    body = {"model": target.model, "prompt": TOKEN_IDS, "max_tokens": 1, "stream": False}
    try:
        answer = client.request("POST", TEXT, orjson.dumps(body))
    except TargetError:
        return "no answer"
    if answer.status != 200:
        return f"not taken (HTTP {answer.status})"
    try:
        counted = orjson.loads(answer.body)["usage"]["prompt_tokens"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "taken"
    return (
        "taken"
        if counted == len(TOKEN_IDS)
        else f"taken, but counted as {counted} of {len(TOKEN_IDS)} tokens"
    )


def stream_checks(
    learned: Learned, plain: PlainReading, zipped: PlainReading, connections: int
) -> list[Check]:
    """The form of the stream. Pure. ``connections``: how many our client opened for the probes."""
    first = "a role alone, then tokens" if plain.role_only_first else "a token at once"
    checks = [
        _check(
            "stream",
            f"{plain.events} events for a probe, first {first}; "
            f"{'ends in [DONE]' if plain.done else 'without [DONE]'}",
        )
    ]
    per_chunk = learned.tokens_per_chunk
    if per_chunk > MERGING:
        running = RUNNING_USAGE in learned.target.fields
        advice = "ITL is per chunk, not per token" + (
            "" if running else ", and n_first is estimated"
        )
        checks.append(_check("tokens per chunk", f"{per_chunk:.2f}", WARN, advice))
    else:
        checks.append(_check("tokens per chunk", "1"))
    if connections > 1:
        advice = (
            "a TCP (and TLS) handshake is part of every TTFT: let the server keep connections open"
        )
        checks.append(_check("keep-alive", "the server closes after each answer", WARN, advice))
    else:
        checks.append(_check("keep-alive", "the connection stays open after an answer"))
    return [*checks, _gzip_check(plain, zipped)]


def _gzip_check(plain: PlainReading, zipped: PlainReading) -> Check:
    if unasked := plain.headers.get("content-encoding"):
        advice = "compression may hold tokens back: turn it off for text/event-stream"
        return _check("compression", f"{unasked}, although identity was asked for", WARN, advice)
    if asked := zipped.headers.get("content-encoding"):
        return _check("compression", f"{asked} when asked for; the load does not ask")
    return _check("compression", "none on streams")


# -- P and D ----------------------------------------------------------------------------------------------


def instances_check(instances: Instances | None) -> Check:
    """Whether both P and D are there. Pure; asked after a whole stream has come through."""
    if instances is None:
        return _check(
            "P and D", "a stream comes through; the target does not tell who is behind it"
        )
    if role := instances.lacking():
        found = f"no healthy {'D' if role == 'decode' else 'P'}: {instances.shown()}"
        return DiagnosisError(f"{role}-unregistered", found).check(CONNECTION, "P and D")
    if instances.unhealthy:
        advice = "look at the log of what is not healthy, or take it out"
        return _check("P and D", instances.shown(), WARN, advice)
    return _check("P and D", instances.shown())


def metrics_checks(urls: Sequence[tuple[str, str]], given: bool) -> list[Check]:
    """Each /metrics page: does it answer, and is it of the role that it was given as."""
    return [_metrics_check(role, url, FAIL if given else WARN) for role, url in urls]


def _metrics_check(role: str, url: str, bad: str) -> Check:
    name = f"metrics of {'P' if role == 'prefill' else 'D'}"
    client = PageClient(url)
    try:
        readings = client.read()
    except TargetError as error:
        return _check(
            name,
            str(error).rstrip("."),
            bad,
            "without it, attribution rests on what the client sees",
        )
    finally:
        client.close()
    if not any(r.role in ("", role) for r in readings):
        says = readings[0].role
        return _check(
            name,
            f"{shown_url(url)} says that it is {says}",
            bad,
            f"give it as --{says}-metrics-url",
        )
    mine = [r for r in readings if r.role in ("", role)]
    values = [
        f"{n} {r.gauges[n]:g}"
        for r in mine[:1]
        for n in ("running", "queued", "cap")
        if n in r.gauges
    ]
    many = f", {len(mine)} instances" if len(mine) > 1 else ""
    return _check(
        name, f"{shown_url(url)}: {mine[0].engine}{many}, {', '.join(values) or 'no gauges'}"
    )
