"""Puts arrivals on the wire: one request each, and the record that comes of it."""

from locust.env import Environment

from dataclasses import replace
from typing import Any

import gevent

from pd_users.client import Client
from pd_users.metrics import Recorder
from pd_users.records import OK, UNSENT, RequestRecord
from pd_users.secrets import guard_logs
from pd_users.spec import RunSpec
from pd_users.stream import StreamResult
from pd_users.target import ChatRequest, Target, build_target
from pd_users.timeouts import Timeouts
from pd_users.traffic import Share, Traffic, build
from pd_users.users import PDUser
from workloads.arrivals import Arrival
from workloads.prompts import WORDS, Calibration, PromptWriter, words_of

WARM_CONNECTIONS = 8


class Sender:
    """What one worker needs to send the traffic of one run."""

    def __init__(self, environment: Environment, spec: RunSpec, worker: int) -> None:
        self.worker = worker
        classes: Any = environment.user_classes
        shares = [Share(c.workload, c.weight) for c in classes]
        self.traffic: Traffic = build(spec.options, shares, spec.rate_rps, spec.window_s)
        learned = spec.learned
        self.target: Target = build_target(
            spec.options, spec.host, spec.model, tuple(learned["extras"])
        )
        guard_logs(self.target.endpoint.secrets)
        self._run_id = spec.run_id
        self._ready: dict[int, ChatRequest] = {}  # of the arrival that is due next
        words = words_of(spec.options.tokenizer) if spec.options.tokenizer else WORDS
        start = learned["template_tokens"], learned["tokens_per_word"]
        # Every class writes with a salt of its own: what is shared is shared within one.
        writers = [
            PromptWriter(f"{spec.salt} {j}", Calibration(*start), words)
            for j in range(len(classes))
        ]
        self._client = Client(self.target.endpoint, Timeouts(**learned["timeouts"]))
        self._client.warm(
            WARM_CONNECTIONS
        )  # the first requests are not to pay for their handshakes
        self._users = [self._user(c, environment, w) for c, w in zip(classes, writers, strict=True)]

    def _user(
        self, user_class: type[PDUser], environment: Environment, writer: PromptWriter
    ) -> PDUser:
        user = user_class(environment)
        user.target, user.prompts = self.target, writer
        return user

    def get_ready(self, arrival: Arrival) -> None:
        """Build the request of an arrival that is due next."""
        user = self._users[self.traffic.user_of(arrival)]
        self._ready = {arrival.index: user.build_request(arrival)}

    def perform(self, arrival: Arrival, start_clock_s: float, recorder: Recorder) -> RequestRecord:
        """Send one arrival, read its stream to the end; never raises for trouble with the target.

        A killed greenlet leaves a record of what was known, marked unfinished.
        """
        user = self._users[self.traffic.user_of(arrival)]
        request = self._ready.pop(arrival.index, None) or user.build_request(arrival)
        headers = {"x-request-id": f"{self._run_id}-{arrival.index}", **request.headers}
        reading = self._client.reading(request.path, request.body, headers)
        try:
            result = reading.run()
        except gevent.GreenletExit:
            result = reading.partial()
        record = self._record(arrival, result, start_clock_s)
        recorder.add(record, result.gaps, result.evidence, arrival.shared_tokens)
        user.prompts.learn(arrival.index, record.input_tokens)
        user.on_record(record)
        return record

    def _record(
        self, arrival: Arrival, result: StreamResult, start_clock_s: float
    ) -> RequestRecord:
        def since_start(moment: float) -> float:
            return moment - start_clock_s

        measured = result if result.outcome == OK else replace(result, clock="")
        return RequestRecord(
            index=arrival.index,
            worker=self.worker,
            class_name=arrival.class_name,
            due_s=arrival.due_s,
            planned_input_tokens=arrival.input_tokens,
            planned_output_tokens=arrival.output_tokens,
            outcome=result.outcome,
            sent_s=since_start(result.sent),
            first_token_s=since_start(result.first_token),
            second_token_s=since_start(result.second_token),
            last_token_s=since_start(result.last_token),
            done_s=since_start(result.done),
            input_tokens=result.input_tokens,
            cached_tokens=result.cached_tokens,
            output_tokens=result.output_tokens,
            n_first=result.n_first,
            token_source=result.token_source,
            clock=measured.clock,
        )

    def unsent(self, arrival: Arrival) -> RequestRecord:
        """The record of an arrival that was due and never went out."""
        return self._record(arrival, StreamResult(outcome=UNSENT), 0.0)

    def client_facts(self) -> dict[str, Any]:
        """Counts that the HTTP client kept of itself."""
        return self._client.facts()

    def close(self) -> None:
        """Close every connection."""
        self._client.close()
