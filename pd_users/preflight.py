"""A look at the target before any load: is it there, does it take the key and the model, does it
stream, which fields does it take; and what the prompts must know of it (template tokens, tokens per
word). Two short answers, unless something is wrong.
"""

import time
from dataclasses import dataclass, field, replace
from math import isnan

from pd_users.channel import PINS, RUNNING_USAGE, USAGE
from pd_users.checks import DiagnosisError
from pd_users.client import Client
from pd_users.errors import TargetError
from pd_users.explain import PD_ENGINES
from pd_users.instances import Instances, find_instances
from pd_users.probes import Patience, ask_models, choose_model, stream
from pd_users.records import OK
from pd_users.stream import StreamResult
from pd_users.target import Prompt, Target
from pd_users.timeouts import Timeouts
from workloads.arrivals import Arrival
from workloads.prompts import PromptWriter

PROBE_WORDS = (40, 400)
PROBE_TOKENS = 12
MERGING = 1.05  # tokens per chunk, from which on a server merges
TIMEOUTS = Timeouts(connect_s=5, first_byte_s=60, between_bytes_s=30, total_s=120)
# Trouble that one request may have and the next may not.
PASSING = (
    "reset",
    "truncated",
    "engine-error",
    "kv-transfer",
    "unavailable",
    "http-5xx",
    "no-pair",
)


@dataclass(frozen=True, slots=True)
class Learned:
    """What the preflight found out."""

    target: Target  # with the model settled, without the fields that were refused
    template_tokens: float = 0.0
    tokens_per_word: float = 1.0
    is_emulator: bool = False
    notes: list[str] = field(default_factory=list)
    model: str = ""
    usage: bool = False  # token counts come with the stream
    cached_tokens: bool = False  # and so do those served from the prefix cache
    keeps_length: bool = False  # answers are as long as asked
    tokens_per_chunk: float = 1.0
    ttft_ms: float | None = None  # of one short request without load
    tpot_ms: float | None = None
    instances: Instances | None = None

    @property
    def accepts_ignore_eos(self) -> bool:
        """Whether the server takes the field (or does not say that it does not)."""
        return "ignore_eos" in self.target.fields

    @property
    def accepts_min_tokens(self) -> bool:
        """The same for min_tokens."""
        return "min_tokens" in self.target.fields


def preflight(
    target: Target, wait_s: float | None = None, slo_ms: tuple[float, float] | None = None
) -> Learned:
    """Look at the target. Raises TargetError: one sentence with the name of the trouble and its cure.

    ``wait_s`` is ``--wait`` (None: not given); ``slo_ms`` are the SLOs of TTFT and TPOT, if known.
    """
    client = Client(target.endpoint, TIMEOUTS)
    try:
        return look(client, target, Patience.of(wait_s), slo_ms)
    finally:
        client.close()


def look(
    client: Client, target: Target, patience: Patience, slo_ms: tuple[float, float] | None = None
) -> Learned:
    """The preflight on a client that is already there."""
    models = ask_models(client, patience)
    model = choose_model(target.model, models, client.endpoint.origin)
    notes = (
        [] if target.model else [f"--model is not given: {model!r} is taken, the only one there"]
    )
    asked = replace(target, model=model)
    found, results, hiccups = probe(client, asked, patience)
    notes += [
        *hiccups,
        *(f"it was asked again after {said}" for said in dict.fromkeys(patience.said)),
    ]
    notes += _about_fields(asked, found, results)
    template, per_word, said = fit([(w, r.input_tokens) for w, r in results if r.input_tokens > 0])
    last = results[-1][1]
    ttft_ms, tpot_ms = 1000 * (last.first_token - last.sent), _ms(last.tpot_s)
    instances = find_instances(client) if target.channel.engine in PD_ENGINES else None
    return Learned(
        target=found,
        template_tokens=template,
        tokens_per_word=per_word,
        is_emulator=models.is_emulator,
        notes=[*notes, *said, *floor_notes(ttft_ms, tpot_ms, slo_ms), *_about_instances(instances)],
        model=model,
        usage=last.token_source == "usage",
        cached_tokens=last.cached_tokens >= 0,
        keeps_length=all(r.output_tokens == PROBE_TOKENS for _, r in results),
        tokens_per_chunk=last.tokens_per_chunk,
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
        instances=instances,
    )


