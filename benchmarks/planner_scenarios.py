"""Random clusters, traffics and limits for the bench of the planner, all from one number each.

The cluster is played by ``emulator.cluster`` in virtual time, which shares no code with the planner.
Every third scenario has effects that the planner does not model.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from emulator.cluster import simulate
from emulator.model import Arrival, Deployment, Engine
from planner.measure import measure
from planner.measurement import Measurement, RunContext, Size, Slo
from planner.records import Records
from workloads.workload import load_workload

SEEN = 8000  # requests of a run that a planner sees: five to ten minutes
CHECKED = 12_000  # of the run that checks what it left behind
PROFILES = ("azure_conv_2023", "sharegpt_first_turn", "servegen_m_large", "arxiv_summarization")
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Scenario:
    """One cluster under one traffic, with the limits it is to keep."""

    seed: int
    engine: Engine
    layout: Deployment  # routing and admission; the counts are the start's
    lengths: tuple[Floats, Floats]
    cv: float
    hit: tuple[str, float]
    rate_rps: float
    slo_ms: tuple[float, float]
    batch: int  # the SLO's, by the engine's own figures
    told: bool  # whether the user's plan says routing and chunk
    kind: str = ""
    bursts: bool = False
    _known: dict[Any, Any] = field(default_factory=dict, repr=False)

    def arrivals(self, n: int, seed: int) -> list[Arrival]:
        """``n`` requests."""
        rng = np.random.default_rng([self.seed, seed])
        k = 1 / self.cv**2
        at_s = np.cumsum(rng.gamma(k, 1 / k, n)) / self.rate_rps
        inputs, outputs = (rng.choice(column, n) for column in self.lengths)
        hits = np.zeros(n)
        mode, share = self.hit
        if mode == "share":
            hits = inputs * share
        elif mode == "requests":
            hits = np.where(rng.random(n) < share, inputs - 1, 0)
        if self.bursts:  # for a tenth of the time nearly everything is cached
            hits = np.where((at_s % 50) < 5, inputs * 0.9, hits)
        columns = (at_s.tolist(), inputs.tolist(), outputs.tolist(), hits.astype(int).tolist())
        return [Arrival(a, int(i), int(o), (), h) for a, i, o, h in zip(*columns, strict=True)]

    def play(self, deployment: Deployment, n: int, seed: int) -> Records:
        """Records of one run, as a client sees it."""
        asked = self.arrivals(n, seed)
        done = simulate(asked, deployment, self.engine, seed)
        due = [a.at_s for a in asked]
        constant: dict[str, Any] = {
            "worker": 0, "class_name": "bench", "n_first": 1, "token_source": "usage", "clock": "kernel",
        }  # fmt: skip
        columns: dict[str, Any] = {name: [value] * n for name, value in constant.items()}
        columns |= {
            "index": list(range(n)),
            "due_s": due,
            "sent_s": [t + 0.0005 for t in due],
            "first_token_s": [r.first_token_s for r in done],
            "second_token_s": [r.second_token_s for r in done],
            "last_token_s": [r.last_token_s for r in done],
            "done_s": [r.last_token_s for r in done],
            "planned_input_tokens": [a.prompt_tokens for a in asked],
            "planned_output_tokens": [a.output_tokens for a in asked],
            "input_tokens": [a.prompt_tokens for a in asked],
            "cached_tokens": [a.hit_tokens for a in asked],
            "output_tokens": [a.output_tokens for a in asked],
            "outcome": ["ok" if r.outcome == "ok" else "unfinished" for r in done],
        }
        return Records.from_columns(columns)

    def measured(self, records: Records, deployment: Deployment) -> Measurement:
        """What a runner hands to the planner."""
        window_s = float(records.due_s[-1]) + 0.001
        size = Size(
            prefill_instances=deployment.prefill_instances,
            decode_instances=deployment.decode_instances,
            max_running_requests=deployment.max_running_requests,
        )
        context = RunContext(
            run_id="bench",
            seed=1,
            target="emulator",
            window_s=window_s,
            stopped_at_s=window_s,
            slo=Slo(ttft_p99_ms=self.slo_ms[0], tpot_p99_ms=self.slo_ms[1]),
            rate_planned_rps=self.rate_rps,
            deployment=size,
        )
        return measure(records, context)

    def p99s_ms(self, deployment: Deployment, n: int, seed: int) -> tuple[float, float]:
        """True P99s of a run, the beginning cut off; each deployment is played once."""
        key = (deployment, n, seed)
        if key not in self._known:
            r = self.play(deployment, n, seed)
            r = r.where(r.due_s >= r.due_s[-1] / 10)
            tpot = 1000 * r.tpot_s[np.isfinite(r.tpot_s)]
            ttft = np.where(r.ok, 1000 * r.ttft_s, np.inf)
            self._known[key] = (
                float(np.quantile(ttft, 0.99, method="higher")),
                float(np.quantile(tpot, 0.99, method="higher")) if len(tpot) else 0.0,
            )
        found: tuple[float, float] = self._known[key]
        return found

    def meets(self, deployment: Deployment, n: int = CHECKED, seed: int = 900) -> bool:
        """Whether both limits are kept."""
        ttft, tpot = self.p99s_ms(deployment, n, seed)
        return ttft <= self.slo_ms[0] and tpot <= self.slo_ms[1]


def lengths(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Input and output lengths: of a shipped profile, or lognormal."""
    if rng.random() < 0.5:
        sample = load_workload(str(rng.choice(PROFILES))).schedule(1, 1e9, 10).sample(20_000)
        inputs, outputs = sample.input_tokens.astype(float), sample.output_tokens.astype(float)
        return np.minimum(inputs, 16_000), np.clip(outputs, 2, 1000)
    means, cvs = (
        (rng.choice((512, 1024, 2048, 4096)), rng.choice((128, 256, 400))),
        rng.choice((0.0, 0.3, 0.5, 0.8), 2),
    )
    out = []
    for mean, cv in zip(means, cvs, strict=True):
        sigma2 = np.log1p(cv**2)
        drawn = np.exp(rng.normal(np.log(mean) - sigma2 / 2, np.sqrt(sigma2), 20_000))
        out.append(np.maximum(np.rint(drawn), 2.0))
    return out[0], out[1]


