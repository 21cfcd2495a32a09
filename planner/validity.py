"""Whether a run can say anything at all: rules 0 and 2 of the decision table."""

import math
from dataclasses import dataclass

from planner.doubts import MIN_SAMPLES
from planner.measurement import Measurement, Spread
from planner.records import Flags
from planner.statistics import (
    BATCHES,
    batch_interval,
    batch_means,
    rate_interval,
    samples_to_pass,
    student,
)
from planner.verdict import Decision, decided

ALLOWED = 0.01  # of arrivals may miss a P99 limit
MAX_ERRORS = 0.01
MAX_LAG_SHARE = 0.10  # of the TTFT SLO
MAX_CPU_PERCENT = 90.0
MAX_UNSENT = 0.005
MAX_LOST = 0.01
MAX_LENGTH_FACTOR = 1.5  # prompts on the server over prompts asked for
LONGEST_S = 6 * 3600  # beyond, "run longer" is no advice
WAITED = ("timeout", "stalled")  # what an overloaded cluster does to a request


def unfit(m: Measurement) -> Decision | None:
    """Rule 0: the run does not add up, the target failed, or the client did not keep up."""
    a = m.arrivals
    failed = sum(a.failed.values())
    if not a.adds_up:
        parts = a.model_dump_json()
        return decided("inconclusive", "0 accounting", [f"The run does not add up: {parts}."])
    if a.succeeded == 0 and failed == 0:
        return decided(
            "inconclusive", "0 nothing completed", ["No request completed: no decision is made."]
        )
    waited = sum(a.failed.get(name, 0) for name in WAITED)
    overloaded = m.saturation.saturated and failed - waited <= MAX_ERRORS * a.due and a.succeeded
    if failed > MAX_ERRORS * a.due and not overloaded:
        return decided("target-errors", "0 errors", _errors(m, failed))
    if slow := client_limits(m):
        return decided("client-limited", "0 client", [*slow, "Nothing is said of the cluster."])
    return _wrong_lengths(m)


def _errors(m: Measurement, failed: int) -> list[str]:
    a = m.arrivals
    names = ", ".join(f"{count} x {name}" for name, count in a.failed.items())
    out = [f"{failed} of {a.due} requests failed ({100 * failed / a.due:.1f} %): {names}."]
    if a.failed.get("rate-limited", 0) > 0.5 * failed:
        out.append("The rate is limited by the gateway (HTTP 429): raise its quota.")
    return [*out, "No scaling advice: see to these first."]


def client_limits(m: Measurement) -> list[str]:
    """Why the client, and not the cluster, set the figures; empty: it did not."""
    a, found = m.arrivals, []
    limit_ms = MAX_LAG_SHARE * m.slo.ttft_p99_ms
    if m.lag_ms.p99 is not None and m.lag_ms.p99 > limit_ms:
        found.append(
            f"Requests went out late: lag P99 {m.lag_ms.p99:.1f} ms, allowed {limit_ms:.0f} ms (10 % of the "
            "TTFT SLO). Use more workers, or a larger -u."
        )
    if m.client.get("cpu_percent_max", 0.0) > MAX_CPU_PERCENT:
        found.append(
            f"A worker used {m.client['cpu_percent_max']:.0f} % of its core. Use more workers."
        )
    if a.unsent > MAX_UNSENT * a.due:
        found.append(
            f"{a.unsent} of {a.due} arrivals found no free slot (-u {m.max_concurrency}): "
            f"{m.rate_rps.get('sent', 0.0):.2f} requests a second went out, "
            f"{m.rate_planned_rps:.2f} were planned. Raise -u."
        )
    if a.lost > MAX_LOST * a.due:
        found.append(f"{a.lost} of {a.due} arrivals were lost with a worker. Run again.")
    return found


def _wrong_lengths(m: Measurement) -> Decision | None:
    asked, told = m.input_tokens.get("asked_mean"), m.input_tokens.get("told_mean")
    if not asked or not told or 1 / MAX_LENGTH_FACTOR <= told / asked <= MAX_LENGTH_FACTOR:
        return None
    text = (
        f"Prompts have {told:.0f} tokens on the server, {asked:.0f} were asked for, a factor of "
        f"{told / asked:.1f}: this is not the traffic that was meant. Let the preflight measure the tokens per word, "
        "or name the right model."
    )
    return decided("inconclusive", "0 prompt lengths", [text])


