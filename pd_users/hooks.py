"""Ties the load test to Locust: the only module that adds listeners. ``install()`` is all of it."""

from locust import argument_parser, events
from locust.env import Environment
from locust.runners import LocalRunner, WorkerRunner

import functools
import logging
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import gevent

from pd_users import options
from pd_users.evidence import mask
from pd_users.lifecycle import Lifecycle
from pd_users.login import add_login
from pd_users.ports import open_to_all, taken_port, tell_taken_master_port
from pd_users.scenario import run_scenario
from pd_users.secrets import KEY_AS_ARGUMENT, guard_logs, is_key_given
from pd_users.web import add_pages
from pd_users.worker import Worker
from workloads.errors import ConfigError

log = logging.getLogger(__name__)


def install() -> None:
    """Add our listeners to Locust's events; called once, by the locustfile."""
    # For each spawn message a worker builds Locust's whole argument parser once per option: 0.2 s
    # in which no socket is read and nothing is sent. Its answer never changes.
    argument_parser.default_args_dict = functools.cache(argument_parser.default_args_dict)
    tell_taken_master_port()
    events.init_command_line_parser.add_listener(_declare)
    events.init.add_listener(_init)


def _declare(parser: Any, **_kw: Any) -> None:
    options.declare(parser)
    parser.error = functools.partial(_refuse, parser.error)
    if is_key_given(sys.argv[1:]):
        parser.error(KEY_AS_ARGUMENT)


def _refuse(error: Callable[[str], NoReturn], message: str) -> NoReturn:
    """What argparse says of a wrong option repeats it; a key that was given must not be shown."""
    if "--api-key" in message:
        message = KEY_AS_ARGUMENT
    error(mask(message))


def _init(environment: Environment, **_kw: Any) -> None:
    guard_logs()
    gevent.get_hub().print_exception = _log_exception
    asked: Any = environment.parsed_options
    if asked.scenario:
        sys.exit(run_scenario(environment))
    if isinstance(environment.runner, WorkerRunner):
        _init_worker(environment)
    else:
        _init_leader(environment)


def _log_exception(_context: Any, *what: Any) -> None:
    """In place of gevent's own print of a failed greenlet: logs are masked, its print is not."""
    logging.getLogger("pd_users").critical("A greenlet failed:", exc_info=what)


def _add_login_or_exit(environment: Environment) -> None:
    try:
        add_login(environment)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)


def _init_worker(environment: Environment) -> None:
    worker = Worker(environment)
    environment.events.quitting.add_listener(worker.on_quitting)
    gevent.signal_handler(signal.SIGINT, worker.on_sigint)


def _init_leader(environment: Environment) -> None:
    lifecycle = Lifecycle(environment)
    if isinstance(environment.runner, LocalRunner):
        Worker(environment)  # a local run is its own worker
    environment.events.test_start.add_listener(lifecycle.on_test_start)
    environment.events.test_stopping.add_listener(lifecycle.on_test_stopping)
    environment.events.test_stop.add_listener(lifecycle.on_test_stop)
    environment.events.quitting.add_listener(lifecycle.on_quitting)
    environment.events.quit.add_listener(lifecycle.on_quit)
    gevent.signal_handler(signal.SIGINT, lifecycle.on_sigint)
    if environment.web_ui is not None:
        _mind_the_address(environment.parsed_options)
        _add_login_or_exit(environment)
        add_pages(environment, lifecycle)
    lifecycle.get_ready()


def _mind_the_address(options: Any) -> None:
    """A port that is taken ends the process with a sentence; an open door gets a warning."""
    if refusal := taken_port(options.web_host, options.web_port):
        print(f"error: {refusal}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    if not options.web_login and (warning := open_to_all(options.web_host, options.web_port)):
        log.warning(warning)