def scenario(seed: int) -> Scenario:
    """The scenario of a number."""
    rng = np.random.default_rng([77, seed])
    inputs, outputs = lengths(rng)
    engine = Engine(
        prefill_a=rng.uniform(0.004, 0.02),
        prefill_b=float(np.exp(rng.uniform(np.log(3e-5), np.log(1.5e-4)))),
        prefill_c=rng.uniform(0, 3e-9),
        decode_alpha=rng.uniform(0.005, 0.012),
        decode_beta=float(np.exp(rng.uniform(np.log(8e-5), np.log(5e-4)))),
        decode_gamma=rng.uniform(0, 3e-8),
        transfer_base=rng.uniform(0.002, 0.02),
        chunk_tokens=int(rng.choice((2048, 8192, 16_384))),
        kv_tokens=10_000_000,
        cache_tokens=0,
    )
    hit = (str(rng.choice(("none", "none", "share", "requests"))), float(rng.choice((0.3, 0.5))))
    kept = 1 - hit[1] if hit[0] != "none" else 1.0
    work_s = engine.prefill_b * inputs * kept + engine.prefill_c * (inputs * kept) ** 2
    busy_s = float(work_s.mean()) + engine.prefill_a / 3
    batch = int(rng.choice((16, 24, 32, 48, 64)))
    step_s = engine.step_s(batch, int(batch * (inputs.mean() + outputs.mean() / 2)))
    p_work, d_work = (
        busy_s,
        float(outputs.mean()) * step_s / batch,
    )  # instances a request per second
    rate = rng.uniform(1.5, 6) / max(p_work, d_work * rng.uniform(0.5, 1.5))
    rate = min(rate, 7 / d_work, 8 / p_work)
    floor_s = (
        float(np.quantile(work_s, 0.99))
        + engine.prefill_a
        + engine.transfer_s(int(inputs.mean()))
        + 0.02
    )
    slo = [1000 * floor_s * rng.uniform(1.6, 4), 1000 * step_s]
    kind = "feasible"
    if seed % 12 == 5:
        slo[0], kind = 1000 * floor_s * 0.6, "infeasible"
    elif seed % 12 == 11:
        slo[1], kind = 1000 * engine.step_s(1, 0) * 0.8, "infeasible"
    made = Scenario(
        seed=seed,
        engine=engine,
        layout=Deployment(
            routing_prefill=str(rng.choice(("round-robin", "round-robin", "least-load", "random"))),
            routing_decode=str(rng.choice(("round-robin", "least-load"))),
            admission=str(rng.choice(("early", "sequential"))),
        ),
        lengths=(inputs, outputs),
        cv=float(rng.choice((1.0, 1.0, 1.0, 1.5, 2.0))),
        hit=hit,
        rate_rps=rate,
        slo_ms=(slo[0], slo[1]),
        batch=batch,
        told=bool(rng.random() < 0.5),
        kind=kind,
    )
    return _beyond_the_model(made, rng) if seed % 3 == 2 else made


def _beyond_the_model(made: Scenario, rng: np.random.Generator) -> Scenario:
    """Something that the planner has no word for."""
    e, what = made.engine, int(rng.integers(4))
    if what == 0:  # steps that grow faster than a line, bent at the SLO's batch
        table = tuple(
            (float(b), e.decode_alpha + e.decode_beta * b * (0.6 + 0.4 * b / made.batch))
            for b in (1, 8, 16, 32, 64, 128)
        )
        return replace(
            made, engine=replace(e, decode_table=table), kind=f"{made.kind}, convex steps"
        )
    if what == 1:
        return replace(made, engine=replace(e, jitter=0.1), kind=f"{made.kind}, jitter 10 %")
    if what == 2:  # memory for about the SLO's batch, handed out without a reserve: retractions
        need = made.batch * (made.lengths[0].mean() + made.lengths[1].mean())
        kv = max(int(1.1 * need), int(1.3 * (made.lengths[0].max() + made.lengths[1].max())))
        return replace(
            made, engine=replace(e, kv_tokens=kv, kv_reserve=0), kind=f"{made.kind}, KV short"
        )
    return replace(made, bursts=True, kind=f"{made.kind}, bursts of hits")
