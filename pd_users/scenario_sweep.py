"""``--scenario decode-sweep``: t(batch) of one D, from concurrency steps on cached prompts."""

import numpy as np

from pd_users.scenario_load import Ask, Load
from pd_users.scenario_progress import Show
from pd_users.scenario_setting import Setting
from planner.engine_profile import DecodePoint, DecodeProfile, EngineProfile
from planner.engine_profile_fits import p99_known
from planner.errors import PlanError
from planner.records import Floats, Records

LIMIT_S = 300.0
OUTPUT_TOKENS = (32, 128)  # of an answer, at least and at most
SAMPLES = 8  # of a step, at least
KNOWN = 0.05  # relative half-width of the P99 at which a step is over
REACHED = 0.8  # of a step's batch; below it D or P gives no more, and larger steps are left out


def batches_up_to(cap: int) -> list[int]:
    """1, 2, 4, ... and the cap."""
    return sorted({2**k for k in range(cap.bit_length()) if 2**k <= cap} | {cap})


def decode_sweep(load: Load, setting: Setting, show: Show) -> None:
    """Send, step after step, each until its P99 is known or its share of the time is over."""
    answer = int(np.clip(np.mean(setting.output_tokens), *OUTPUT_TOKENS))
    context = float(np.mean(setting.input_tokens)) + float(np.mean(setting.output_tokens)) / 2
    prompt = max(round(context - answer / 2), 16)
    for _ in range(2 * setting.prefill):  # every P has the prompt in its cache then
        load.send("warm-up", _again(load, prompt, 2))
    batches = batches_up_to(setting.cap)
    for number, batch in enumerate(batches):
        if load.over:
            return
        end_s = load.now() + (load.limit_s - load.now()) / (len(batches) - number)
        step = _Step(load, setting, batch, show, min(end_s, load.limit_s))
        step.run(prompt, answer)
        if not step.reached():
            show.say(f"batch {batch} was not reached: what serves it, or the client, gives no more")
            return


def _again(load: Load, prompt: int, output: int) -> Ask:
    return Ask(prompt, output, load.shared(prompt, output))


class _Step:
    """One concurrency."""

    def __init__(self, load: Load, setting: Setting, batch: int, show: Show, end_s: float) -> None:
        self.phase = f"batch-{batch}"
        self._load, self._setting, self._batch, self._show = load, setting, batch, show
        self._end_s = end_s
        self._looked_at = 0

    def run(self, prompt: int, answer: int) -> None:
        """The first answers of the slots are of different lengths, so that they do not end in
        step, and the batch stays what it is."""
        slots = self._batch * self._setting.decode

        def ask(slot: int, turn: int) -> Ask:
            first = max(round(answer * (slot + 0.5) / slots), 2)
            return _again(self._load, prompt, answer if turn else first)

        self._load.closed_loop(self.phase, slots, ask, self._done)

    def _done(self) -> bool:
        load = self._load
        self._show.step(f"batch {self._batch}", load.now(), load.limit_s)
        if load.over or load.now() >= self._end_s:
            return True
        if len(load.rows) == self._looked_at:
            return False
        self._looked_at = len(load.rows)
        tpot_s = steady(load.records(), self.phase, self._slots)[1]
        return len(tpot_s) >= max(SAMPLES, self._slots) and p99_known(tpot_s)[1] <= KNOWN

    @property
    def _slots(self) -> int:
        return self._batch * self._setting.decode

    def reached(self) -> bool:
        """Whether the batch was as large as meant."""
        point = step_point(self._load.records(), self.phase, self._setting.decode)
        return point is None or point.batch >= REACHED * self._batch


def steady(records: Records, phase: str, slots: int) -> tuple[Records, Floats]:
    """The answers of a step that began when every slot had one, and their TPOTs."""
    step = records.where(records.class_name == phase)
    begun = np.sort(step.first_token_s[np.isfinite(step.first_token_s)])
    if len(begun) <= slots:
        return step.where(np.zeros(len(step), bool)), np.empty(0)
    full_s = begun[slots - 1]
    counted = step.where(step.ok & (step.first_token_s > full_s))
    tpot_s = counted.steady_tpot_s
    good = np.isfinite(tpot_s)
    return counted.where(good), tpot_s[good]


def step_point(records: Records, phase: str, decode: int) -> DecodePoint | None:
    """The batch on one D as it was, by how many answers were on their way, and the TPOT then."""
    slots = int(phase.rpartition("-")[2]) * decode
    counted, tpot_s = steady(records, phase, slots)
    if len(tpot_s) < 2:
        return None
    step = records.where((records.class_name == phase) & np.isfinite(records.first_token_s))
    low_s, high_s = counted.first_token_s.min(), counted.last_token_s.max()
    last_s = np.where(step.ok, step.last_token_s, np.inf)  # cut off: it ran to the end
    inside = np.clip(last_s, low_s, high_s) - np.clip(step.first_token_s, low_s, high_s)
    return DecodePoint(
        batch=round(float(inside.sum() / (high_s - low_s)) / decode, 2),
        tpot_ms=round(1000 * float(tpot_s.mean()), 4),
        tpot_p99_ms=round(1000 * p99_known(tpot_s)[0], 4),
        context_tokens=float(np.mean(counted.input_tokens + counted.output_tokens / 2)),
        samples=len(tpot_s),
    )


def decode_figures(records: Records, setting: Setting, source: str) -> EngineProfile:
    """What the records of a sweep say. Raises PlanError when they are too few."""
    phases = dict.fromkeys(p for p in records.class_name.tolist() if p.startswith("batch-"))
    points = [step_point(records, phase, setting.decode) for phase in phases]
    known = [p for p in points if p is not None]
    if not known:
        raise PlanError("decode-sweep: no step had time for two answers; give more with -t.")
    return EngineProfile(decode=DecodeProfile(kind="decode-sweep", source=source, points=known))
