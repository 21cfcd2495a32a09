"""``python -m emulator``: a PD cluster on a port."""

import argparse
import asyncio
import os
import signal
import socket
import sys
from dataclasses import fields

from emulator.faults import NAMES, Faults, read_fault
from emulator.model import ADMISSIONS, ROUTINGS, Deployment, Engine
from emulator.server import Connection, Server, Settings


def _curve(text: str, names: tuple[str, ...], option: str) -> dict[str, float]:
    """``1,2,3`` in milliseconds as seconds. Raises ValueError."""
    try:
        values = [float(part) / 1000 for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != len(names) or min(values) < 0:
        raise ValueError(
            f"{option}: found {text!r}, allowed are {len(names)} numbers: {', '.join(names)}."
        )
    return dict(zip(names, values, strict=True))


def _parser() -> argparse.ArgumentParser:
    engine, deployment = Engine(), Deployment()
    p = argparse.ArgumentParser(
        prog="python -m emulator", description="A prefill/decode cluster in one process."
    )
    p.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    p.add_argument("--port", type=int, default=8000, help="port; 0 takes a free one (default 8000)")
    p.add_argument(
        "--prefill",
        type=int,
        default=deployment.prefill_instances,
        help="prefill instances (default 1)",
    )
    p.add_argument(
        "--decode",
        type=int,
        default=deployment.decode_instances,
        help="decode instances (default 2)",
    )
    p.add_argument(
        "--max-running-requests",
        type=int,
        default=64,
        help="cap of one decode instance (default 64)",
    )
    p.add_argument(
        "--routing-prefill",
        default=deployment.routing_prefill,
        help=f"{' | '.join(ROUTINGS)} (default round-robin)",
    )
    p.add_argument(
        "--routing-decode",
        default=deployment.routing_decode,
        help=f"{' | '.join(ROUTINGS)} (default round-robin)",
    )
    p.add_argument(
        "--admission",
        default=deployment.admission,
        help=f"{' | '.join(ADMISSIONS)} (default early)",
    )
    p.add_argument(
        "--chunk-tokens",
        type=int,
        default=engine.chunk_tokens,
        help="tokens of one prefill iteration (default 8192)",
    )
    p.add_argument(
        "--prefill-ms",
        default="10,0.1,0.000002",
        metavar="A,B,C",
        help="prefill iteration a + b*L + c*L^2, ms",
    )
    p.add_argument(
        "--decode-ms",
        default="8,0.15,0.00002",
        metavar="ALPHA,BETA,GAMMA",
        help="decode step alpha + beta*batch + gamma*KV tokens, ms",
    )
    p.add_argument(
        "--transfer-ms", default="4,0.002", metavar="BASE,PER_TOKEN", help="KV transfer, ms"
    )
    p.add_argument(
        "--kv-tokens",
        type=int,
        default=engine.kv_tokens,
        help="KV capacity of one decode instance, tokens (default 1000000)",
    )
    p.add_argument(
        "--template-tokens",
        type=int,
        default=8,
        help="tokens that the chat template adds (default 8)",
    )
    p.add_argument(
        "--tokens-per-chunk", type=int, default=1, help="tokens merged into one event (default 1)"
    )
    p.add_argument("--model", default="emulated", help="model id (default emulated)")
    p.add_argument(
        "--api-key-env", default="", help="variable that holds the bearer key to ask for"
    )
    p.add_argument("--base-path", default="", help="path before /v1, such as /api")
    p.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="NAME=SHARE",
        help=f"fault for a share of requests: {', '.join(NAMES)}",
    )
    p.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of routing, faults and natural lengths (default 0)",
    )
    p.add_argument("--exit-with-parent", action="store_true", help="end when standard input closes")
    return p


def _settle(options: argparse.Namespace) -> tuple[Engine, Deployment, Settings]:
    """Everything the options say, checked. Raises ValueError: one sentence."""
    deployment = Deployment().changed(
        prefill_instances=options.prefill,
        decode_instances=options.decode,
        max_running_requests=options.max_running_requests,
        routing_prefill=options.routing_prefill,
        routing_decode=options.routing_decode,
        admission=options.admission,
    )
    for name in ("chunk_tokens", "kv_tokens", "tokens_per_chunk"):
        if getattr(options, name) < 1:
            raise ValueError(
                f"--{name.replace('_', '-')}: found {getattr(options, name)}, allowed is 1 or more."
            )
    engine = Engine(
        chunk_tokens=options.chunk_tokens,
        kv_tokens=options.kv_tokens,
        **_curve(options.prefill_ms, ("prefill_a", "prefill_b", "prefill_c"), "--prefill-ms"),
        **_curve(options.decode_ms, ("decode_alpha", "decode_beta", "decode_gamma"), "--decode-ms"),
        **_curve(options.transfer_ms, ("transfer_base", "transfer_per_token"), "--transfer-ms"),
    )
    faults = Faults(tuple(read_fault(text) for text in options.fault))
    key = os.environ.get(options.api_key_env, "") if options.api_key_env else ""
    if options.api_key_env and not key:
        raise ValueError(f"--api-key-env: the variable {options.api_key_env} is not set.")
    given = {f.name for f in fields(Settings)} & set(vars(options))
    plain = {name: getattr(options, name) for name in given}
    return engine, deployment, Settings(**plain, key=key, faults=faults)


async def _serve(options: argparse.Namespace, settled: tuple[Engine, Deployment, Settings]) -> None:
    loop = asyncio.get_running_loop()
    server = Server(*settled)
    listening = await loop.create_server(
        lambda: Connection(server), options.host, options.port, backlog=4096
    )
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    if options.exit_with_parent:
        loop.add_reader(sys.stdin.fileno(), lambda: os.read(0, 4096) or ended.set())
    host, port = listening.sockets[0].getsockname()[:2]
    print(f"emulator listening on http://{host}:{port}", flush=True)
    await ended.wait()
    listening.close()


def main() -> int:
    """Run until a signal comes; 1 for a wrong option."""
    options = _parser().parse_args()
    try:
        settled = _settle(options)
        asyncio.run(_serve(options, settled))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (OSError, socket.gaierror) as error:
        print(f"error: {options.host}:{options.port}: {error.strerror or error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
