"""The command line: its options, and what they say once they are checked."""

import argparse
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite, nan
from typing import NoReturn

from emulator.faults import NAMES, read_faults
from emulator.key import read_key
from emulator.model import ADMISSIONS, ROUTINGS, Deployment, Engine
from emulator.settings import GATEWAYS, Settings


@dataclass(frozen=True, slots=True)
class Options:
    """All of it."""

    host: str
    port: int
    exit_with_parent: bool
    engine: Engine
    deployment: Deployment
    settings: Settings


class _Help(argparse.HelpFormatter):
    """Shows defaults, where there are any."""

    def _get_help_string(self, action: argparse.Action) -> str:
        none = action.default is None or action.default is False or action.default == []
        none = none or action.default == argparse.SUPPRESS
        return (action.help or "") + ("" if none else " (default %(default)s)")


class _Parser(argparse.ArgumentParser):
    """Raises ValueError where argparse would exit with 2 and its usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message.removeprefix('argument ')}.")

    def read(self, arguments: list[str]) -> argparse.Namespace:
        """All arguments; an unknown one is told with the nearest right name."""
        given, unknown = self.parse_known_args(arguments)
        if unknown:
            near = get_close_matches(unknown[0], self._option_string_actions, 1)
            hint = f"; did you mean {near[0]}?" if near else "; --help lists the options"
            raise ValueError(f"{unknown[0]}: unknown option{hint}.".replace("?.", "?"))
        return given


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        message = f"found {text!r}, allowed is a whole number"
        raise argparse.ArgumentTypeError(message) from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed is a number")
    return value


def _parser() -> _Parser:
    p = _Parser(
        prog="python -m emulator",
        description="A prefill/decode cluster in one process, behind an OpenAI-compatible API.",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    _add_server(p.add_argument_group("server"))
    _add_deployment(p.add_argument_group("deployment (GET and PUT /deployment change it)"))
    _add_engine(p.add_argument_group("engine: milliseconds and tokens"))
    return p


def _add_server(p: argparse._ArgumentGroup) -> None:
    add = p.add_argument
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=_whole, default=8000, help="port; 0 takes a free one")
    add("--model", default="emulated", help="model id")
    add("--template-tokens", type=_whole, default=8, help="tokens that the chat template adds")
    add("--tokens-per-chunk", type=_whole, default=1, help="tokens merged into one event")
    add("--seed", type=_whole, default=0, help="of routing, faults, jitter and natural lengths")
    add("--api-key-env", metavar="VAR", help="variable that holds the bearer key to ask for")
    add("--api-key-file", metavar="FILE", help="file that holds it (readable by its owner only)")
    add("--key-expires", type=_number, metavar="SECONDS", help="after that every key is expired")
    add("--gateway", help=f"play a gateway in front: {', '.join(GATEWAYS)} (path base /api)")
    add("--base-path", help="path in front of /v1, such as /api")
    fault = f"fault for a share of the requests, may be repeated: {', '.join(NAMES)}"
    add("--fault", action="append", default=[], metavar="NAME=SHARE", help=fault)
    add("--exit-with-parent", action="store_true", help="end when standard input closes")


def _add_deployment(p: argparse._ArgumentGroup) -> None:
    add, d = p.add_argument, Deployment()
    add("--prefill", type=_whole, default=d.prefill_instances, help="prefill instances")
    add("--decode", type=_whole, default=d.decode_instances, help="decode instances")
    cap = "requests in the batch of one decode instance, at most"
    add("--max-running-requests", type=_whole, default=d.max_running_requests, help=cap)
    add("--routing-prefill", default=d.routing_prefill, help=" | ".join(ROUTINGS))
    add("--routing-decode", default=d.routing_decode, help=" | ".join(ROUTINGS))
    admission = f"{' | '.join(ADMISSIONS)}: a decode slot is taken before or after prefill"
    add("--admission", default=d.admission, help=admission)


def _add_engine(p: argparse._ArgumentGroup) -> None:
    add, e = p.add_argument, Engine()
    add(
        "--prefill-ms",
        default="10,0.1,0.000002",
        metavar="A,B,C",
        help="prefill of L uncached tokens takes A + B*L + C*L^2 ms",
    )
    add(
        "--decode-ms",
        default="8,0.15,0.00002",
        metavar="ALPHA,BETA,GAMMA",
        help="a decode step takes ALPHA + BETA*batch + GAMMA*KV tokens ms",
    )
    add(
        "--transfer-ms",
        default="4,0.002",
        metavar="BASE,PER_TOKEN",
        help="KV transfer of L prompt tokens takes BASE + PER_TOKEN*L ms",
    )
    add("--chunk-tokens", type=_whole, default=e.chunk_tokens, help="tokens of a prefill iteration")
    kv = "KV memory of a decode instance, tokens"
    add("--kv-tokens", type=_whole, default=e.kv_tokens, help=kv)
    reserve = "output tokens kept free per request at admission; with it a batch can outgrow the KV"
    reserve += " memory, and requests are retracted (none: the whole output is kept free)"
    add("--kv-reserve", type=_whole, default=None, metavar="TOKENS", help=reserve)
    cache = "prefix cache of a prefill instance, tokens; 0 turns it off"
    add("--cache-tokens", type=_whole, default=e.cache_tokens, help=cache)
    add(
        "--block-tokens",
        type=_whole,
        default=e.block_tokens,
        help="tokens of a block of that cache",
    )
    jitter = "standard deviation of the time of iterations and steps, as a share: 0.1 is 10 %%"
    add("--step-jitter", type=_number, default=0.0, metavar="SHARE", help=jitter)


def read_options(arguments: list[str]) -> Options:
    """All options, checked. Raises ValueError: one sentence."""
    given = _parser().read(arguments)
    _check_least(given)
    return Options(
        host=given.host,
        port=given.port,
        exit_with_parent=given.exit_with_parent,
        engine=_engine(given),
        deployment=_deployment(given),
        settings=_settings(given),
    )


LEAST = {
    "chunk_tokens": 1,
    "kv_tokens": 1,
    "kv_reserve": 0,
    "block_tokens": 1,
    "cache_tokens": 0,
    "tokens_per_chunk": 1,
    "template_tokens": 0,
    "step_jitter": 0,
    "key_expires": 0,
    "port": 0,
}


def _check_least(given: argparse.Namespace) -> None:
    for name, least in LEAST.items():
        value = getattr(given, name)
        if value is not None and value < least:
            option = name.replace("_", "-")
            raise ValueError(f"--{option}: found {value}, allowed is {least} or more.")
    if given.port > 65535:
        raise ValueError(f"--port: found {given.port}, allowed is 0 to 65535.")
    if given.step_jitter > 0.3:
        raise ValueError(f"--step-jitter: found {given.step_jitter}, allowed is 0 to 0.3.")


def _seconds(text: str, count: int, option: str) -> list[float]:
    """``1,2,3`` in milliseconds as seconds. Raises ValueError."""
    try:
        values = [float(part) / 1000 for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count or not all(0 <= v < 1e6 for v in values):
        wanted = f"{count} numbers of milliseconds, 0 or more, with commas between them"
        raise ValueError(f"{option}: found {text!r}, allowed are {wanted}.")
    if not values[0]:
        raise ValueError(f"{option}: found {text!r}, the first number must be over 0.")
    return values


def _engine(given: argparse.Namespace) -> Engine:
    prefill = _seconds(given.prefill_ms, 3, "--prefill-ms")
    decode = _seconds(given.decode_ms, 3, "--decode-ms")
    transfer = _seconds(given.transfer_ms, 2, "--transfer-ms")
    return Engine(
        prefill_a=prefill[0],
        prefill_b=prefill[1],
        prefill_c=prefill[2],
        decode_alpha=decode[0],
        decode_beta=decode[1],
        decode_gamma=decode[2],
        transfer_base=transfer[0],
        transfer_per_token=transfer[1],
        chunk_tokens=given.chunk_tokens,
        kv_tokens=given.kv_tokens,
        kv_reserve=given.kv_reserve,
        cache_tokens=given.cache_tokens,
        block_tokens=given.block_tokens,
        jitter=given.step_jitter,
    )


def _deployment(given: argparse.Namespace) -> Deployment:
    keys = {
        "prefill_instances": given.prefill,
        "decode_instances": given.decode,
        "max_running_requests": given.max_running_requests,
        "routing_prefill": given.routing_prefill,
        "routing_decode": given.routing_decode,
        "admission": given.admission,
    }
    options = {"prefill_instances": "--prefill", "decode_instances": "--decode"}
    try:
        return Deployment().changed(**keys)
    except ValueError as error:
        name, _, rest = str(error).partition(":")
        option = options.get(name, f"--{name.replace('_', '-')}")
        raise ValueError(f"{option}:{rest}") from None


def _settings(given: argparse.Namespace) -> Settings:
    if given.gateway and given.gateway not in GATEWAYS:
        raise ValueError(f"--gateway: found {given.gateway!r}, allowed are {', '.join(GATEWAYS)}.")
    base = given.base_path if given.base_path is not None else "/api" if given.gateway else ""
    if base and (not base.startswith("/") or base.endswith("/")):
        raise ValueError(f"--base-path: found {base!r}, allowed is a path such as /api.")
    return Settings(
        model=given.model,
        template_tokens=given.template_tokens,
        tokens_per_chunk=given.tokens_per_chunk,
        seed=given.seed,
        key=read_key(given.api_key_env, given.api_key_file),
        key_expires_s=given.key_expires,
        faults=read_faults(given.fault),
        gateway=given.gateway or "",
        base_path=base,
    )
