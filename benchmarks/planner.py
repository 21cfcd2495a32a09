"""How good the planner is: ``python -m benchmarks.planner`` (``make bench-planner``).

Random clusters are played in virtual time. Everybody starts from the same wrong deployment, sees runs
of a realistic length and may change the deployment three times; what is left is checked on a long fresh
run. The oracle searches the emulated cluster itself for the fewest instances that keep both limits.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.planner_rivals import RIVALS, Rival
from benchmarks.planner_scenarios import SEEN, Scenario, scenario
from emulator.model import Deployment
from planner.verdict import Decision, Proposal

ORACLE = 8000  # requests of one of the oracle's runs
PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks-planner.md"
SHAPES = ((0.5, 0.5), (0.5, 1), (1, 0.5), (1.5, 1.5), (0.5, 1.6), (1.6, 0.5), (0.7, 0.7), (2, 1))


@dataclass
class Way:
    """What one of them did in one scenario."""

    rounds: list[Deployment] = field(default_factory=list)  # where it goes after 1, 2, 3 rounds
    ends: list[Deployment] = field(default_factory=list)  # where it is, if it stops there
    meets: list[bool] = field(default_factory=list)  # of these
    excess: float = 0.0
    wrong_side: bool = False
    infeasible: bool = False
    verdicts: list[str] = field(default_factory=list)
    errors: list[tuple[float, float]] = field(default_factory=list)  # predicted / found, TTFT, TPOT
    repeats: list[float] = field(default_factory=list)  # one run's P99 TTFT / another's, same place


@dataclass
class Result:
    """One scenario."""

    seed: int
    kind: str
    best: Deployment | None
    start: Deployment
    paths: dict[str, Way]
    words: str = ""


# -- the oracle ---------------------------------------------------------------------------------------


def oracle(s: Scenario) -> tuple[Deployment | None, int, int]:
    """The cheapest deployment that keeps both limits, and the fewest P and D by themselves."""
    if s.kind.startswith("infeasible"):
        return None, 0, 0
    caps = sorted({max(round(s.batch * f), 1) for f in (0.75, 1.0, 1.5)} | {256})
    many = 24

    def holds(p: int, d: int, cap: int) -> bool:
        there = replace(s.layout, prefill_instances=p, decode_instances=d, max_running_requests=cap)
        return s.meets(there, ORACLE, 500)

    p_least = _fewest(lambda p: any(holds(p, many, cap) for cap in (256, s.batch)), many)
    if p_least is None:
        return None, 0, 0
    found = [f for cap in caps if (f := _cheapest(holds, p_least, cap, many))]
    d_least = min((d for *_, d in found), default=many)
    if not found:
        return None, p_least, d_least
    _, p, d, cap, _ = min(found)
    best = replace(s.layout, prefill_instances=p, decode_instances=d, max_running_requests=cap)
    return best, p_least, d_least


def _cheapest(
    holds: Callable[[int, int, int], bool], p_least: int, cap: int, many: int
) -> tuple[int, int, int, int, int] | None:
    """Instances, P, D, cap, and the fewest D beside P enough."""
    d = _fewest(lambda d: holds(min(p_least + 4, many), d, cap), many)
    if d is None:
        return None
    for p, more in _near(p_least, d):
        if holds(p, more, cap):
            return p + more, p, more, cap, d
    return None


def _fewest(holds: Callable[[int], bool], at_most: int) -> int | None:
    low, high = 1, 1
    while not holds(high):
        if high >= at_most:
            return None
        low, high = high + 1, min(high * 2, at_most)
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _near(p: int, d: int) -> Iterator[tuple[int, int]]:
    """Both fewest together, then with one or two more."""
    for more in range(5):
        for k in range(more + 1):
            yield p + k, d + more - k


# -- one scenario ---------------------------------------------------------------------------------------


def start_of(s: Scenario, best: Deployment | None) -> Deployment:
    """Too small, too large or of the wrong shape."""
    rng = np.random.default_rng([99, s.seed])
    p, d = SHAPES[int(rng.integers(len(SHAPES)))]
    base = best or replace(s.layout, prefill_instances=4, decode_instances=4)
    return replace(
        s.layout,
        prefill_instances=max(round(base.prefill_instances * p), 1),
        decode_instances=max(round(base.decode_instances * d), 1),
        max_running_requests=max(round(s.batch * float(rng.choice((0.6, 1.0, 1.0, 2.0)))), 2),
    )


def judge(seed: int) -> Result:
    """Everybody in one scenario."""
    s = scenario(seed)
    best, p_least, d_least = oracle(s)
    start = start_of(s, best)
    paths = {name: walk(s, start, rival, n) for name, (rival, n) in RIVALS.items()}
    for path in paths.values():
        if best is not None:
            path.meets = [s.meets(d) for d in path.ends]
            last = path.ends[-1]
            size = last.prefill_instances + last.decode_instances
            path.excess = size / (best.prefill_instances + best.decode_instances) - 1
            path.wrong_side = _wrong(start, path.rounds[0], p_least, d_least)
    kind = (
        s.kind if best is not None or s.kind.startswith("infeasible") else f"infeasible ({s.kind})"
    )
    words = (
        f"{s.rate_rps:.1f}/s cv {s.cv:g} {s.layout.admission} {s.layout.routing_prefill} hit {s.hit} "
        f"chunk {s.engine.chunk_tokens} SLO {s.slo_ms[0]:.0f}/{s.slo_ms[1]:.1f} batch {s.batch} told {s.told}"
    )
    return Result(seed, kind, best, start, paths, words)


def walk(s: Scenario, start: Deployment, rival: Rival, rounds: int) -> Way:
    """Run, ask, change; at most so many times. A smaller deployment after a hold is for a run to confirm, so
    whoever stops there stays where it held."""
    way, now, promised = Way(), start, None
    past: list[Decision] = []
    for k in range(3):
        stay = now
        if k < rounds:
            records = s.play(now, SEEN, 100 + k)
            if promised is not None:
                way.errors.append(_error(s, now, promised, 100 + k))
                way.repeats.append(
                    s.p99s_ms(now, SEEN, 200 + k)[0] / s.p99s_ms(now, SEEN, 100 + k)[0]
                )
            then, decision = rival(s, now, records, past)
            way.infeasible |= then is None
            promised = None
            if decision is not None:
                past.append(decision)
                promised = decision.proposal if then not in (None, now) else None
            now = then or now
            stay = stay if decision is not None and decision.verdict == "hold" else now
            way.verdicts = [d.verdict for d in past]
        way.rounds.append(now)
        way.ends.append(stay)
    return way


def _error(s: Scenario, now: Deployment, promised: Proposal, seed: int) -> tuple[float, float]:
    ttft, tpot = s.p99s_ms(now, SEEN, seed)
    said = (promised.predicted_ttft_p99_ms, promised.predicted_tpot_p99_ms)
    return tuple(  # type: ignore[return-value]
        a / b - 1 if a is not None and b > 0 else math.nan
        for a, b in zip(said, (ttft, tpot), strict=True)
    )


def _wrong(start: Deployment, then: Deployment, p_least: int, d_least: int) -> bool:
    """The first step grew only the side that had enough, while the other was short."""
    p_short, d_short = start.prefill_instances < p_least, start.decode_instances < d_least
    p_up = then.prefill_instances > start.prefill_instances
    d_up = then.decode_instances > start.decode_instances
    return (p_short and not d_short and d_up and not p_up) or (
        d_short and not p_short and p_up and not d_up
    )


# -- the table --------------------------------------------------------------------------------------------


def table(results: list[Result]) -> str:
    """Scores with 95 % binomial intervals."""
    feasible = [r for r in results if r.best is not None]
    lines = [
        f"{len(results)} scenarios, {len(feasible)} feasible, a third with effects that the planner has no word for.",
        "",
        "| | both SLOs met after 3 rounds | after 2 | excess over the oracle's GPUs | first step on the wrong side |",
        "|---|---|---|---|---|",
    ]
    for name in RIVALS:
        paths = [r.paths[name] for r in feasible]
        good = [p.excess for p in paths if p.meets[2]]
        lines.append(
            f"| {name} | {share([p.meets[2] for p in paths])} | {share([p.meets[1] for p in paths])} | "
            f"{100 * float(np.mean(good)) if good else math.nan:.1f} % | {share([p.wrong_side for p in paths])} |"
        )
    mine = [r.paths["this planner"] for r in results]
    bad = [r.paths["this planner"].infeasible for r in results if r.best is None]
    alarms = [r.paths["this planner"].infeasible for r in feasible]
    errors = np.array(
        [e for p in mine for e in p.errors if np.isfinite(e).all()] or [(np.nan, np.nan)]
    )
    lines += [
        "",
        f"Infeasible recognised: {share(bad)}; false alarms: {share(alarms)}. Excess: where both were met.",
        f"Predicted P99s within 15 % of what the next deployment has: TTFT {share(list(abs(errors[:, 0]) <= 0.15))}, "
        f"TPOT {share(list(abs(errors[:, 1]) <= 0.15))}. Two runs of the same deployment are as near to each other in "
        f"TTFT: {share([abs(r - 1) <= 0.15 for p in mine for r in p.repeats])}.",
    ]
    return "\n".join(lines)


def share(flags: "list[bool] | list[np.bool_]") -> str:
    """``57 of 60 (86 .. 99 %)``: Wilson's interval."""
    n, k = len(flags), int(sum(map(bool, flags)))
    if not n:
        return "-"
    z, p = 1.96, k / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return f"{k} of {n} ({100 * max(low, 0):.0f} .. {100 * min(high, 1):.0f} %)"


