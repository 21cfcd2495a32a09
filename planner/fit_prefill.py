"""How long a prefill takes, from a run: S(L) on P, and the overhead beside it.

The start is what the quickest answers of each length took, since nobody was before them. Then the
figures are those with which the played pipeline gives the TTFTs that were seen: their quantiles, for
short, middle and long prompts, from the first request on, when the queues were empty.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from planner.fitting import fit
from planner.models import DecodeModel, Layout, PrefillModel, Traffic
from planner.pipeline import play
from planner.play_prefill import prefill_s
from planner.records import Flags, Floats, Ints, Records

EDGES = (1 / 3, 2 / 3, 0.92)  # of prompt length: the longest make the P99
LEVELS = np.array([0.03, 0.25, 0.5, 0.75, 0.9, 0.97])
PLAYED, PLAYED_WHOLE = 3000, 1500  # requests in a play of P alone, and of both
LEAST_S = 1e-4
OF_INTERCEPT = 0.35  # how much of what does not depend on the length is first laid at P's door
BUSIEST = 0.9  # what P is first taken to have been used to, at the most
CURVED = 0.05  # how much of the rest is first taken for the square


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first requests of a run, and how long their first tokens took."""

    traffic: Traffic
    seen: Flags
    group: Ints
    wanted: Floats  # logarithms of the quantiles of TTFT from sent, by length

    def residuals(self, times_s: Floats) -> Floats:
        """How far played times are from what was seen."""
        return np.log(np.maximum(_quantiles(times_s[self.seen], self.group), LEAST_S)) - self.wanted


def beginning(sent: Records, n: int) -> Beginning:
    """Of the requests that were sent, in order."""
    rows = sent.where(np.arange(len(sent)) < n)
    order = np.argsort(rows.sent_s, kind="stable")
    rows = rows.where(order)
    at_s = rows.sent_s - rows.sent_s[0]
    ttft_s = rows.first_token_s - rows.sent_s
    seen = np.isfinite(ttft_s)
    edges = np.unique(np.quantile(rows.effective_tokens[seen], EDGES))
    group = np.digitize(rows.effective_tokens[seen], edges)
    wanted = np.log(np.maximum(_quantiles(ttft_s[seen], group), LEAST_S))
    traffic = Traffic(at_s, rows.effective_tokens, rows.answer_tokens)
    return Beginning(traffic, seen, group, wanted)


def _quantiles(times_s: Floats, group: Ints) -> Floats:
    return np.concatenate([np.quantile(times_s[group == k], LEVELS) for k in np.unique(group)])


def fit_alone(
    start: PrefillModel, layout: Layout, begun: Beginning, join_s: float
) -> tuple[PrefillModel, float]:
    """P alone, where no slot of D was short; ``join_s`` is the wait for a step of D."""
    return _fit(
        start,
        begun,
        lambda model: (
            join_s + prefill_s(model, begun.traffic, layout.prefill, layout.routing_prefill)
        ),
    )


def fit_whole(
    start: PrefillModel, decode: DecodeModel, layout: Layout, begun: Beginning
) -> tuple[PrefillModel, float]:
    """Both, so that what waited for D is not laid at P's door."""
    return _fit(start, begun, lambda model: play(model, decode, layout, begun.traffic).ttft_s)


def _fit(
    start: PrefillModel, begun: Beginning, played: Callable[[PrefillModel], Floats]
) -> tuple[PrefillModel, float]:
    mean = float(begun.traffic.input_tokens.mean())

    def model(values: Floats) -> PrefillModel:
        setup, linear, square, overhead = values.tolist()
        return replace(
            start,
            setup_s=setup,
            slope_s=linear / mean,
            square_s=square / mean**2,
            overhead_s=overhead,
            source="this run",
        )

    parts = (start.setup_s, start.slope_s * mean, start.square_s * mean**2, start.overhead_s)
    found = fit(
        lambda values: begun.residuals(played(model(values))),
        np.maximum(np.array(parts), LEAST_S),
    )
    return model(found.values), found.error


# -- the start -------------------------------------------------------------------------------------------


def quickest(ok: Records, chunk_tokens: float) -> PrefillModel:
    """From the lower edge of TTFT over length."""
    tokens, ttft_s = ok.effective_tokens, ok.first_token_s - ok.sent_s
    intercept_s, slope_s = _edge(tokens, ttft_s)
    mean = float(tokens.mean())
    return PrefillModel(
        slope_s=slope_s * (1 - CURVED),
        overhead_s=intercept_s * (1 - OF_INTERCEPT),
        setup_s=intercept_s * OF_INTERCEPT,
        square_s=slope_s * CURVED / mean,
        chunk_tokens=chunk_tokens,
        source="the quickest answers",
    )


def able(start: PrefillModel, ok: Records, instances: int) -> PrefillModel:
    """The start, no slower than P was: all answers came through it, and the quickest had the overhead in it.

    Where nearly all waited, for a slot of D or for P, the quickest answers tell little else.
    """
    rate = len(ok) / max(float(ok.done_s.max() - ok.sent_s.min()), 1e-9)
    limit_s = BUSIEST * instances / rate
    factor = min(1.0, limit_s / max(start.work_s(ok.effective_tokens), 1e-9))
    return replace(
        start,
        setup_s=factor * start.setup_s,
        slope_s=factor * start.slope_s,
        square_s=factor * start.square_s,
        overhead_s=min(start.overhead_s, float((ok.first_token_s - ok.sent_s).min())),
    )


def _edge(tokens: Floats, ttft_s: Floats) -> tuple[float, float]:
    """Intercept and slope of the line below all quickest answers."""
    lengths, quick = [], []
    for low, high in pairwise(np.unique(np.quantile(tokens, np.linspace(0, 1, 11)))):
        inside = np.flatnonzero((tokens >= low) & (tokens <= high))
        if len(inside):
            k = inside[np.argmin(ttft_s[inside])]
            lengths.append(float(tokens[k]))
            quick.append(float(ttft_s[k]))
    if len(set(lengths)) > 1 and np.ptp(lengths) > 0.02 * max(lengths):
        return _below(np.array(lengths), np.array(quick))
    least_s = float(np.quantile(ttft_s, LEVELS[0]))
    return 0.1 * least_s, 0.9 * least_s / float(tokens.mean())  # one length: mostly compute


def _below(x: Floats, y: Floats) -> tuple[float, float]:
    """The rising line under all points whose mean distance to them is least (L1, by trying pairs)."""
    best, line = math.inf, (0.1 * float(y.min()), 0.9 * float((y / x).min()))
    for i in range(len(x)):
        for j in range(len(x)):
            if x[j] <= x[i]:
                continue
            slope = (y[j] - y[i]) / (x[j] - x[i])
            offset = y[i] - slope * x[i]
            gap = y - (offset + slope * x)
            if slope > 0 and offset > 0 and gap.min() > -1e-9 and gap.mean() < best:
                best, line = float(gap.mean()), (float(offset), float(slope))
    return line
