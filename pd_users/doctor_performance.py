"""The doctor's questions about speed: is this client fit, and how fast is one request alone."""

import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path

import gevent

from pd_users.checks import FAIL, OK, PERFORMANCE, WARN, Check, DiagnosisError
from pd_users.client import Client
from pd_users.cures import cure
from pd_users.endpoint import shown_url
from pd_users.errors import TargetError
from pd_users.loop_lag import LoopLag
from pd_users.plain_reading import PlainReader, PlainReading
from pd_users.preflight import PROBE_TOKENS, probe_prompt
from pd_users.records import OK as SUCCESS
from pd_users.stream import StreamResult
from pd_users.target import Target

PAIRS = 4  # readings of each kind, in turn; the first of each is a warm-up
WORDS = 100
LAG_S = 0.4
LOCUST_FILES = 10_000  # Locust raises its own limit that far, where the hard limit lets it
JITTER = 4.0  # the longest gap over the median gap
JITTER_MS = 40.0


def _check(
    name: str, found: str, verdict: str = OK, advice: str = "", diagnosis: str = ""
) -> Check:
    return Check(PERFORMANCE, name, found, verdict, advice, diagnosis)


# -- this machine -------------------------------------------------------------------------------------


def client_checks(concurrency: int) -> list[Check]:
    """Event loop, CPU and open files of the machine that will send."""
    lag = LoopLag.shared()
    lag.reset()
    before = cpu_times()
    late_s = wakes_late_s()
    lag_ms = 1000 * lag.quantile_s(0.99)
    return [
        loop_check(lag_ms, 1000 * late_s),
        steal_check(before, cpu_times()),
        files_check(*resource.getrlimit(resource.RLIMIT_NOFILE), concurrency),
    ]


def wakes_late_s() -> float:
    """How late the system wakes this process, at P99: all of it is added to what is measured."""
    late = []
    until = time.monotonic() + LAG_S
    while (asked := time.monotonic()) < until:
        gevent.sleep(0.002)
        late.append(time.monotonic() - asked - 0.002)
    return sorted(late)[int(0.99 * (len(late) - 1))]


def loop_check(lag_ms: float, late_ms: float) -> Check:
    """Pure."""
    advice = "something else uses this machine: requests would be sent and measured late"
    found = f"busy for {lag_ms:.2f} ms, woken {late_ms:.2f} ms late, at P99"
    return _check("event loop", found, *((WARN, advice) if max(lag_ms, late_ms) > 5 else (OK, "")))


def cpu_times() -> tuple[float, ...]:
    """The first line of /proc/stat; () where there is none."""
    stat = Path("/proc/stat")
    return (
        tuple(map(float, stat.read_text().split("\n", 1)[0].split()[1:])) if stat.exists() else ()
    )


def steal_check(before: Sequence[float], after: Sequence[float]) -> Check:
    """CPU time that went to others, of two readings of /proc/stat. Pure."""
    spent = [b - a for a, b in zip(before, after, strict=False)]
    total = sum(spent[:8])
    if len(spent) < 8 or total <= 0:
        return _check("cpu", "not told by this system")
    idle, stolen = spent[3] + spent[4], spent[7]
    found = f"{100 * idle / total:.0f} % idle, {100 * stolen / total:.1f} % stolen by the host"
    if stolen / total > 0.02:
        return _check(
            "cpu",
            found,
            WARN,
            "take a machine whose CPU is its own: stolen time looks like latency",
        )
    if idle / total < 0.2:
        return _check("cpu", found, WARN, "stop what else runs here, or send from another machine")
    return _check("cpu", found)


def files_check(soft: int, hard: int, concurrency: int) -> Check:
    """Open files against the planned concurrency. Pure."""
    unlimited = resource.RLIM_INFINITY
    usable = soft if unlimited in (hard, soft) else max(soft, min(LOCUST_FILES, hard))
    needed = concurrency + 64
    found = f"{'unlimited' if usable == unlimited else usable} open files for {concurrency} requests at once"
    if usable != unlimited and usable < needed:
        return _check(
            "open files", found, FAIL, f"ulimit -n {needed}, or share the load over more workers"
        )
    return _check("open files", found)


# -- one request alone ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alone:
    """Requests one at a time: ours, and those read by somebody else."""

    ours: tuple[StreamResult, ...]
    plain: tuple[PlainReading, ...] = ()

    @property
    def ttft_ms(self) -> float:
        """Median, ours."""
        return 1000 * statistics.median(r.first_token - r.sent for r in self.ours)

    @property
    def tpot_ms(self) -> float:
        """Median, ours; nan when all tokens came at once."""
        known = [r.tpot_s for r in self.ours if not isnan(r.tpot_s)]
        return 1000 * statistics.median(known) if known else float("nan")


