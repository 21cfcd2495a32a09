"""What the servers say of themselves: /metrics of every P and D, polled while a run is on.

``summary`` is what the planner reads: for each instance the mean, maximum and 99th percentile of
its gauges over the polls, and what its counters and histograms gained in the time. The signals and
their names in each engine stand in metric_names.py.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, inf
from typing import Any

import gevent
import orjson

from pd_users.client import Client
from pd_users.endpoint import parse_base_url, shown_url
from pd_users.errors import TargetError
from pd_users.series import Series
from pd_users.signals import Reading, read_page
from pd_users.timeouts import Timeouts

POLL_S = 1.0
LIMITS = Timeouts(connect_s=2, first_byte_s=2, between_bytes_s=2, total_s=3)
INFO_PATHS = ("/server_info", "/get_server_info")  # SGLang's cap stands here, not in /metrics

Polls = list[tuple[float, Reading]]  # of one instance: monotonic seconds and what it said


@dataclass
class Page:
    """One URL, what it said, and how often it did not answer."""

    role: str
    url: str
    series: dict[str, Series] = field(default_factory=dict)
    polls: int = 0
    errors: int = 0
    last_error: str = ""
    cap: float | None = None
    says_role: str = ""  # when it differs from what the user said


class PageClient:
    """Fetches one ``/metrics`` page."""

    def __init__(self, url: str) -> None:
        scheme, separator, rest = url.partition("://")
        if not separator:
            scheme, rest = "http", url
        authority, _, path = rest.partition("/")
        self.path = f"/{path}" if path else "/metrics"
        self._client = Client(parse_base_url(f"{scheme}://{authority}"), LIMITS)

    def read(self) -> list[Reading]:
        """The page. Raises TargetError: one sentence."""
        where = f"{self._client.endpoint.origin}{self.path}"
        answer = self._client.request("GET", self.path)
        if answer.status != 200:
            raise TargetError(f"{where}: HTTP {answer.status}, expected a metrics page.")
        try:
            readings = read_page(answer.body.decode("utf-8", "replace"), lambda: gevent.sleep(0))
        except ValueError:
            raise TargetError(f"{where}: what is there is no Prometheus text.") from None
        if not any(r.engine for r in readings):
            raise TargetError(
                f"{where}: no metric of SGLang, vLLM or Dynamo is there: start SGLang with "
                "--enable-metrics, and name the P or D itself, not a router."
            )
        return readings

    def cap(self) -> float | None:
        """max_running_requests as SGLang's server info tells it."""
        base = self.path.removesuffix("/metrics")
        for path in INFO_PATHS:
            try:
                answer = self._client.request("GET", base + path)
                if answer.status == 200:
                    return read_cap(orjson.loads(answer.body))
            except (TargetError, orjson.JSONDecodeError):
                continue
        return None

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


def read_cap(info: Any) -> float | None:
    """The cap of one instance in SGLang's server info: the option, else what its ranks use."""
    if not isinstance(info, dict):
        return None
    if isinstance(given := info.get("max_running_requests"), int):
        return float(given)
    states = info.get("internal_states")
    key = "effective_max_running_requests_per_dp"
    caps = [s.get(key) for s in states if isinstance(s, dict)] if isinstance(states, list) else []
    known = [c for c in caps if isinstance(c, int)]
    return float(sum(known)) if known else None


class Scraper:
    """Polls every given URL once a second from ``start`` to ``stop``. Raises ConfigError on a wrong URL."""

    def __init__(self, prefill: Sequence[str], decode: Sequence[str]) -> None:
        urls = [*(("prefill", url) for url in prefill), *(("decode", url) for url in decode)]
        self.pages = [Page(role, url) for role, url in urls]
        for page in self.pages:
            PageClient(page.url).close()  # so that a wrong URL is told before the run
        self._greenlets: list[gevent.Greenlet] = []

    def start(self) -> None:
        """Begin to poll; one greenlet a page, so that a slow one holds nobody up."""
        self._greenlets = [gevent.spawn(self._watch, page) for page in self.pages]

    def stop(self) -> None:
        """No more polls."""
        gevent.killall(self._greenlets, block=False)

    def _watch(self, page: Page) -> None:
        client = PageClient(page.url)
        try:
            while True:
                poll(page, client)
                gevent.sleep(POLL_S)
        finally:
            client.close()

    def summary(self, since_s: float = -inf, until_s: float = inf) -> dict[str, Any] | None:
        """The signals between two moments of CLOCK_MONOTONIC; None when nothing was asked for."""
        if not self.pages:
            return None
        out: dict[str, Any] = {"prefill": [], "decode": [], "notes": notes(self.pages)}
        for page in self.pages:
            entries = summarise(page, since_s, until_s)
            out[page.says_role or page.role] += entries
        return out


