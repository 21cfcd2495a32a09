"""From what a probe or a sweep measured to figures: S(L), the best throughput, a P99 and its width."""

import numpy as np

from planner.engine_profile import PrefillProfile
from planner.errors import PlanError
from planner.records import Floats


def fit_prefill(
    tokens: Floats, ttft_s: Floats, saturated_tps: float | None, chunk_tokens: int
) -> PrefillProfile:
    """S(L) from low-load TTFTs (medians by length), and the best throughput of one instance.

    A TTFT holds what is beside P too (network, transfer). What the saturated P needs per iteration
    over b * L is its own setup; the rest of the intercept is overhead. Raises PlanError for fewer
    than two lengths.
    """
    lengths, times = _medians(tokens, ttft_s)
    if len(lengths) < 2:
        raise PlanError(f"prefill: found {len(lengths)} prompt length, needed are 2 or more.")
    intercept, slope, square = _quadratic(lengths, times)
    setup = 0.5 * intercept
    if saturated_tps:
        mean = float(np.mean(lengths))
        setup = chunk_tokens * (1 / saturated_tps - slope - square * mean)
    setup = float(np.clip(setup, 0.0, intercept))
    return PrefillProfile(
        kind="prefill-probe",
        source="prefill-probe",
        setup_ms=round(1000 * setup, 4),
        ms_per_token=round(1000 * slope, 7),
        ms_per_token2=float(f"{1000 * square:.6g}"),
        overhead_ms=round(1000 * (intercept - setup), 4),
        chunk_tokens=chunk_tokens,
        max_throughput_tokens_per_s=round(saturated_tps, 2) if saturated_tps else None,
        points=[(float(n), round(1000 * float(t), 4)) for n, t in zip(lengths, times, strict=True)],
    )


def _medians(tokens: Floats, ttft_s: Floats) -> tuple[Floats, Floats]:
    lengths = np.unique(tokens)
    return lengths, np.array([float(np.median(ttft_s[tokens == n])) for n in lengths])


def _quadratic(lengths: Floats, times: Floats) -> tuple[float, float, float]:
    """Intercept, slope, square, none negative, least in relative error; the square only from 4 up."""
    scale = float(lengths.max())
    x = lengths / scale
    for powers in ((0, 1, 2), (0, 1), (1,)):
        if len(powers) == 3 and len(lengths) < 4:
            continue
        columns = np.stack([x**p for p in powers], axis=1) / times[:, None]
        values = np.linalg.lstsq(columns, np.ones(len(x)), rcond=None)[0]
        if (values >= 0).all():
            found = dict(zip(powers, values.tolist(), strict=True))
            return found.get(0, 0.0), found.get(1, 0.0) / scale, found.get(2, 0.0) / scale**2
    raise PlanError("prefill: the time to the first token does not grow with the prompt length.")


def throughput_tps(done_s: Floats, tokens: Floats) -> float | None:
    """Tokens per second of a saturated server from when its prompts were done; None: too few.

    Prompts are done in bursts, one an iteration, so it is the slope of the line through the stairs
    and not a count between two moments; the first fifth, when the queue was filled, is left out.
    """
    order = np.argsort(done_s, kind="stable")
    moments, total = done_s[order], np.cumsum(tokens[order])
    keep = moments > moments[0] + 0.2 * (moments[-1] - moments[0]) if len(moments) else moments > 0
    if keep.sum() < 5 or np.ptp(moments[keep]) <= 0:
        return None
    middle = total - tokens[order] / 2  # a step counts half before and half after its rise
    return float(np.polyfit(moments[keep] - moments[0], middle[keep], 1)[0])


def p99_known(tpot_s: Floats) -> tuple[float, float]:
    """P99 and its relative 95 % half-width, taking TPOTs at a constant batch as normal.

    A step of a sweep has far fewer samples than the 299 that order statistics ask for.
    """
    n = len(tpot_s)
    if n < 3:
        return (float(tpot_s.max()) if n else float("nan")), float("inf")
    spread = float(tpot_s.std(ddof=1))
    p99 = float(tpot_s.mean()) + 2.326 * spread
    if n >= 300:
        p99 = float(np.sort(tpot_s)[int(np.ceil(0.99 * n)) - 1])
    return p99, 1.96 * spread * float(np.sqrt((1 + 2.326**2 / 2) / n)) / p99