def read_alone(client: Client, target: Target, plain: PlainReader | None = None) -> Alone:
    """Read a few streams one at a time, by turns our way and plainly. Raises TargetError."""
    ours, others = [], []
    for k in range(PAIRS):
        request = target.chat_request(probe_prompt(WORDS), PROBE_TOKENS)
        result = client.stream(request.path, request.body)
        if result.outcome == "auth":
            raise refused_meanwhile(result.evidence)
        if result.outcome != SUCCESS:
            raise TargetError(f"A probe failed: {result.outcome} {result.evidence}.")
        if plain is not None:
            other = plain.read(target.chat_request(probe_prompt(WORDS), PROBE_TOKENS))
            others += [other] if k else []
        ours += [result] if k else []
    return Alone(tuple(ours), tuple(others))


def refused_meanwhile(said: str) -> DiagnosisError:
    """The key was good a moment ago."""
    return DiagnosisError("key-expired", f"the key was taken at first and is refused now: {said}")


def floor_checks(alone: Alone, slo_ms: tuple[float, float]) -> list[Check]:
    """One request alone against the SLOs. Pure."""
    checks = []
    for name, found_ms, allowed_ms in (
        ("TTFT", alone.ttft_ms, slo_ms[0]),
        ("TPOT", alone.tpot_ms, slo_ms[1]),
    ):
        if isnan(found_ms):
            checks.append(
                _check(
                    f"unloaded {name}", "all tokens come at once", WARN, "TPOT cannot be measured"
                )
            )
            continue
        found = f"{found_ms:.1f} ms, the SLO is {allowed_ms:g} ms"
        if found_ms > allowed_ms:
            advice = "one request alone misses the SLO: no number of instances can mend that"
            checks.append(_check(f"unloaded {name}", found, FAIL, advice))
        elif found_ms > 0.7 * allowed_ms:
            checks.append(
                _check(f"unloaded {name}", found, WARN, "little is left for queues and batching")
            )
        else:
            checks.append(_check(f"unloaded {name}", found))
    return checks


def jitter_check(alone: Alone) -> Check:
    """Gaps between tokens of requests that are alone: they should be even. Pure."""
    gaps_ms = sorted(1000 * gap for r in alone.ours for gap in r.gaps)
    if len(gaps_ms) < 8:
        return _check("token gaps", "too few to judge")
    middle, longest = statistics.median(gaps_ms), gaps_ms[-1]
    found = f"{middle:.1f} ms at P50, {longest:.1f} ms at most"
    if longest > max(JITTER * middle, middle + JITTER_MS):
        return _check("token gaps", found, WARN, cure("tpot-jitter"), "tpot-jitter")
    return _check("token gaps", found)


def reading_check(alone: Alone) -> Check:
    """Our client against plain requests + sseclient-py on the same kind of stream. Pure."""
    ours, plain = alone.ttft_ms, 1000 * statistics.median(p.ttft_s for p in alone.plain)
    n_ours = [r.output_tokens for r in alone.ours]
    n_plain = [p.output_tokens if p.output_tokens >= 0 else p.token_events for p in alone.plain]
    found = (
        f"TTFT {ours:.1f} ms, by requests + sseclient-py {plain:.1f} ms; "
        f"{statistics.mean(n_ours):.0f} and {statistics.mean(n_plain):.0f} tokens"
    )
    if statistics.mean(n_ours) != statistics.mean(n_plain) and not _varies(n_ours, n_plain):
        return _check(
            "second reading", found, WARN, "the two count tokens differently: report it as a bug"
        )
    if ours > plain + max(10.0, 0.3 * plain):
        return _check(
            "second reading", found, WARN, "noise, or our client reads late: run the doctor again"
        )
    return _check("second reading", found)


def _varies(*counts: Sequence[int]) -> bool:
    """Answers whose length the model chooses differ by themselves."""
    return any(len(set(c)) > 1 for c in counts)


def channel_check(through: Alone, direct: Alone, direct_host: str) -> Check:
    """What the channel adds to TTFT and TPOT. Pure."""
    ttft, tpot = through.ttft_ms - direct.ttft_ms, through.tpot_ms - direct.tpot_ms
    found = (
        f"TTFT {through.ttft_ms:.1f} ms, {direct.ttft_ms:.1f} ms at {shown_url(direct_host)}: "
        f"it adds {ttft:.1f} ms (TPOT {tpot:+.2f} ms)"
    )
    if ttft > max(20.0, 0.2 * direct.ttft_ms):
        return _check(
            "channel", found, WARN, "give the planner this as overhead_ms: P cannot mend it"
        )
    return _check("channel", found)


def clock_check(alone: Alone) -> Check:
    """Whose moments the tokens bear. Pure."""
    clocks = {r.clock for r in alone.ours}
    if clocks == {"kernel"}:
        return _check("clock", "tokens bear the kernel's receive stamps")
    if "jumped" in clocks:
        return _check(
            "clock", "the wall clock was set meanwhile", WARN, "let NTP settle before a run"
        )
    return _check("clock", f"tokens bear our process's moments ({', '.join(sorted(clocks))})")
