"""The doctor's examination: which questions, in which order, and when to stop asking."""

import time
from dataclasses import dataclass, field, replace
from typing import Protocol

import gevent

from pd_users.channel import Channel, find_channel
from pd_users.checks import CONNECTION, FAIL, KEY, PERFORMANCE, Check, DiagnosisError, exit_code
from pd_users.client import Client
from pd_users.doctor_answers import (
    ask_token_ids,
    fields_checks,
    instances_check,
    metrics_checks,
    model_check,
    prompt_check,
    stream_checks,
)
from pd_users.doctor_key import key_check, rights_check
from pd_users.doctor_network import network_checks, url_check
from pd_users.doctor_performance import (
    channel_check,
    client_checks,
    clock_check,
    floor_checks,
    jitter_check,
    read_alone,
    reading_check,
    refused_meanwhile,
)
from pd_users.endpoint import Endpoint, parse_base_url
from pd_users.errors import TargetError
from pd_users.evidence import mask
from pd_users.explain import PD_ENGINES, diagnose_response, one_token, said_by
from pd_users.instances import find_instances
from pd_users.plain_reading import PlainReader
from pd_users.preflight import PROBE_TOKENS, TIMEOUTS, Learned, look, probe_prompt
from pd_users.probes import AGAIN_S, Models, Patience, ask_models, choose_model
from pd_users.secrets import Key
from pd_users.target import DEFAULT_EXTRAS, Access, Target, build_target, endpoint_of, key_of
from workloads.errors import ConfigError

KEY_DIAGNOSES = ("key-missing", "key-wrong", "key-expired", "key-rights", "key-quota", "auth")


class Questions(Access, Protocol):
    """The options that an examination reads."""

    @property
    def model(self) -> str | None:
        """``--model``."""

    @property
    def prefill_metrics_url(self) -> tuple[str, ...]:
        """``--prefill-metrics-url``."""

    @property
    def decode_metrics_url(self) -> tuple[str, ...]:
        """``--decode-metrics-url``."""


@dataclass
class Visit:
    """One examination: what was asked for, what is known so far."""

    options: Questions
    host: str
    direct_host: str
    concurrency: int
    slo_ms: tuple[float, float]
    wait_s: float | None = None  # None: not given, so a server that is loading gets a few seconds
    checks: list[Check] = field(default_factory=list)
    learned: Learned | None = None
    secrets: tuple[str, ...] = ()

    def add(self, *checks: Check) -> bool:
        """Keep them, without any secret; whether it makes sense to go on."""
        for c in checks:
            shown = mask(c.found, self.secrets), mask(c.cure, self.secrets)
            self.checks.append(replace(c, found=shown[0], cure=shown[1]))
        return not any(c.verdict == FAIL for c in checks)


# -- the examination --------------------------------------------------------------------------------------


def examine(visit: Visit) -> None:
    """Ask everything, in order."""
    found = _key_and_channel(visit)
    if found is None:
        return
    channel, key, endpoint = found
    if not visit.add(url_check(visit.host, endpoint, channel)):
        return
    if not visit.add(*_network(visit, endpoint)):
        return
    target = build_target(visit.options, visit.host, visit.options.model or "", DEFAULT_EXTRAS)
    client = Client(endpoint, TIMEOUTS)
    try:
        if _answers(visit, client, target, key):
            _who_is_behind(visit, client)
            _performance(visit, client)
    finally:
        client.close()


def _network(visit: Visit, endpoint: Endpoint) -> list[Check]:
    """The way there, looked at again until ``--wait`` is over while it does not lead anywhere."""
    until = time.monotonic() + (visit.wait_s or 0.0)
    while exit_code(checks := network_checks(endpoint)) and time.monotonic() < until:
        gevent.sleep(AGAIN_S)
    return checks


def _key_and_channel(visit: Visit) -> tuple[Channel, Key, Endpoint] | None:
    """What needs no connection."""
    group, name = CONNECTION, "channel"
    try:
        channel = find_channel(visit.options.target)
        group, name = KEY, "key"
        key = key_of(visit.options, channel)
        visit.secrets = (key.value,) if key.value else ()
        visit.add(key_check(key, channel))
        group, name = CONNECTION, "url"
        endpoint = endpoint_of(channel, visit.host, key)
    except ConfigError as error:
        diagnosis = {"key": "key-missing", "url": "base-url"}.get(name, "")
        sentence = str(error).rstrip(".")
        found, _, advice = sentence.rpartition(": ")
        visit.add(Check(group, name, found or sentence, FAIL, advice if found else "", diagnosis))
        return None
    return channel, key, endpoint


