"""Ties the load test to Locust: the only module that adds listeners. ``install()`` is all of it."""

from locust import argument_parser, events
from locust.env import Environment
from locust.runners import LocalRunner, WorkerRunner

import functools
import signal
import sys
from typing import Any

import gevent

from pd_users import options
from pd_users.lifecycle import Lifecycle
from pd_users.login import add_login
from pd_users.web import add_pages
from pd_users.worker import Worker
from workloads.errors import ConfigError


def install() -> None:
    """Add our listeners to Locust's events; called once, by the locustfile."""
    # For each spawn message a worker builds Locust's whole argument parser once per option: 0.2 s
    # in which no socket is read and nothing is sent. Its answer never changes.
    argument_parser.default_args_dict = functools.cache(argument_parser.default_args_dict)
    events.init_command_line_parser.add_listener(_declare)
    events.init.add_listener(_init)


def _declare(parser: Any, **_kw: Any) -> None:
    options.declare(parser)


def _init(environment: Environment, **_kw: Any) -> None:
    if isinstance(environment.runner, WorkerRunner):
        _init_worker(environment)
    else:
        _init_leader(environment)


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
    environment.events.quitting.add_listener(lifecycle.on_quitting)
    environment.events.quit.add_listener(lifecycle.on_quit)
    gevent.signal_handler(signal.SIGINT, lifecycle.on_sigint)
    if environment.web_ui is not None:
        _add_login_or_exit(environment)
        add_pages(environment, lifecycle)
    lifecycle.get_ready()
