"""``--scenario``: measures the engine instead of running the workload. One process, no workers.

It writes records.csv.gz and engine.json (with --plan also plan.json, the plan with the figures
filled in) into the run's folder.
"""

from locust.env import Environment
from locust.runners import LocalRunner

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
from rich.console import Console
from rich.table import Table

from pd_users.channel import find_channel
from pd_users.embedded import EmbeddedEmulator
from pd_users.errors import TargetError
from pd_users.prepare import Ask, Prepared, prepare
from pd_users.scenario_load import FailingError, Load
from pd_users.scenario_probe import LIMIT_S as PROBE_S
from pd_users.scenario_probe import prefill_figures, prefill_probe
from pd_users.scenario_progress import Show
from pd_users.scenario_setting import Setting, setting_of
from pd_users.scenario_sweep import LIMIT_S as SWEEP_S
from pd_users.scenario_sweep import decode_figures, decode_sweep
from planner.config import dump_plan
from planner.engine_profile import EngineProfile, dump_profile, into_plan
from planner.errors import PlanError
from planner.imports_command import figures
from planner.records import Records, write_records
from workloads.errors import ConfigError

SAMPLED_RPS, SAMPLED_S = "10", 200.0  # so many arrivals of the workload tell its lengths
TARGET_ERRORS = 22  # the exit code of the verdict of that name


@dataclass(frozen=True, slots=True)
class _Scenario:
    limit_s: float
    send: Callable[[Load, Setting, Show], None]
    figures: Callable[[Records, Setting, str], EngineProfile]


_SCENARIOS = {
    "prefill-probe": _Scenario(PROBE_S, prefill_probe, prefill_figures),
    "decode-sweep": _Scenario(SWEEP_S, decode_sweep, decode_figures),
}


def run_scenario(environment: Environment) -> int:
    """From the options to the files; the exit code: 0, 1 (settings, cut short) or 22 (target)."""
    emulators: list[EmbeddedEmulator] = []
    try:
        return _run(environment, emulators)
    except FailingError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return TARGET_ERRORS
    except (ConfigError, PlanError, TargetError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    finally:
        for emulator in emulators:
            emulator.stop()


def _run(environment: Environment, emulators: list[EmbeddedEmulator]) -> int:
    if not isinstance(environment.runner, LocalRunner):
        raise ConfigError(
            "--scenario: it runs in one process, so leave --master, --worker and --processes out."
        )
    options: Any = environment.parsed_options
    host, embedded = _host(environment, emulators)
    if not options.trace:
        options.rate = SAMPLED_RPS
    run_time_s = None if options.trace else SAMPLED_S
    classes: Any = environment.user_classes
    prepared = prepare(options, classes, Ask(host, embedded, run_time_s, None))
    name = prepared.spec.options.scenario
    assert name is not None
    setting, said = setting_of(prepared, options.num_users)
    scenario = _SCENARIOS[name]
    show = Show()
    for line in [*prepared.notes, *said]:
        show.say(line)
    load = Load(environment, prepared, float(options.run_time or scenario.limit_s))
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, load.stopped.set)
    failed: FailingError | None = None
    try:
        scenario.send(load, setting, show)
    except FailingError as error:
        failed = error
    finally:
        show.close()
        load.close()
    return _conclude(load, prepared, setting, failed)


def _host(environment: Environment, emulators: list[EmbeddedEmulator]) -> tuple[str, bool]:
    options: Any = environment.parsed_options
    channel = find_channel(options.target).base_url if options.target else ""
    if given := environment.host or channel:
        return given, False
    emulators.append(EmbeddedEmulator(options.emulator_args or ""))
    environment.host = emulators[0].url
    return emulators[0].url, True


# -- the end -----------------------------------------------------------------------------------------


def _conclude(load: Load, prepared: Prepared, setting: Setting, failed: FailingError | None) -> int:
    """Files first, whatever happened; then the table."""
    name = prepared.spec.options.scenario or ""
    folder = Path(prepared.spec.options.run_dir) / prepared.spec.run_id
    records = load.records()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_records(folder / "records.csv.gz", records)
        if failed is not None:
            raise failed
        source = _source(name, prepared, partial=load.stopped.is_set())
        profile = _SCENARIOS[name].figures(records, setting, source)
        (folder / "engine.json").write_text(dump_profile(profile), encoding="utf-8")
        said = _fill_plan(folder, prepared, profile)
    except OSError as error:
        raise ConfigError(f"--run-dir: {folder} cannot be written: {error.strerror}.") from None
    out = Console(soft_wrap=not sys.stdout.isatty())
    out.print(table(profile))
    for line in [*figures(profile), *said, f"Files: {folder}/"]:
        out.print(line, markup=False, highlight=False)
    return 1 if load.stopped.is_set() else 0


def _source(name: str, prepared: Prepared, partial: bool) -> str:
    marks = [m for m, on in (("emulated", prepared.emulated), ("cut short", partial)) if on]
    return f"{name} {prepared.spec.run_id}" + (f" ({', '.join(marks)})" if marks else "")


def _fill_plan(folder: Path, prepared: Prepared, profile: EngineProfile) -> list[str]:
    if prepared.plan is None:
        return []
    plan, said = into_plan(prepared.plan, [profile])
    (folder / "plan.json").write_text(dump_plan(plan), encoding="utf-8")
    return said


def table(profile: EngineProfile) -> Table:
    """What was measured, a row a point."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    if (prefill := profile.prefill) is not None:
        for column in ("prompt tokens", "TTFT ms", "S(L) + overhead ms"):
            shown.add_column(column, justify="right")
        for tokens, ms in prefill.points:
            fitted = prefill.service_ms(tokens) + (prefill.overhead_ms or 0.0)
            shown.add_row(f"{tokens:.0f}", f"{ms:.1f}", f"{fitted:.1f}")
    if (decode := profile.decode) is not None:
        for column in ("batch of one D", "TPOT ms", "P99 ms", "tokens/s", "answers"):
            shown.add_column(column, justify="right")
        for p in decode.points:
            rate = 1000 * p.batch / p.tpot_ms
            cells = (p.batch, p.tpot_ms, p.tpot_p99_ms or 0.0, rate)
            shown.add_row(*(f"{c:.2f}" for c in cells), str(p.samples))
    return shown
