"""The P and D behind a router: its worker list, read. SGLang's and vLLM's routers, and Dynamo's frontend."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import orjson

from pd_users.client import Client
from pd_users.errors import TargetError

ROLES = {"prefill": "prefill", "decode": "decode", "backend": "decode"}


@dataclass(frozen=True, slots=True)
class Instances:
    """What a router says stands behind it."""

    source: str  # where it was read
    prefill: tuple[str, ...] = ()  # URLs, or names where it tells no URLs
    decode: tuple[str, ...] = ()
    unhealthy: tuple[str, ...] = ()

    def metrics_urls(self, role: str) -> tuple[str, ...]:
        """/metrics of the instances of one role; none where only names are known."""
        known = self.prefill if role == "prefill" else self.decode
        return tuple(f"{url.rstrip('/')}/metrics" for url in known if "://" in url)

    def lacking(self) -> str:
        """The role of which no healthy instance is there; '' when both are."""
        for role, known in (("decode", self.decode), ("prefill", self.prefill)):
            if all(url in self.unhealthy for url in known):
                return role
        return ""

    def shown(self) -> str:
        """For people."""
        text = f"{len(self.prefill)} P and {len(self.decode)} D by {self.source}"
        return f"{text}, not healthy: {', '.join(self.unhealthy)}" if self.unhealthy else text


def find_instances(client: Client) -> Instances | None:
    """Ask the target who is behind it; None when it does not tell."""
    for path, read in (("/workers", read_workers), ("/health", read_dynamo)):
        try:
            answer = client.request("GET", path)
            if answer.status == 200 and (
                found := read(orjson.loads(answer.body), client.endpoint.origin)
            ):
                return found
        except (TargetError, orjson.JSONDecodeError):
            continue
    return None


def read_workers(told: Any, origin: str) -> Instances | None:
    """``GET /workers`` of SGLang's and vLLM's routers."""
    workers = told.get("workers") if isinstance(told, dict) else None
    if not isinstance(workers, list):
        return None
    by_role: dict[str, list[str]] = {"prefill": [], "decode": []}
    unhealthy = []
    for worker in workers:
        role, url = _role_and_url(worker, origin)
        if role in by_role:
            by_role[role].append(url)
            if worker.get("is_healthy") is False:
                unhealthy.append(url)
    if workers and not any(by_role.values()):
        return None  # a router of whole servers
    return Instances(
        "the router's /workers",
        tuple(dict.fromkeys(by_role["prefill"])),
        tuple(dict.fromkeys(by_role["decode"])),
        tuple(unhealthy),
    )


def _role_and_url(worker: Any, origin: str) -> tuple[str, str]:
    if not isinstance(worker, dict):
        return "", ""
    role = worker.get("worker_type")
    if isinstance(role, Mapping):  # some releases write {"prefill": {"bootstrap_port": 8998}}
        role = next(iter(role), "")
    url = str(worker.get("url") or "").rsplit("@", 1)[0]  # "...@3" is data-parallel rank 3 of it
    if not urlsplit(url).scheme:
        url = urljoin(f"{origin}/", url)
    return str(role or "").lower(), url


def read_dynamo(told: Any, _origin: str) -> Instances | None:
    """``GET /health`` of Dynamo's frontend; it tells components, not where their metrics are."""
    listed = told.get("instances") if isinstance(told, dict) else None
    if not isinstance(listed, list):
        return None
    by_role: dict[str, list[str]] = {"prefill": [], "decode": []}
    for instance in listed:
        if isinstance(instance, dict) and instance.get("endpoint") == "generate":
            role = ROLES.get(str(instance.get("component")), "")
            if role:
                by_role[role].append(f"{role} {instance.get('instance_id')}")
    return Instances("Dynamo's /health", tuple(by_role["prefill"]), tuple(by_role["decode"]))
