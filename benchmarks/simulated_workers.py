"""Many workers in one process that speak the real protocol and send nothing to any target.

``python -m benchmarks.simulated_workers PORT FIRST COUNT RATE`` plays COUNT workers with RATE finished
requests per second each, until the master says quit; prints the bytes they sent, by kind of message.
"""

from locust import __version__
from locust.rpc import zmqrpc
from locust.rpc.protocol import Message
from locust.stats import RequestStats

import json
import sys
import time
from collections import Counter
from typing import Any

import gevent
import numpy as np

from pd_users import VERSION, wire
from pd_users.itl import count_gaps
from pd_users.records import RequestRecord
from pd_users.worker import REPORT_S, machine_id

HEARTBEAT_S, STATS_S = 1.0, 3.0  # Locust's own
NAME = "azure_conv_2023"
sent: Counter[str] = Counter()
count: Counter[str] = Counter()


# Drawn once: what is under test is the master, and it shares its cores with us.
DRAWN = np.random.default_rng(1).lognormal((-2.0, 0.8, -7.0), 0.5, (997, 3)).tolist()


class SimulatedWorker:
    """One worker: greets, takes a run, reports rows that look like real ones."""

    def __init__(self, port: int, number: int, rate_rps: float) -> None:
        self.name = f"simulated-{number}"
        self._rng = np.random.default_rng(number)
        self._rate_rps = rate_rps
        self._client = zmqrpc.Client("127.0.0.1", port, self.name)
        self._run: dict[str, Any] | None = None
        self._start_clock_s = self._reported_s = 0.0
        self._next = 0
        self._state, self._users = "ready", {"PDTraffic": 0}
        self._on = True
        gaps: Counter[int] = Counter()
        count_gaps(self._rng.lognormal(np.log(0.01), 0.1, int(rate_rps * 200)).tolist(), gaps)
        self._gaps = list(gaps.items())
        self._loops = [gevent.spawn(f) for f in (self._listen, self._beat, self._stats, self._rows)]
        self._send("client_ready", __version__)
        self._send("pd_hello", {"version": VERSION, "machine": machine_id()})

    def wait(self) -> None:
        """Until the master said quit."""
        gevent.joinall(self._loops)

    def _send(self, kind: str, data: Any) -> None:
        message = Message(kind, data, self.name)
        sent[kind] += len(message.serialize())
        count[kind] += 1
        self._client.send(message)

    def _listen(self) -> None:
        while self._on:
            message = self._client.recv()
            if (answer := getattr(self, f"_on_{message.type}", None)) is not None:
                answer(message.data)

    def _on_pd_sync(self, data: dict[str, Any]) -> None:
        self._send("pd_synced", {**data, "worker_clock_s": time.monotonic()})

    def _on_pd_begin(self, data: dict[str, Any]) -> None:
        self._run = {"run_id": data["spec"]["run_id"]}
        self._next, self._step = data["deal"]["place"], data["deal"]["places"]
        self._send("pd_begun", self._run)

    def _on_pd_start(self, data: dict[str, Any]) -> None:
        self._start_clock_s = self._reported_s = data["start_clock_s"]

    def _on_spawn(self, data: dict[str, Any]) -> None:
        self._users = data["user_classes_count"]
        self._state = "running"
        self._send("spawning", None)
        n = sum(self._users.values())
        told = {"user_classes_count": self._users, "user_count": n}
        self._send("spawning_complete", told)

    def _on_pd_drain(self, _data: dict[str, Any]) -> None:
        self._report()
        health = {"cpu_percent": 1.0, "loop_lag_p99_ms": 1.0}
        self._send("pd_drained", {**(self._run or {}), "health": health})
        self._start_clock_s = 0.0

    def _on_stop(self, _data: Any) -> None:
        self._send("client_stopped", None)
        self._send("client_ready", __version__)

    def _on_quit(self, _data: Any) -> None:
        self._on = False

    def _beat(self) -> None:
        while self._on:
            told = {"state": self._state, "current_cpu_usage": 50.0, "current_memory_usage": 10**8}
            self._send("heartbeat", told)
            gevent.sleep(HEARTBEAT_S)

    def _stats(self) -> None:
        """Locust's own tables, as full as a real worker's."""
        gevent.sleep(self._rng.uniform(0, STATS_S))
        table = self._table()
        while self._on:
            if self._start_clock_s:
                self._send("stats", {**table, "user_classes_count": self._users})
            gevent.sleep(STATS_S)

    def _table(self) -> dict[str, Any]:
        n = int(self._rate_rps * STATS_S)
        stats = RequestStats()
        for kind, mean_ms in (("POST", 2200), ("TTFT", 140), ("TPOT", 10), ("ITL", 10)):
            for value in self._rng.lognormal(np.log(mean_ms), 0.3, n // 4).tolist():
                stats.log_request(kind, NAME, value, 100)
        report = {"stats": stats.serialize_stats(), "errors": {}, "user_count": 0}
        report["stats_total"] = stats.total.get_stripped_report()
        return report

    def _rows(self) -> None:
        gevent.sleep(self._rng.uniform(0, REPORT_S))
        while self._on:
            gevent.sleep(REPORT_S)
            if self._start_clock_s and time.monotonic() > self._reported_s:
                self._report()

    def _report(self) -> None:
        now = time.monotonic()
        n = int((now - self._reported_s) * self._rate_rps)
        if n <= 0 or self._run is None:
            return
        start_s = self._reported_s - self._start_clock_s
        self._reported_s += n / self._rate_rps
        rows = [self._row(start_s + k / self._rate_rps) for k in range(n)]
        told = {"in_flight": n, "rows": wire.pack(rows), "gaps": self._gaps}
        self._send("pd_records", {**self._run, **told})
        sent["requests"] += n

    def _row(self, due_s: float) -> RequestRecord:
        wait_s, span_s, last_s = DRAWN[self._rng.integers(len(DRAWN))]
        sent_s, first_s = due_s + last_s, due_s + wait_s + 0.001
        planned = int(span_s * 100) + 2
        index, self._next = self._next, self._next + self._step
        return RequestRecord(
            index=index,
            worker=index % self._step,
            class_name=NAME,
            due_s=due_s,
            sent_s=sent_s,
            first_token_s=first_s,
            second_token_s=first_s + 0.01,
            last_token_s=first_s + span_s,
            done_s=first_s + span_s + 1e-4,
            planned_input_tokens=int(wait_s * 10_000),
            planned_output_tokens=planned,
            input_tokens=int(wait_s * 10_000),
            cached_tokens=0,
            output_tokens=planned,
            n_first=1,
            token_source="usage",
            clock="python",
            outcome="ok",
        )


def main() -> None:
    """Play them all until they are told to quit."""
    port, first, number, rate = (int(word) for word in sys.argv[1:])
    workers = [SimulatedWorker(port, first + k, rate) for k in range(number)]
    for worker in workers:
        worker.wait()
    print(json.dumps({"sent": sent, "count": count}))


if __name__ == "__main__":
    main()