def _answers(visit: Visit, client: Client, target: Target, key: Key) -> bool:
    """Model, one token, streams, fields; whether all is well."""
    patience = Patience.of(visit.wait_s)
    name = "model"
    try:
        models = ask_models(client, patience)
        asked = replace(target, model=choose_model(target.model, models, client.endpoint.origin))
        name = "one token"
        learned = look(client, asked, patience)
        connections = client.facts()["connections"]
        visit.learned = replace(learned, model=asked.model)
        answer = one_token(
            client, learned.target, probe_prompt(8, token_ids=learned.target.token_ids)
        )
        if bad := diagnose_response(answer, client):
            if answer.status == 401:
                raise refused_meanwhile(said_by(answer, client))
            raise DiagnosisError(bad, said_by(answer, client))
        visit.add(rights_check(key, answer))
        visit.add(model_check(target.model, asked.model, models.listed))
        visit.add(Check(CONNECTION, "one token", f"HTTP {answer.status}, with choices"))
        return _streams(visit, client, asked, connections)
    except DiagnosisError as error:
        refused = error.diagnosis in KEY_DIAGNOSES
        visit.add(error.check(KEY if refused else CONNECTION, "rights" if refused else name))
    except TargetError as error:
        visit.add(Check(CONNECTION, name, str(error).rstrip("."), FAIL))
    return False


def _streams(visit: Visit, client: Client, asked: Target, connections: int) -> bool:
    learned = visit.learned
    assert learned is not None
    reader = PlainReader(client.endpoint)
    try:
        request = learned.target.chat_request(probe_prompt(20), PROBE_TOKENS)
        plain = reader.read(request)
        zipped = reader.read(learned.target.chat_request(probe_prompt(20), PROBE_TOKENS), "gzip")
    finally:
        reader.close()
    return visit.add(
        *stream_checks(learned, plain, zipped, connections),
        *fields_checks(asked, learned, ask_token_ids(client, learned.target)),
        prompt_check(learned),
    )


def _who_is_behind(visit: Visit, client: Client) -> None:
    engine = visit.learned.target.channel.engine if visit.learned else ""
    instances = find_instances(client) if engine in PD_ENGINES else None
    visit.add(instances_check(instances))
    given = [
        *(("prefill", url) for url in visit.options.prefill_metrics_url),
        *(("decode", url) for url in visit.options.decode_metrics_url),
    ]
    found = [
        (role, url)
        for role in ("prefill", "decode")
        for url in (instances.metrics_urls(role) if instances else ())
    ]
    visit.add(*metrics_checks(given or found, bool(given)))


def _performance(visit: Visit, client: Client) -> None:
    visit.add(*client_checks(visit.concurrency))
    assert visit.learned is not None
    target = visit.learned.target
    reader = PlainReader(client.endpoint)
    try:
        alone = read_alone(client, target, reader)
        visit.add(clock_check(alone), *floor_checks(alone, visit.slo_ms), jitter_check(alone))
        visit.add(reading_check(alone))
        if visit.direct_host:
            _compare(visit, client, target)
    except DiagnosisError as error:
        visit.add(error.check(KEY, "rights"))
    except TargetError as error:
        visit.add(
            Check(PERFORMANCE, "readings", str(error).rstrip("."), FAIL, "run the doctor again")
        )
    finally:
        reader.close()


def _compare(visit: Visit, client: Client, target: Target) -> None:
    """The channel against an engine behind it. The channel's key is not sent there."""
    endpoint = parse_base_url(visit.direct_host)
    direct = Client(endpoint, TIMEOUTS)
    try:
        listed: Models = ask_models(direct, Patience.of(0.0))
        same = listed.listed is None or target.model in listed.listed
        model = target.model if same else choose_model("", listed, endpoint.origin)
        behind = replace(target, endpoint=endpoint, model=model)
        visit.add(
            channel_check(read_alone(client, target), read_alone(direct, behind), endpoint.origin)
        )
    finally:
        direct.close()
