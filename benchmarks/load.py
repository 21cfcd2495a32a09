"""One client under load: ``python -m benchmarks.load VARIANT URL ...`` prints what it measured.

A closed loop of streams against the truth server (truthserver.c), each starting at a random moment.
The client says when it sent and when tokens came; the server's log says when that really was.
"""

import argparse
import csv
import json
import random
import resource
import time
from math import nan
from typing import Any

import gevent
import numpy as np
import orjson

from benchmarks.variants import PATIENT, VARIANTS, Seen  # first: it imports locust, which patches
from pd_users.client import Client
from pd_users.endpoint import parse_base_url
from pd_users.loop_lag import LoopLag


def burn(burn_s: float, period_s: float) -> None:
    """What a careless greenlet does to the loop."""
    while True:
        gevent.sleep(period_s)
        until = time.perf_counter() + burn_s
        while time.perf_counter() < until:
            pass


def truth_of(url: str) -> dict[str, dict[str, int]]:
    """The server's log, by request."""
    client = Client(parse_base_url(url, verify=False), PATIENT)
    rows = csv.DictReader(client.request("GET", "/truth").body.decode().splitlines())
    truth = {row.pop("id"): {name: int(value) for name, value in row.items()} for row in rows}
    client.close()
    return truth


def errors_ms(seen: list[Seen], truth: dict[str, dict[str, int]]) -> dict[str, Any]:
    """TTFT and TPOT of the client minus those of the server, in milliseconds."""
    ttft, tpot, flagged, reported = [], [], [], []
    for one in seen:
        row = truth[one.ident]
        ttft.append(one.first - one.sent - (row["first_ns"] - row["received_ns"]) / 1e9)
        reported.append(one.first - one.sent)
        flagged.append(one.clock == "coalesced")
        if one.chunks > 1:
            true_gap = (row["last_ns"] - row["first_ns"]) / 1e9 / (row["chunks"] - 1)
            tpot.append((one.last - one.first) / (one.chunks - 1) - true_gap)
    error, gap_error = np.abs(ttft) * 1000, np.abs(tpot) * 1000
    kept = error[~np.array(flagged)]
    return {
        "ttft_err_p50_ms": float(np.percentile(error, 50)),
        "ttft_err_p99_ms": float(np.percentile(error, 99)),
        "tpot_err_p99_ms": float(np.percentile(gap_error, 99)),
        "ttft_p99_ms": float(np.percentile(reported, 99)) * 1000,
        "flagged": int(sum(flagged)),
        "unflagged_err_p99_ms": float(np.percentile(kept, 99)) if len(kept) else nan,
        "unflagged_err_max_ms": float(kept.max()) if len(kept) else nan,
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Drive the streams, then ask the server what was true."""
    body = orjson.dumps(
        {
            "model": "truth",
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": options.tokens,
            "messages": [{"role": "user", "content": "x" * 100}],
        }
    )
    perform = VARIANTS[options.variant](options.url, body, options.streams)
    lag = LoopLag.shared()
    seen: list[Seen] = []

    def stream(i: int) -> None:
        rng = random.Random(i)
        gevent.sleep(0 if options.at_once else rng.random() * options.spread_s)
        for k in range(options.requests):
            seen.append(perform(f"{i}-{k}"))
            if options.think_s:
                gevent.sleep(rng.random() * options.think_s)

    if options.burn_ms:
        gevent.spawn(burn, options.burn_ms / 1000, options.burn_every_ms / 1000)
    lag.reset()
    began, cpu = time.monotonic(), time.process_time()
    gevent.joinall([gevent.spawn(stream, i) for i in range(options.streams)], raise_error=True)
    cpu, wall = time.process_time() - cpu, time.monotonic() - began
    lag_p99_ms = lag.quantile_s(0.99) * 1000
    return {**figures(seen, options.url, wall, cpu), "loop_lag_p99_ms": lag_p99_ms}


def figures(seen: list[Seen], url: str, wall_s: float, cpu_s: float) -> dict[str, Any]:
    """What a run is reported by."""
    chunks = sum(one.chunks for one in seen)
    return {
        "chunks": chunks,
        "chunks_per_s": busiest_rate(seen),
        "cpu_s": cpu_s,
        "cpu_share": cpu_s / wall_s,
        "us_per_chunk": cpu_s / chunks * 1e6,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **errors_ms(seen, truth_of(url)),
    }


def busiest_rate(seen: list[Seen]) -> float:
    """Chunks per second in the middle half of the run, where all streams are at work."""
    begin, end = min(one.first for one in seen), max(one.last for one in seen)
    low, high = begin + (end - begin) / 4, end - (end - begin) / 4
    inside = 0.0
    for one in seen:
        span = max(one.last - one.first, 1e-9)
        inside += one.chunks * max(0.0, min(one.last, high) - max(one.first, low)) / span
    return inside / (high - low)


def main() -> None:
    """Parse, run, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--requests", type=int, default=4, help="per stream")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--spread-s", type=float, default=1.0, help="starts are spread over this")
    parser.add_argument("--think-s", type=float, default=0.0, help="longest pause between two")
    parser.add_argument("--at-once", action="store_true", help="all streams start together")
    parser.add_argument("--burn-ms", type=float, default=0.0)
    parser.add_argument("--burn-every-ms", type=float, default=100.0)
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