def probe_prompt(words: int, salt: str = "probe", token_ids: bool = False) -> Prompt:
    """A prompt of so many words (or token ids) that no cache has seen."""
    writer = PromptWriter(f"{salt}{time.monotonic_ns():x}")
    arrival = Arrival(words, 0.0, "probe", words, PROBE_TOKENS)
    return writer.token_ids(arrival) if token_ids else writer.prompt(arrival)


Probed = tuple[Target, list[tuple[int, StreamResult]], list[str]]


def probe(client: Client, target: Target, patience: Patience) -> Probed:
    """Stream two short answers: the target without what the server refuses, both results, notes.

    What may be one request's bad luck gets a second chance, and a note.
    """
    results, notes = [], []
    for words in PROBE_WORDS:
        prompt = probe_prompt(words, token_ids=target.token_ids)
        try:
            target, result = stream(client, target, prompt, PROBE_TOKENS, patience)
        except DiagnosisError as error:
            if error.diagnosis not in PASSING:
                raise
            target, result = stream(client, target, prompt, PROBE_TOKENS, patience)
            notes.append(f"a probe failed, a second one did not: {error}")
        results.append((words, result))
    merges = results[-1][1].tokens_per_chunk > MERGING
    if merges and USAGE in target.fields and RUNNING_USAGE in target.channel.takes:
        target = _try_running_usage(client, target, patience)
    return target, results, notes


def _try_running_usage(client: Client, target: Target, patience: Patience) -> Target:
    """With merged tokens, only counts in each chunk tell how many came in the first."""
    try:
        prompt = probe_prompt(PROBE_WORDS[0], token_ids=target.token_ids)
        kept, result = stream(client, target.with_running_usage(), prompt, PROBE_TOKENS, patience)
    except TargetError:
        return target
    return kept if result.outcome == OK else target


def _ms(seconds: float) -> float | None:
    return None if isnan(seconds) else 1000 * seconds


def _about_fields(
    asked: Target, found: Target, results: list[tuple[int, StreamResult]]
) -> list[str]:
    notes = []
    refused = [name for name in asked.fields if name not in found.fields]
    if refused:
        notes.append(f"the server refuses {', '.join(refused)}: left out")
    short = [r for _, r in results if r.output_tokens != PROBE_TOKENS]
    if short:
        pins = [name for name in PINS if name in found.fields]
        why = f"although {' and '.join(pins)} were accepted" if pins else "it takes no pins"
        notes.append(
            f"answers are not as long as asked ({short[0].output_tokens} of {PROBE_TOKENS} tokens, "
            f"{why}): output lengths will differ from the workload's"
        )
    if results[-1][1].token_source != "usage":
        notes.append("the stream tells no usage: token counts are estimated from events")
    return notes


def floor_notes(
    ttft_ms: float, tpot_ms: float | None, slo_ms: tuple[float, float] | None
) -> list[str]:
    """A sentence for each SLO that one request alone already misses."""
    if slo_ms is None:
        return []
    pairs = (("TTFT", ttft_ms, slo_ms[0]), ("TPOT", tpot_ms, slo_ms[1]))
    return [
        f"{name} without any load is {found:.0f} ms, over its SLO of {allowed:g} ms: no number of "
        "instances can mend that"
        for name, found, allowed in pairs
        if found is not None and found > allowed
    ]


def _about_instances(instances: Instances | None) -> list[str]:
    if instances is None or not instances.unhealthy:
        return []
    return [f"behind the target: {instances.shown()}"]


def fit(counts: list[tuple[int, int]]) -> tuple[float, float, list[str]]:
    """Template tokens and tokens per word from (words, prompt tokens) pairs."""
    if len(counts) < 2:
        return 0.0, 1.0, ["the server told no prompt tokens: prompt lengths are counted in words"]
    (w0, t0), (w1, t1) = counts[0], counts[-1]
    per_word = max((t1 - t0) / (w1 - w0), 0.1)
    return max(t0 - per_word * w0, 0.0), per_word, []
