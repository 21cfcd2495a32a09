"""``--scenario prefill-probe``: S(L) at low load, then the best throughput of a saturated P."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pd_users.scenario_load import Ask, Load
from pd_users.scenario_progress import Show
from pd_users.scenario_setting import Setting
from planner.engine_profile import EngineProfile, PrefillProfile
from planner.engine_profile_fits import fit_prefill, throughput_tps
from planner.errors import PlanError
from planner.records import Records

LIMIT_S = 40.0
LEVELS = (0.1, 0.3, 0.5, 0.75, 0.99)  # of the workload's prompt lengths
FACTORS = (0.25, 0.5, 1.0, 1.5, 2.0)  # of its middle, where all are alike
ROUNDS = (5, 15)  # low load: at least, at most
SATURATED_S = 12.0
LEAST_TOKENS = 32


def lengths_around(input_tokens: NDArray[np.int64]) -> list[int]:
    """Five prompt lengths that cover a workload, far enough apart to fit a curve through."""
    found = np.quantile(input_tokens, LEVELS)
    if found[-1] < 2 * found[0]:
        found = np.array(FACTORS) * found[2]
    whole = {max(round(float(n)), LEAST_TOKENS * (k + 1)) for k, n in enumerate(found)}
    return sorted(whole)


def prefill_probe(load: Load, setting: Setting, show: Show) -> None:
    """Send: first one at a time, then as many as fill every P. Raises FailingError."""
    lengths = lengths_around(setting.input_tokens)
    _one_at_a_time(load, lengths, show)
    if load.over:
        return
    began_s = load.now()
    slots = saturating(lengths, setting)
    until_s = min(began_s + SATURATED_S, load.limit_s)
    order = np.random.default_rng(setting.seed).permutation(np.resize(lengths, 1000)).tolist()

    def ask(slot: int, turn: int) -> Ask:
        return Ask(order[(slot + turn * slots) % len(order)], 1)

    def done() -> bool:
        now_s = load.now()
        show.step("saturating", now_s, until_s)
        return now_s >= until_s or load.over

    load.closed_loop("saturated", slots, ask, done)


def saturating(lengths: Sequence[int], setting: Setting) -> int:
    """Requests at a time that leave no P idle: two iterations for each, as far as D has slots."""
    each = max(math.ceil(2 * setting.chunk_tokens / float(np.mean(lengths))), 4)
    return min(each * setting.prefill, setting.decode * setting.cap)


def _one_at_a_time(load: Load, lengths: Sequence[int], show: Show) -> None:
    budget_s = load.limit_s - SATURATED_S if load.limit_s > 2 * SATURATED_S else load.limit_s / 2
    for tokens in lengths:
        if load.over:
            return
        load.send("warm-up", Ask(tokens, 1))
    for number in range(ROUNDS[1]):
        for tokens in lengths:
            if load.over:
                return
            show.step("low load", load.now(), load.limit_s)
            load.send("low-load", Ask(tokens, 1))
        if number + 1 >= ROUNDS[0] and load.now() > budget_s:
            return


def prefill_figures(records: Records, setting: Setting, source: str) -> EngineProfile:
    """What the records of a probe say. Raises PlanError when they are too few."""
    low = records.where(records.ok & (records.class_name == "low-load"))
    full = records.where(records.ok & (records.class_name == "saturated"))
    if not len(low):
        raise PlanError("prefill-probe: no request at low load succeeded.")
    whole_tps = throughput_tps(full.first_token_s, full.effective_tokens)
    tps = whole_tps / setting.prefill if whole_tps else None
    planned = low.planned_input_tokens.astype(float)
    lengths = {n: float(np.median(low.effective_tokens[planned == n])) for n in np.unique(planned)}
    tokens = np.array([lengths[n] for n in planned])
    fitted = fit_prefill(tokens, low.first_token_s - low.sent_s, tps, setting.chunk_tokens)
    told: PrefillProfile = fitted.model_copy(update={"source": source})
    return EngineProfile(prefill=told)
