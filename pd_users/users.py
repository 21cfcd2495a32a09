"""``PDUser``: the place to describe traffic, and the sender that puts it on the wire.

Locust's user greenlets are idle: each stands for one concurrency slot. The dispatcher (schedule.py)
calls the methods of one instance a process, so state kept on ``self`` is shared by all requests.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from gevent.event import Event
from locust import User, task
from locust.env import Environment

from pd_users.client import Client
from pd_users.records import OK, RequestRecord
from pd_users.spec import RunSpec
from pd_users.target import ChatRequest, Target
from workloads.arrivals import Arrival
from workloads.prompts import PromptWriter


class PDUser(User):
    """One kind of traffic. Subclass it in a locustfile; every attribute may be overridden."""

    abstract = True
    workload: ClassVar[str | None] = None  # a profile name or YAML file; None: --workload
    weight = 1  # share of the arrivals, when a locustfile has several PDUser classes

    target: Target
    prompts: PromptWriter

    @task
    def stand_by(self) -> None:
        """A user is a concurrency slot and does nothing itself."""
        Event().wait()

    def build_request(self, arrival: Arrival) -> ChatRequest:
        """The request for one arrival; override it to send something else."""
        return self.target.chat_request(self.prompts.prompt(arrival), arrival.output_tokens)

    def on_record(self, record: RequestRecord) -> None:
        """Called with each finished request's record; does nothing unless overridden."""
