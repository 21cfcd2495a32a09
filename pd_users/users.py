"""``PDUser``: the place to describe traffic.

Locust's user greenlets are idle: each stands for one concurrency slot. The dispatcher (schedule.py)
calls the methods of one instance a process, so state kept on ``self`` is shared by all requests.
"""

from locust import User, task
from locust.user.task import LOCUST_STATE_WAITING

from typing import ClassVar

from gevent.event import Event

from pd_users.records import RequestRecord
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
        self._state = LOCUST_STATE_WAITING  # so that a graceful stop need not wait for it
        Event().wait()

    def build_request(self, arrival: Arrival) -> ChatRequest:
        """The request for one arrival; override it to send something else."""
        write = self.prompts.token_ids if self.target.token_ids else self.prompts.prompt
        return self.target.chat_request(write(arrival), arrival.output_tokens)

    def on_record(self, record: RequestRecord) -> None:
        """Called with each finished request's record; does nothing unless overridden."""