def too_little(m: Measurement) -> Decision | None:
    """Rule 2: fewer requests than any P99 needs."""
    if m.measured >= MIN_SAMPLES:
        return None
    rate = m.rate_rps.get("due", 0.0) or m.rate_planned_rps
    more_s = math.ceil((MIN_SAMPLES - m.measured) / max(rate, 1e-9))
    text = (
        f"n = {m.measured} requests were measured, not reliable: a P99 needs {MIN_SAMPLES} at the least. "
        f"Run about {more_s} s longer."
    )
    return decided(
        "inconclusive",
        "2 too few samples",
        [text],
        deployment=m.deployment,
        seconds_more=more_s,
    )


# -- do the SLOs hold ------------------------------------------------------------------------------------

PASS, FAIL, UNCLEAR = "pass", "fail", "unclear"


@dataclass(frozen=True, slots=True)
class Check:
    """Whether at most 1 % of arrivals miss a limit, and how much longer it takes to know."""

    outcome: str
    low: float
    high: float
    longer: float = 0.0  # times the measured window
    likely_over: bool = False  # not settled, but more than 1 % of what was seen missed it


def check_limit(missed: Flags, open_: Flags, spread: Spread, confidence: str) -> Check:
    """A pass must hold with all that was cut off counted as missed, a fail with none."""
    if spread.n == 0 and not missed.any():
        return Check(PASS, 0.0, 0.0)  # outputs of one token have no TPOT
    if confidence == "confirmed":
        n = max(spread.n_eff, 1.0)
        low = rate_interval(float(missed.mean()) * n, n)[0]
        high = rate_interval(float((missed | open_).mean()) * n, n)[1]
    else:
        low, high = batch_interval(missed)[0], batch_interval(missed | open_)[1]
    low, high = max(low, 0.0), min(high, 1.0)
    if high <= ALLOWED:
        return Check(PASS, low, high)
    if low > ALLOWED:
        return Check(FAIL, low, high)
    over = float(missed.mean()) > ALLOWED
    return Check(UNCLEAR, low, high, _longer(missed, spread, confidence), over)


def _longer(missed: Flags, spread: Spread, confidence: str) -> float:
    """How many times the window more it takes, if the rate stays what it was; inf: it is at the limit."""
    rate = float(missed.mean())
    if confidence == "likely":
        half = student(0.95, BATCHES - 1) * float(batch_means(missed.astype(float)).std(ddof=1))
        half /= math.sqrt(BATCHES)
        return (half / abs(rate - ALLOWED)) ** 2 - 1 if rate != ALLOWED else math.inf
    n = max(spread.n_eff, 1.0)
    if rate == 0:
        return samples_to_pass(ALLOWED) / n - 1
    if abs(rate - ALLOWED) < 0.1 * ALLOWED:
        return math.inf
    factor = 1.0
    while factor < 1e4:
        factor *= 1.3
        low, high = rate_interval(rate * n * factor, n * factor)
        if high <= ALLOWED or low > ALLOWED:
            return factor - 1
    return math.inf


def not_sure(
    m: Measurement, checks: dict[str, Check], confidence: str, facts: list[str]
) -> Decision:
    """Rule 2: the run does not settle it; how many seconds more would."""
    unclear = [name for name, check in checks.items() if check.outcome == UNCLEAR]
    measured_s = m.measured / max(m.rate_rps.get("due", 0.0), 1e-9)
    more = max(checks[name].longer for name in unclear) * measured_s
    which = " and ".join(unclear)
    if m.undecided > ALLOWED / 2 * m.measured:
        which += f" ({m.undecided} requests were cut off before it could be told)"
    if more > LONGEST_S:
        text = (
            f"Whether {which} holds is not {confidence}: it is at its limit, and a longer run would "
            "hardly settle it."
        )
        seconds = None
    else:
        seconds = max(math.ceil(more), 10)
        text = f"Whether {which} holds is not {confidence} yet. Run about {seconds} s longer."
    return decided(
        "inconclusive",
        "2 not settled",
        [*facts, text],
        deployment=m.deployment,
        seconds_more=seconds,
    )