def poll(page: Page, client: PageClient) -> None:
    """Read a page once and keep what it says."""
    page.polls += 1
    try:
        readings = client.read()
    except TargetError as error:
        page.errors += 1
        page.last_error = str(error)
        return
    now = time.monotonic()
    mine = [r for r in readings if r.role in ("", page.role)]
    if not mine:
        page.says_role = readings[0].role
    for reading in mine or readings:
        page.series.setdefault(reading.instance, Series()).append(now, reading)
    if page.polls - page.errors == 1 and page.role == "decode" and "cap" not in readings[0].gauges:
        page.cap = client.cap()


def notes(pages: Sequence[Page]) -> list[str]:
    """What the user should know of the scraping itself."""
    out = []
    for page in pages:
        if page.errors:
            out.append(f"{page.errors} of {page.polls} polls failed: {page.last_error}")
        if page.says_role:
            out.append(
                f"{shown_url(page.url)} was given as {page.role}, but says that it is {page.says_role}: "
                "it is counted as that."
            )
    return out


def summarise(page: Page, since_s: float, until_s: float) -> list[dict[str, Any]]:
    """One entry for each instance on a page. Pure."""
    entries = []
    for instance, whole in sorted(page.series.items()) or [("", Series())]:
        series = whole.between(since_s, until_s)
        entry: dict[str, Any] = {
            "url": shown_url(page.url),
            "instance": instance,
            "engine": series[-1][1].engine if series else "",
            "polls": len(series),
            "errors": page.errors,
        }
        if page.cap is not None:
            entry["cap"] = page.cap
        if series:
            entry |= gauge_figures(series) | gains(series)
        entries.append(entry)
    return entries


def gauge_figures(series: Polls) -> dict[str, float]:
    """Mean, maximum and 99th percentile (nearest rank) of each gauge over the polls."""
    out: dict[str, float] = {}
    for name in sorted({name for _, reading in series for name in reading.gauges}):
        values = sorted(r.gauges[name] for _, r in series if name in r.gauges)
        if name == "cap":
            out["cap"] = values[-1]
            continue
        out[f"{name}_mean"] = sum(values) / len(values)
        out[f"{name}_max"] = values[-1]
        out[f"{name}_p99"] = values[ceil(0.99 * len(values)) - 1]
    return out


def gains(series: Polls) -> dict[str, float]:
    """What counters and histograms gained from the first poll to the last."""
    (start_s, first), (end_s, last) = series[0], series[-1]
    gained = {
        name: gain([r.counters[name] for _, r in series if name in r.counters])
        for name in last.counters
    }
    hit, asked = gained.pop("hit_tokens", None), gained.pop("asked_tokens", None)
    if hit is not None and asked:
        gained["hit_rate"] = min(hit / asked, 1.0)
    span_s = end_s - start_s
    busy_s, idle_s = gained.pop("busy_s", None), gained.pop("idle_s", None)
    if busy_s is not None and span_s > 0:
        gained["busy_share"] = min(busy_s / span_s, 1.0)
    elif idle_s is not None and span_s > 0:
        gained["busy_share"] = max(1.0 - idle_s / span_s, 0.0)
    for name, whole in last.histograms.items():
        since = whole.since(first.histograms[name]) if name in first.histograms else whole
        gained[f"{name}_n"] = since.count
        if since.count:
            gained[f"{name}_mean"] = since.sum_ms / since.count
            if since.buckets:
                gained[f"{name}_p99"] = since.quantile(0.99)
    return gained


def gain(values: Sequence[float]) -> float:
    """How much a counter went up; a fall means that the server began anew from 0."""
    return sum(b - a if b >= a else b for a, b in pairwise(values))
