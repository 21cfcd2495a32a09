"""Every option of a run: declared once for Locust, read once into a frozen ``RunOptions``.

Each is a string with '' for "not given" (the web form hands back '' for a blank field and would
answer a blank number with HTTP 500), so that the command line, ``LOCUST_*`` variables, config
files and the web form all end in the one reading below.
"""

from locust.argument_parser import LocustArgumentParser

import argparse
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from workloads.errors import ConfigError

DEFAULT_WORKLOAD = "azure_conv_2023"
DEFAULT_WINDOW_S = 300.0
DEFAULT_SLO_MS = (500.0, 50.0)  # TTFT, TPOT: those of the plan template


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user asked for; None = not asked, so the plan or the workload may say."""

    workload: str | None = None
    trace: str | None = None
    trace_speed: float = 1.0
    trace_limit: int | None = None
    trace_format: str | None = None
    trace_jitter_s: float | None = None
    skip_bad_rows: bool = False
    rate_rps: float | None = None
    warmup_s: float | None = None
    seed: int = 1
    plan: str | None = None
    ttft_p99_ms: float | None = None
    tpot_p99_ms: float | None = None
    model: str | None = None
    prompts: str = "text"
    tokenizer: str | None = None
    target: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    run_dir: str = "runs"
    drain_timeout_s: float = 60.0
    confidence: str = "likely"
    prefill_metrics_url: tuple[str, ...] = ()
    decode_metrics_url: tuple[str, ...] = ()
    warm: bool = False
    preflight: bool = True
    wait_s: float = 0.0
    keep_going: bool = False
    emulator_args: str = ""


# name: what its help says, in one line of the README's table
OPTIONS = {
    "workload": "traffic profile: a name (python -m workloads list), a YAML file, or a scenario "
    "such as 'N(480,240)/(300,150)'. "
    f"Default {DEFAULT_WORKLOAD}",
    "trace": "trace file (.gz too; docs/workloads.md names the formats) to replay at its own moments, "
    "instead of a workload",
    "trace-format": "format of the trace, where its content misleads (docs/workloads.md). "
    "Default: found from its content",
    "trace-jitter": "seconds to spread each row of the trace over. Default: the ticks of a clock that "
    "is coarser than its traffic",
    "trace-speed": "replay the trace this many times faster. Default 1",
    "trace-limit": "replay only the first N rows of the trace",
    "rate": "requests per second, over all workers. Default: the plan's target_qps, "
    "else the workload's",
    "warmup": "seconds at the start of the sending window that are sent but not measured. "
    "Default: found from the data",
    "seed": "seed of moments, lengths and sharing; the same for any number of workers. Default 1",
    "plan": "plan JSON: SLOs, engine figures, deployment",
    "ttft-p99-ms": "SLO of the 99th percentile of time to first token, ms. "
    "Default: plan, workload, else 500",
    "tpot-p99-ms": "SLO of the 99th percentile of time per output token, ms. "
    "Default: plan, workload, else 50",
    "prompts": "text, or ids: token ids to /v1/completions, where the server takes them (exact "
    "lengths). Default text",
    "tokenizer": "tokenizer.json of the model: prompts are made of words that are one token in it",
    "model": "model id. Default: the only one that /v1/models lists",
    "target": "channel: taotoken, openai, sglang, vllm, dynamo, or a YAML file",
    "api-key-env": "name of the environment variable that holds the API key (never the key)",
    "api-key-file": "file that holds the API key, readable by its owner only",
    "run-dir": "folder for run.json, records.csv.gz and report.html. Default runs",
    "drain-timeout": "seconds to wait at the end for requests in flight (5 on SIGTERM). Default 60",
    "confidence": "how sure a verdict must be: likely or confirmed. Default likely",
    "wait": "seconds to wait for a server that is still loading. Default 0",
    "emulator-args": "options of the embedded emulator (without -H), "
    "such as '--prefill 1 --decode 2'",
}
LISTS = {
    "prefill-metrics-url": "/metrics of a prefill instance; may be given several times",
    "decode-metrics-url": "/metrics of a decode instance; may be given several times",
}
FLAGS = {
    "warm": "leave the per-run salt out of the prompts, so that the prefix cache of an earlier run "
    "serves them",
    "skip-bad-rows": "leave broken rows of a trace out, counted by reason, instead of refusing it",
    "no-preflight": "skip the checks before the load",
    "keep-going": "do not stop when the first 20 requests all fail in the same way, "
    "or the key expires",
}


def declare(parser: LocustArgumentParser) -> None:
    """Add every option to Locust's parser (on it itself: groups are hidden from the web form)."""

    def add(name: str, text: str, **how: Any) -> None:
        env_var = f"LOCUST_{dest(name).upper()}"
        parser.add_argument(f"--{name}", dest=dest(name), env_var=env_var, help=text, **how)

    for name, text in OPTIONS.items():
        add(name, text, default="", metavar="X")
    for name, text in LISTS.items():
        add(name, text, default=[], metavar="URL", action="append")
    for name, text in FLAGS.items():
        add(name, text, default=False, action="store_true")


