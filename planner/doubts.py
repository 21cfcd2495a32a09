"""What a reader of a run should doubt: each with its figure and what to do."""

from planner.measurement import Measurement

HIT_MARGIN = 0.05  # between the hit rate of the workload and the one found
MIN_SAMPLES = 299  # below, nothing is above a P99 for certain


def warnings(m: Measurement) -> list[str]:
    """What a reader should doubt: each with its figure and what to do."""
    return [text for text in (*_doubts_of_tokens(m), *_doubts_of_time(m)) if text]


def _doubts_of_tokens(m: Measurement) -> list[str]:
    out = []
    if m.estimated_share > 0:
        out.append(
            f"Token counts of {100 * m.estimated_share:.0f} % of the answers were estimated from events: the "
            "server sent no usage. TPOT is off where an event carries several tokens."
        )
    asked, told = m.input_tokens.get("asked_mean"), m.input_tokens.get("told_mean")
    if asked and told and abs(told / asked - 1) > 0.05:
        out.append(
            f"Prompts have {told:.0f} tokens on the server, {asked:.0f} were asked for "
            f"({100 * (told / asked - 1):+.1f} %): the plan uses what the server says."
        )
    out += _doubts_of_hits(m)
    asked, told = m.output_tokens.get("asked_mean"), m.output_tokens.get("mean")
    if asked and told and told < 0.95 * asked:
        out.append(
            f"Answers have {told:.0f} tokens, {asked:.0f} were asked for: D is tested with less than planned. Use a "
            "target that takes ignore_eos or min_tokens."
        )
    return out


def _doubts_of_hits(m: Measurement) -> list[str]:
    """The hit rate that was asked for, and the one that came of it."""
    wanted, found = m.wanted_hit_rate, m.input_tokens.get("hit_rate")
    if wanted is None or found is None or abs(found - wanted) <= HIT_MARGIN:
        return []
    return [
        f"{100 * found:.1f} % of the prompt tokens came from the prefix cache, the workload shares "
        f"{100 * wanted:.1f} %: the plan uses what the server says. A cold or small cache, blocks, or a router "
        "that does not keep shared prompts together make it less; a template that is cached, more."
    ]


def _doubts_of_time(m: Measurement) -> list[str]:
    out = []
    if 0 < m.ttft_ms.n < MIN_SAMPLES:
        out.append(
            f"n = {m.ttft_ms.n}: a P99 of fewer than {MIN_SAMPLES} is not reliable (it is likely below the true one)."
        )
    if m.arrivals.unfinished:
        out.append(
            f"{m.arrivals.unfinished} requests were in flight at the end and are in no percentile; "
            "a longer --drain-timeout lets them finish."
        )
    if m.arrivals.lost:
        out.append(
            f"{m.arrivals.lost} arrivals were lost with a worker; {m.rate_rps.get('sent', 0.0):.2f} requests a second "
            f"were sent, {m.rate_planned_rps:.2f} planned."
        )
    return out
