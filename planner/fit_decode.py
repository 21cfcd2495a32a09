"""How long a decode step takes, from a run: t(b), from each request's TPOT over the mean batch it shared.

The plan's curve goes on, scaled to the run, where the run has seen no batch so large.
"""

from dataclasses import replace

import numpy as np

from planner.config import Plan
from planner.models import DecodeModel
from planner.records import Floats, Records
from planner.statistics import nearest_rank

USUAL_GROWTH = 0.35  # of a step, that grows with the batch, where a run shows one batch size only
FAR = 1.2  # times the largest batch seen: from there on the plan's curve says more
PINNED = 0.85  # of the largest batch: one that is there for a third of the requests is held there
TRUSTED = (0.5, 1.5)  # factor on the plan's curve; outside, it is of another engine


def fit_decode(plan: Plan | None, sent: Records, instances: int, end_s: float) -> DecodeModel:
    """t(b), weighted by tokens. With nothing but one batch size, a step that grows by a third with it."""
    begun = sent.where(np.isfinite(sent.first_token_s) & (sent.answer_tokens > 1))
    usable = np.isfinite(begun.tpot_s) & begun.ok
    if not usable.any():
        return DecodeModel(0.0, 0.0, source="no TPOT was seen")
    last_s = np.where(np.isfinite(begun.last_token_s), begun.last_token_s, end_s)
    batch = shared_batch(begun.first_token_s, last_s)[usable] / instances
    rows = begun.where(usable)
    seen = nearest_rank(batch, 0.999)
    weights = np.sqrt(rows.answer_tokens)
    pinned = float((batch >= PINNED * seen).mean()) > 1 / 3
    model = replace(_line(batch, rows.tpot_s, weights, seen), source="this run", pinned=pinned)
    return _beyond(plan, model)


def _line(batch: Floats, tpot_s: Floats, weights: Floats, seen: float) -> DecodeModel:
    """Straight, and bent upwards where that is plain; pulled to a usual slope where the batch hardly varied."""
    mean_s = float(np.average(tpot_s, weights=weights**2))
    usual = USUAL_GROWTH * mean_s / max(float(batch.mean()), 1.0)
    columns = np.stack([np.ones(len(batch)), batch], axis=1)
    _, rest = _weighted(columns, tpot_s, weights)
    noise = float(np.sqrt((rest**2).mean()))
    prior = np.array([[0.0, noise / usual]])
    (alpha, beta), rest = _weighted(columns, tpot_s, weights, prior, np.array([noise]))
    alpha, beta = (alpha, max(beta, 0.0)) if alpha > 0 else (0.0, mean_s / float(batch.mean()))
    if float(np.ptp(batch)) > 0.5 * seen and len(batch) > 200:
        bent, rest_bent = _weighted(np.stack([*columns.T, batch**2], axis=1), tpot_s, weights)
        if bent.min() > 0 and (rest_bent**2).sum() < 0.97 * (rest**2).sum():
            alpha, beta, bend = bent.tolist()
            return DecodeModel(alpha, beta, bend, seen)
    return DecodeModel(float(alpha), float(beta), seen_batch=seen)


def _weighted(
    columns: Floats,
    values: Floats,
    weights: Floats,
    rows: Floats | None = None,
    aims: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Weighted least squares and what is left; ``rows`` and ``aims`` are further equations."""
    left, right = columns * weights[:, None], values * weights
    if rows is not None and aims is not None:
        left, right = np.concatenate([left, rows]), np.concatenate([right, aims])
    found: Floats = np.linalg.lstsq(left, right, rcond=None)[0].astype(np.float64)
    return found, (values - columns @ found) * weights


def _beyond(plan: Plan | None, model: DecodeModel) -> DecodeModel:
    """The plan's curve, scaled to the run, where the run saw no batch so large."""
    curve = plan.decode.curve if plan else None
    if curve is None or model.alpha_s <= 0:
        return model
    batches, tpots = (np.array(c, float) for c in zip(*curve, strict=True))
    scale = model.step_s(model.seen_batch) / (np.interp(model.seen_batch, batches, tpots) / 1000)
    more = batches > FAR * model.seen_batch
    if not more.any() or not TRUSTED[0] <= scale <= TRUSTED[1]:
        return model
    near = np.linspace(1, model.seen_batch, 8)
    x = np.concatenate([near, batches[more]])
    y = np.concatenate([[model.step_s(b) for b in near], scale * tpots[more] / 1000])
    bend, beta, alpha = np.polyfit(x, y, 2)
    if min(alpha, beta) < 0:
        return model
    top = float(batches[-1])
    source = "this run and the plan's curve"
    return DecodeModel(alpha, beta, max(bend, 0.0), top, source, model.pinned)


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
