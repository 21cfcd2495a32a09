"""A real headless Locust run of nothing but streams, for the bench.

``locust -f benchmarks/locust_streams.py --headless -u 200 -r 200 -t 8s --host URL`` prints one line
of JSON at its end. Every stream goes through the full decoder into a record, Locust's rows and the
histogram of gaps, as in a load test.
"""

from locust import User, events, task

import json
import os
import random
import sys
import time
from typing import Any

import gevent

from benchmarks.load import figures
from benchmarks.variants import CHAT, PATIENT, Seen
from pd_users.client import Client
from pd_users.endpoint import parse_base_url
from pd_users.loop_lag import LoopLag
from pd_users.metrics import Recorder
from pd_users.records import RequestRecord
from pd_users.stream import StreamResult

TOKENS = int(os.environ.get("BENCH_TOKENS", "500"))
BODY = json.dumps(
    {
        "model": "truth",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": TOKENS,
    }
).encode()


class Run:
    """What all users share."""

    client: Client
    recorder: Recorder
    began: tuple[float, float]
    seen: list[Seen]


@events.test_start.add_listener
def on_start(environment: Any, **_kw: Any) -> None:
    """Before the first user."""
    Run.client = Client(parse_base_url(environment.host), PATIENT)
    Run.client.warm(environment.parsed_options.num_users)
    Run.recorder = Recorder(environment)
    Run.seen = []
    LoopLag.shared().reset()
    Run.began = time.monotonic(), time.process_time()


class Streams(User):
    """One stream after another."""

    def on_start(self) -> None:
        """Spread the starts, so that the streams do not tick together."""
        gevent.sleep(random.random())

    @task
    def stream(self) -> None:
        """One request, from the bytes to the record."""
        ident = f"{id(self)}-{len(Run.seen)}"
        result = Run.client.stream(CHAT, BODY, {"X-Request-Id": ident})
        Run.recorder.add(record(result), result.gaps, result.evidence)
        moments = result.sent, result.first_token, result.last_token
        Run.seen.append(Seen(ident, *moments, result.token_events, result.clock))


def record(result: StreamResult) -> RequestRecord:
    """The row of a load test, with the start of the run as zero."""
    start = Run.began[0]
    return RequestRecord(
        index=len(Run.seen),
        worker=0,
        class_name="stream",
        due_s=result.sent - start,
        planned_input_tokens=32,
        planned_output_tokens=TOKENS,
        outcome=result.outcome,
        sent_s=result.sent - start,
        first_token_s=result.first_token - start,
        second_token_s=result.second_token - start,
        last_token_s=result.last_token - start,
        done_s=result.done - start,
        input_tokens=result.input_tokens,
        cached_tokens=result.cached_tokens,
        output_tokens=result.output_tokens,
        n_first=result.n_first,
        token_source=result.token_source,
        clock=result.clock,
    )


@events.quitting.add_listener
def on_quitting(environment: Any, **_kw: Any) -> None:
    """Say what was measured."""
    wall_s, cpu_s = time.monotonic() - Run.began[0], time.process_time() - Run.began[1]
    lag_p99_ms = LoopLag.shared().quantile_s(0.99) * 1000
    out = {**figures(Run.seen, environment.host, wall_s, cpu_s), "loop_lag_p99_ms": lag_p99_ms}
    sys.stdout.write(json.dumps(out) + "\n")
