"""What the run itself says of the engine: how long a prefill takes, how a decode step grows with the
batch. Both from what a client sees; the plan's figures stand in where the run shows too little.

prefill   S(L) = slope * L, plus a constant overhead (network, transfer, scheduling). The overhead and a
          first slope come from the quickest answers of each length (nobody was before them). Where
          P is the bottleneck, the slope is the one with which a simulation of the very arrivals
          gives the TTFT that was seen.
decode    t(b) = alpha + beta * b, from each request's TPOT over the mean batch that it shared.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from planner.queueing import assign, simulate_packed
from planner.records import Floats, Records

MIN_OVERHEAD_S = 0.001
GRID = 24
DEFAULT_CHUNK_TOKENS = 8192.0  # SGLang's and vLLM's on large GPUs


@dataclass(frozen=True, slots=True)
class PrefillModel:
    """S(L) = slope_s * L in iterations of ``chunk_tokens``; overhead_s comes on top."""

    slope_s: float
    overhead_s: float
    source: str
    chunk_tokens: float = DEFAULT_CHUNK_TOKENS
    setup_s: float = 0.0  # of one iteration

    def ttft(
        self, due_s: Floats, tokens: Floats, instances: int, routing: str, seed: int = 0
    ) -> Floats:
        """TTFT of the P part for these arrivals: wait + service + overhead."""
        number = assign(due_s, self.slope_s * tokens, instances, routing, seed)
        out = np.empty(len(due_s))
        for k in range(instances):
            mine = number == k
            out[mine] = simulate_packed(
                due_s[mine], tokens[mine], self.slope_s, self.chunk_tokens, self.setup_s
            )
        return out + self.overhead_s

    def utilisation(self, due_s: Floats, tokens: Floats, instances: int) -> float:
        """Work offered over work that can be done."""
        span_s = max(float(due_s[-1] - due_s[0]), 1e-9)
        return float(self.slope_s * tokens.sum()) / (span_s * instances)


@dataclass(frozen=True, slots=True)
class DecodeModel:
    """t(b) = alpha_s + beta_s * b; ``mean_batch`` and ``busy_batch`` are what one D was seen with."""

    alpha_s: float
    beta_s: float
    mean_batch: float
    busy_batch: float
    source: str

    def step_s(self, batch: float) -> float:
        """One step at this batch."""
        return self.alpha_s + self.beta_s * batch

    def largest_batch(self, tpot_slo_s: float) -> int:
        """Largest batch whose step is within the limit; 0: none."""
        if self.step_s(1) > tpot_slo_s:
            return 0
        if self.beta_s <= 0:
            return 100_000
        return int((tpot_slo_s - self.alpha_s) / self.beta_s + 1e-9)


def fit_decode(ok: Records, instances: int) -> DecodeModel:
    """From successes with at least two tokens."""
    rows = ok.where(np.isfinite(ok.tpot_s) & (ok.output_tokens >= 8))
    if len(rows) < 10:
        rows = ok.where(np.isfinite(ok.tpot_s))
    if not len(rows):
        return DecodeModel(0.0, 0.0, 0.0, 0.0, "no TPOT was seen")
    shared = shared_batch(rows.first_token_s, rows.last_token_s) / instances
    weights = np.sqrt(rows.answer_tokens)
    beta, alpha = np.polyfit(shared, rows.tpot_s, 1, w=weights)
    if not (beta > 0 and np.ptp(shared) > 0.2 * shared.mean()):
        beta = 0.0
        alpha = float(np.average(rows.tpot_s, weights=rows.answer_tokens))
    if alpha < 0:
        alpha, beta = 0.0, float(np.average(rows.tpot_s) / max(shared.mean(), 1e-9))
    busy = float(np.quantile(shared, 0.9))
    return DecodeModel(float(alpha), float(beta), float(shared.mean()), busy, "this run")


def shared_batch(begin_s: Floats, end_s: Floats) -> Floats:
    """For each request the mean number of requests, itself included, that decoded while it did."""
    times = np.concatenate([begin_s, end_s])
    change = np.concatenate([np.ones(len(begin_s)), -np.ones(len(end_s))])
    order = np.argsort(times, kind="stable")
    at = times[order]
    level = np.cumsum(change[order])
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(at))])

    def integral(moments: Floats) -> Floats:
        k = np.clip(np.searchsorted(at, moments, side="right") - 1, 0, len(at) - 1)
        return np.asarray(area[k] + level[k] * (moments - at[k]))

    span = np.maximum(end_s - begin_s, 1e-9)
    return np.asarray((integral(end_s) - integral(begin_s)) / span)


def fit_envelope(ok: Records, chunk_tokens: float, setup_s: float) -> PrefillModel:
    """From the quickest answers of each length: what a prefill takes when nobody is before it."""
    slope_s, overhead_s, source = _quickest(ok)
    return PrefillModel(slope_s, overhead_s, source, chunk_tokens, setup_s)


def _quickest(ok: Records) -> tuple[float, float, str]:
    tokens, ttft_s = ok.effective_tokens, ok.ttft_s
    if len(ok) < 20:
        slope = float(np.min(ttft_s / tokens)) if len(ok) else 0.0
        return max(slope, 0.0), MIN_OVERHEAD_S, "too few answers"
    # Lower hull: every line that lies below all points; the one that is highest at the mean length.
    edges = np.unique(np.quantile(tokens, np.linspace(0, 1, 11)))
    if len(edges) < 2:
        return float(ttft_s.min() / tokens[0]), MIN_OVERHEAD_S, "one prompt length"
    lengths, quickest = [], []
    for low, high in pairwise(edges):
        inside = (tokens >= low) & (tokens <= high)
        if inside.any():
            k = np.flatnonzero(inside)[np.argmin(ttft_s[inside])]
            lengths.append(float(tokens[k]))
            quickest.append(float(ttft_s[k]))
    if len(set(lengths)) < 2:
        return quickest[0] / max(lengths[0], 1), MIN_OVERHEAD_S, "one prompt length"
    slope, overhead = _below(np.array(lengths), np.array(quickest))
    return slope, max(overhead, MIN_OVERHEAD_S), "the quickest answers"


def _below(x: Floats, y: Floats) -> tuple[float, float]:
    """The line under all points whose mean distance to them is least (L1, by trying pairs)."""
    best, line = math.inf, (0.0, float(y.min()))
    for i in range(len(x)):
        for j in range(len(x)):
            if x[j] <= x[i]:
                continue
            slope = (y[j] - y[i]) / (x[j] - x[i])
            offset = y[i] - slope * x[i]
            gap = y - (offset + slope * x)
            if slope > 0 and gap.min() > -1e-9 and gap.mean() < best:
                best, line = float(gap.mean()), (float(slope), float(offset))
    return line


def fit_queue(
    records: Records, envelope: PrefillModel, instances: int, routing: str
) -> PrefillModel:
    """The slope with which the simulated queue gives the TTFTs that were seen, overhead kept."""
    seen = records.ok
    due_s, tokens, ttft_s = records.due_s, records.effective_tokens, records.ttft_s
    levels = np.array([0.25, 0.5, 0.75, 0.9, 0.97])
    target = np.log(np.quantile(ttft_s[seen], levels))

    def error(slope: float) -> float:
        model = replace(envelope, slope_s=slope)
        simulated = model.ttft(due_s, tokens, instances, routing)[seen]
        return float(np.abs(np.log(np.quantile(simulated, levels)) - target).mean())

    span_s = max(float(due_s[-1] - due_s[0]), 1e-9)
    balance = span_s * instances / float(tokens.sum())  # utilisation 1
    low, high = 0.05 * balance, max(20 * balance, 2 * envelope.slope_s)
    grid = np.geomspace(low, high, GRID)
    for _ in range(3):
        errors = [error(float(s)) for s in grid]
        k = int(np.argmin(errors))
        grid = np.linspace(grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)], 9)
    best = float(grid[int(np.argmin([error(float(s)) for s in grid]))])
    return replace(envelope, slope_s=best, source="this run's queue")