def show(r: Result) -> str:
    """One scenario, for the eye."""
    path = r.paths["this planner"]
    steps = " -> ".join(_short(d) for d in (r.start, *path.rounds[:2], path.ends[-1]))
    good = "infeasible" if r.best is None else "".join("+" if m else "-" for m in path.meets)
    best = _short(r.best) if r.best else "none"
    errors = " ".join(f"({100 * a:+.0f} % {100 * b:+.0f} %)" for a, b in path.errors)
    wrong = " WRONG SIDE" if path.wrong_side else ""
    return f"{r.seed:4d} {good:10s} {steps}  best {best}  {path.verdicts} {errors}{wrong}  [{r.kind}; {r.words}]"


def _short(d: Deployment) -> str:
    return f"{d.prefill_instances}P{d.decode_instances}D/{d.max_running_requests}"


def main() -> None:
    """Play, print, and write the page when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=60)
    parser.add_argument("--full", action="store_true", help="300 scenarios")
    parser.add_argument("--first", type=int, default=0, help="number of the first scenario")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args()
    count = 300 if given.full else given.scenarios
    results = []
    with ProcessPoolExecutor(given.processes) as pool:
        for result in pool.map(judge, range(given.first, given.first + count)):
            results.append(result)
            print(show(result), file=sys.stderr, flush=True)
    text = table(results)
    print(text)
    if given.write:
        PAGE.write_text(f"# The planner beside others\n\n{__doc__}\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