def dest(name: str) -> str:
    """The attribute that an option is parsed into."""
    return name.replace("-", "_")


def read(given: Mapping[str, Any] | argparse.Namespace) -> RunOptions:
    """The options as given, checked. Raises ConfigError: one sentence that names the option."""
    values = given if isinstance(given, Mapping) else vars(given)

    def text(name: str) -> str | None:
        return str(values.get(dest(name)) or "").strip() or None

    def urls(name: str) -> tuple[str, ...]:
        return tuple(u.strip() for u in values.get(dest(name)) or () if u.strip())

    return RunOptions(
        workload=text("workload"),
        trace=text("trace"),
        trace_speed=_positive(text("trace-speed"), "trace-speed") or 1.0,
        trace_format=text("trace-format"),
        trace_jitter_s=_seconds(text("trace-jitter"), "trace-jitter"),
        skip_bad_rows=bool(values.get("skip_bad_rows")),
        trace_limit=_whole(text("trace-limit"), "trace-limit", low=1),
        rate_rps=_positive(text("rate"), "rate"),
        warmup_s=_seconds(text("warmup"), "warmup"),
        seed=int(_or(_whole(text("seed"), "seed", low=0), 1)),
        plan=text("plan"),
        ttft_p99_ms=_positive(text("ttft-p99-ms"), "ttft-p99-ms"),
        tpot_p99_ms=_positive(text("tpot-p99-ms"), "tpot-p99-ms"),
        model=text("model"),
        prompts=_choice(text("prompts") or "text", "prompts", ("text", "ids")),
        tokenizer=text("tokenizer"),
        target=text("target"),
        api_key_env=text("api-key-env"),
        api_key_file=text("api-key-file"),
        run_dir=text("run-dir") or "runs",
        drain_timeout_s=_or(_seconds(text("drain-timeout"), "drain-timeout"), 60.0),
        confidence=_choice(text("confidence") or "likely", "confidence", ("likely", "confirmed")),
        prefill_metrics_url=urls("prefill-metrics-url"),
        decode_metrics_url=urls("decode-metrics-url"),
        warm=bool(values.get("warm")),
        preflight=not values.get("no_preflight"),
        wait_s=_or(_seconds(text("wait"), "wait"), 0.0),
        keep_going=bool(values.get("keep_going")),
        emulator_args=text("emulator-args") or "",
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _positive(value: str | None, name: str) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ConfigError(f"--{name}: found {value!r}, allowed is a number more than 0.")
    return number


def _whole(value: str | None, name: str, *, low: int) -> int | None:
    if value is None:
        return None
    if not re.fullmatch(r"\d{1,18}", value) or int(value) < low:
        raise ConfigError(f"--{name}: found {value!r}, allowed is a whole number from {low} up.")
    return int(value)


def _seconds(value: str | None, name: str) -> float | None:
    """'30', '30s' or '2m' as seconds, as Locust's own -t reads them."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", value)
    if not found:
        raise ConfigError(f"--{name}: found {value!r}, allowed are seconds such as 30, 30s or 2m.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def _choice(value: str, name: str, allowed: tuple[str, ...]) -> str:
    if value in allowed:
        return value
    near = get_close_matches(value, allowed, 1)
    hint = f"; did you mean {near[0]!r}" if near else ""
    raise ConfigError(f"--{name}: found {value!r}, allowed are {', '.join(allowed)}{hint}.")
