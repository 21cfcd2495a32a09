"""Ties the load test to Locust: the only module that adds listeners. ``install()`` is all of it."""

import signal
from typing import Any

import gevent
from locust import events
from locust.env import Environment
from locust.runners import WorkerRunner

from pd_users import options
from pd_users.lifecycle import Lifecycle
from pd_users.web import add_pages
from pd_users.worker import Worker


def install() -> None:
    """Add our listeners to Locust's events; called once, by the locustfile."""
    events.init_command_line_parser.add_listener(_declare)
    events.init.add_listener(_init)


def _declare(parser: Any, **_kw: Any) -> None:
    options.declare(parser)


def _init(environment: Environment, **_kw: Any) -> None:
    if isinstance(environment.runner, WorkerRunner):
        _init_worker(environment)
    else:
        _init_leader(environment)


def _init_worker(environment: Environment) -> None:
    worker = Worker(environment)
    environment.events.quitting.add_listener(worker.on_quitting)
    gevent.signal_handler(signal.SIGINT, worker.on_sigint)


def _init_leader(environment: Environment) -> None:
    lifecycle = Lifecycle(environment)
    if not isinstance(environment.runner, WorkerRunner) and not _is_master(environment):
        Worker(environment)
    environment.events.test_start.add_listener(lifecycle.on_test_start)
    environment.events.test_stopping.add_listener(lifecycle.on_test_stopping)
    environment.events.quitting.add_listener(lifecycle.on_quitting)
    environment.events.quit.add_listener(lifecycle.on_quit)
    gevent.signal_handler(signal.SIGINT, lifecycle.on_sigint)
    if environment.web_ui is not None:
        add_pages(environment, lifecycle)
    lifecycle.get_ready()


def _is_master(environment: Environment) -> bool:
    from locust.runners import MasterRunner

    return isinstance(environment.runner, MasterRunner)
