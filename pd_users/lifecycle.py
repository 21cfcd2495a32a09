"""From Locust's events to one run: prepare, start, stop, conclude. In the leading process.

The leading process is the master, or the only one of a local run. Locust's own ``-t`` timer is
taken over, a signal first drains, and whichever of Locust's ways of ending comes first concludes
the run (docs/decisions.md says why).
"""

from locust.env import Environment

import contextlib
import logging
import sys
from typing import Any

import gevent

from pd_users.channel import find_channel
from pd_users.conclude import Conclusion, conclude
from pd_users.conductor import Conductor
from pd_users.embedded import EmbeddedEmulator
from pd_users.errors import TargetError
from pd_users.extension import extend
from pd_users.prepare import Ask, Prepared, prepare, usual_slots
from pd_users.progress import Progress
from pd_users.run import Run
from planner.errors import PlanError
from workloads.errors import ConfigError

SIGTERM_DRAIN_S = 5.0
AVOIDABLE = (ConfigError, PlanError, TargetError)  # each ends in one sentence, never a traceback

SPAWN_RPS = 100  # idle users a second and worker: as fast as Locust starts them without a warning

log = logging.getLogger(__name__)


class Lifecycle:
    """The runs of one leading process: one after the other, each from a clean start."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        options: Any = environment.parsed_options
        self.options = options
        self._runner: Any = environment.runner
        self.conductor = Conductor(environment)
        self.conclusion: Conclusion | None = None
        self._prepared: Prepared | None = None
        self._run_time_s: float | None = options.run_time
        self._users_given: int | None = options.num_users
        self._drain_s: float | None = None
        self._timer: gevent.Greenlet | None = None
        self._progress: Progress | None = None
        self._emulator: EmbeddedEmulator | None = None
        if options.headless or options.autostart:
            options.run_time = None  # else Locust's own timer would race with ours

    @property
    def run(self) -> Run | None:
        """The run that is on, or the last one."""
        return self.conductor.run

    @property
    def headless(self) -> bool:
        """Whether the process ends with the run."""
        return bool(self.options.headless)

    # -- before a run ------------------------------------------------------------------------

    def host(self) -> tuple[str, bool]:
        """The target's URL, and whether it is the embedded emulator (started when needed)."""
        given = self.environment.host or self._channel_url()
        if given and (self._emulator is None or given != self._emulator.url):
            return given, False
        arguments = self.options.emulator_args or ""
        if self._emulator is not None and self._emulator.arguments != arguments:
            self._stop_emulator()
            self._emulator = None
        if self._emulator is None:
            self._emulator = EmbeddedEmulator(arguments)
            self.environment.host = self._emulator.url
        return self._emulator.url, True

    def _channel_url(self) -> str:
        """The URL of the channel that --target names; '' without one, or where it has none."""
        channel = self.options.target
        return find_channel(channel).base_url or "" if channel else ""

    def prepare(self, run_time_s: float | None, users: int | None) -> None:
        """Read every option, look at the target, settle the run. Raises one-sentence errors."""
        if self.options.scenario:
            raise ConfigError("--scenario: it is started on the command line, not on the page.")
        host, embedded = self.host()
        ask = Ask(host, embedded, run_time_s, users)
        classes: Any = self.environment.user_classes
        self._prepared = prepare(self.options, classes, ask)
        for note in self._prepared.notes:
            log.info("%s.", note)
        self.options.num_users = self._prepared.spec.slots
        if self.options.spawn_rate is None:
            self.options.spawn_rate = SPAWN_RPS * max(len(self.conductor.seated()), 1)

    def prepare_or_exit(self) -> None:
        """For a run that starts by itself: a wrong setting ends the process with exit code 1."""
        try:
            self.prepare(self._run_time_s, self._users_given)
        except AVOIDABLE as error:
            print(f"error: {error}", file=sys.stderr)  # noqa: T201
            self._stop_emulator()
            sys.exit(1)

    def get_ready(self) -> None:
        """At the end of Locust's start-up: whatever can be wrong is told before any load."""
        self._mind_the_console()
        if self.headless or self.options.autostart:
            self.prepare_or_exit()
        else:
            with contextlib.suppress(*AVOIDABLE):  # told at the start, on the page
                self.host()
            self._show_slots()

    def _show_slots(self) -> None:
        """What the web form shows as number of users: the slots that the rate can need."""
        if self.options.num_users is None:
            with contextlib.suppress(*AVOIDABLE):  # a wrong option is told at the start
                self.options.num_users = usual_slots(self.options, self._run_time_s)
        if self.options.spawn_rate is None:
            self.options.spawn_rate = SPAWN_RPS * max(len(self.conductor.seated()), 1)

    def _mind_the_console(self) -> None:
        if self.options.spawn_rate is not None:
            log.warning(
                "-r has no meaning in open loop: arrivals come at --rate from the start on."
            )
        if self.headless and not self.options.print_stats:
            self.options.only_summary = True  # a progress line instead of the tables every 2 s

    # -- Locust's events ---------------------------------------------------------------------

    def on_test_start(self, **_kw: Any) -> None:
        """Deal and start; a run that cannot begin is stopped again with its sentence."""
        try:
            if self._prepared is None:
                self.prepare(self._run_time_s, self._users_given)
            prepared, self._prepared = self._prepared, None
            assert prepared is not None
            self._begin(prepared)
        except AVOIDABLE as error:
            log.error("error: %s", error)
            self.environment.process_exit_code = 1
            gevent.spawn(self.end_of_window)

    def _begin(self, prepared: Prepared) -> None:
        self.conclusion = None
        self._drain_s = None

        def end(run: Run) -> None:
            self._end(run, prepared)

        run = self.conductor.run = Run(self.conductor, prepared.spec, end, self.end_of_window)
        run.window_s = prepared.first_window_s
        run.begin()
        prepared.scraper.start()
        self._progress = Progress(run, self.headless, quiet=bool(self.options.json))
        self._timer = gevent.spawn(self._sleep_through, run, prepared)

    def _sleep_through(self, run: Run, prepared: Prepared) -> None:
        while True:
            while (left_s := run.window_s - run.now()) > 0:
                gevent.sleep(min(left_s, 1.0))
            try:
                if not extend(run, prepared):
                    break
            except Exception:  # a bug of ours must not leave a run without its end
                log.exception("The run could not be looked at to extend it.")
                break
        self.end_of_window()

    def end_of_window(self) -> None:
        """Stop as Locust's own time limit does; ``on_test_stop`` does the rest."""
        if self.headless:
            self._runner.quit()  # spares the wait until every worker has stopped its idle users
        else:
            self._runner.stop()

    def on_test_stopping(self, **_kw: Any) -> None:
        """Whoever stops the run: drain and conclude before Locust kills anything."""
        self.finish()

    def on_test_stop(self, **_kw: Any) -> None:
        """The run is over, whoever stopped it: when its last worker is lost, Locust only stops it."""
        if self._leaves:
            gevent.spawn(self._leave)

    @property
    def _leaves(self) -> bool:
        """Whether the process ends after its run."""
        autoquit = self.options.autostart and self.options.autoquit != -1
        return self.headless or bool(autoquit)

    def _leave(self) -> None:
        if not self.headless:
            gevent.sleep(self.options.autoquit)
        self._runner.quit()
        if self.environment.web_ui is not None:
            self.environment.web_ui.stop()

    def finish(self, partial_reason: str = "") -> None:
        """Drain and conclude the run that is on, once; later callers wait for the first."""
        run = self.run
        if run is None or not (run.is_on or run.is_finishing):
            return
        timeout_s = self._drain_s
        if timeout_s is None:
            timeout_s = run.spec.options.drain_timeout_s
        if not partial_reason and run.now() < run.window_s - 0.05:
            partial_reason = f"stopped after {run.now():.1f} of {run.window_s:g} s"
        run.finish(timeout_s, partial_reason)

    def on_quitting(self, **_kw: Any) -> None:
        """SIGTERM comes this way with the run still on; Locust reads the exit code right after."""
        run = self.run
        if run is not None and run.is_finishing:
            run.hurry()
        elif run is not None and run.is_on:
            self._drain_s = min(SIGTERM_DRAIN_S, run.spec.options.drain_timeout_s)
        self.finish()
        self._stop_emulator()

    def on_quit(self, **_kw: Any) -> None:
        """Last words, below Locust's own tables."""
        if self.conclusion is not None and self.headless:
            self.conclusion.show()

    # -- the end -----------------------------------------------------------------------------

    def _end(self, run: Run, prepared: Prepared) -> None:
        if self._timer is not None and self._timer is not gevent.getcurrent():
            self._timer.kill(block=False)
        if self._progress is not None:
            self._progress.close()
        self.conclusion = conclude(run, prepared)
        leaves = self._leaves
        self.environment.process_exit_code = self.conclusion.exit_code if leaves else 0
        if not self.headless:
            self.conclusion.show()

    def _stop_emulator(self) -> None:
        if self._emulator is not None:
            self._emulator.stop()

    # -- signals -----------------------------------------------------------------------------

    def on_sigint(self) -> None:
        """Ctrl-C: the first one drains, a second one does not wait for what is in flight."""
        run = self.run
        if run is not None and run.is_finishing:
            run.hurry()
            return
        if run is None or not run.is_on:
            raise KeyboardInterrupt  # nothing to save: Locust's own way out
        log.info("Ctrl-C: waiting for the requests in flight; once more to cut them off.")
        self._runner.quit()
        if self.environment.web_ui is not None:
            self.environment.web_ui.stop()
