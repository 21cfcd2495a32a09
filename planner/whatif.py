"""What if there were more, or fewer: predicted P99s over a grid of P, D, cap and rate.

Each P at each rate is played once, and each D at each cap and rate, beside as many P as do not hold it
up; a cell puts both together. Cells near or beyond capacity are therefore a little kind to P.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from planner.calibrate import UNKNOWN_CAP, Calibration
from planner.errors import PlanError
from planner.measure import class_limits
from planner.measurement import Measurement
from planner.models import DecodeModel, Layout, PrefillModel
from planner.play_decode import play_decode
from planner.predict import Forecast, Limits, headroom_rps
from planner.records import Floats, Records
from planner.verdict import Decision

PLAYED = 4000  # requests a cell
MAX_CELLS = 2000
RATE_STEPS = 3  # of a range of rates


@dataclass(frozen=True, slots=True)
class Grid:
    """Which deployments and rates are asked about; rates are factors on the run's."""

    prefill: tuple[int, ...]
    decode: tuple[int, ...]
    caps: tuple[int, ...]
    rates: tuple[float, ...] = (1.0,)

    @property
    def cells(self) -> int:
        """How many there are."""
        return len(self.prefill) * len(self.decode) * len(self.caps) * len(self.rates)


@dataclass(frozen=True, slots=True)
class Cell:
    """One deployment at one rate."""

    prefill: int
    decode: int
    cap: int
    rate_rps: float
    ttft_p99_ms: float  # inf: beyond capacity
    tpot_p99_ms: float
    gpus: int
    holds: bool  # both SLOs, without any margin


@dataclass(frozen=True, slots=True)
class WhatIf:
    """All cells, the cheapest that holds at each rate, and how far the present deployment goes."""

    cells: tuple[Cell, ...]
    best: dict[float, Cell]
    now: Cell | None
    headroom_rps: float | None
    slo_ms: tuple[float, float]


def parse_grid(
    now: Layout, prefill: str = "", decode: str = "", caps: str = "", rates: str = ""
) -> Grid:
    """From texts such as 4:8, 48,64 and 1x:2x; what is not given is taken around what there is."""
    grid = Grid(
        _numbers("--prefill", prefill) or _around(now.prefill),
        _numbers("--decode", decode) or _around(now.decode),
        _numbers("--max-running-requests", caps) or (now.cap,),
        _factors(rates) or (1.0,),
    )
    if grid.cells > MAX_CELLS:
        raise PlanError(f"the grid has {grid.cells} cells, allowed are {MAX_CELLS}: narrow it.")
    return grid


def _around(n: int) -> tuple[int, ...]:
    return tuple(range(max(1, n - 2), n + 3))


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        low, colon, high = text.partition(":")
        if colon:
            found = tuple(range(int(low), int(high) + 1))
        else:
            found = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        found = (0,)
    if (text and not found) or any(n < 1 for n in found):
        raise PlanError(f"{option}: found {text!r}, allowed are 4:8 or 4,6,8.")
    return found


def _factors(text: str) -> tuple[float, ...]:
    try:
        low, colon, high = text.replace("x", "").partition(":")
        if colon:
            found = np.linspace(float(low), float(high), RATE_STEPS).round(4).tolist()
        else:
            found = [float(part) for part in low.split(",") if part.strip()]
    except ValueError:
        found = [0.0]
    if (text and not found) or any(not 0 < f <= 100 for f in found):
        raise PlanError(f"--rate: found {text!r}, allowed are 1x:2x or 1x,1.5x.")
    return tuple(found)


def models_of(decision: Decision) -> Calibration | None:
    """The models as run.json holds them; None for a run that has none."""
    told: dict[str, Any] = decision.attribution
    if "prefill_model" not in told:
        return None
    return Calibration(
        PrefillModel(**told["prefill_model"]),
        DecodeModel(**told["decode_model"]),
        Layout(**told["layout"]),
    )


def what_if(
    calibration: Calibration,
    m: Measurement,
    records: Records,
    grid: Grid,
    gpus: tuple[int, int] = (1, 1),
) -> WhatIf:
    """Play the grid under the run's traffic."""
    window = records.where(records.due_s >= (m.warmup_s or 0.0))
    base = Forecast.of(calibration, window, PLAYED, class_limits(window, m))
    slo = (m.slo.ttft_p99_ms, m.slo.tpot_p99_ms)
    cells: list[Cell] = []
    for factor in grid.rates:
        cells += _at_rate(base.faster(factor), calibration.layout, grid, gpus, slo)
    best: dict[float, Cell] = {}
    for cell in sorted(cells, key=lambda c: (c.gpus, c.ttft_p99_ms)):
        if cell.holds:
            best.setdefault(cell.rate_rps, cell)
    layout = calibration.layout
    here = (layout.prefill, layout.decode, layout.cap)
    now = next((c for c in cells if (c.prefill, c.decode, c.cap) == here), None)
    limits = Limits(slo[0] / 1000, slo[1] / 1000)
    return WhatIf(tuple(cells), best, now, headroom_rps(base, layout, limits), slo)


def _at_rate(
    f: Forecast, layout: Layout, grid: Grid, gpus: tuple[int, int], slo: tuple[float, float]
) -> list[Cell]:
    plenty = max(grid.prefill)
    while f.prefill.utilisation(f.traffic, plenty) > 0.7:
        plenty += 1
    beside_s = f.prefill_times_s(plenty, layout.routing_prefill)
    out = []
    for d in grid.decode:
        for cap in grid.caps:
            there = replace(layout, prefill=plenty, decode=d, cap=cap)
            played = play_decode(f.decode, there, f.traffic, beside_s)
            load = f.decode_utilisation(there)
            after_s = played.ttft_s - beside_s
            tpot_ms = 1000 * f.tpot_p99_s(played.tpot_s)
            for p in grid.prefill:
                ttft_ms = _ttft_ms(f, p, layout.routing_prefill, after_s, load)
                cost = p * gpus[0] + d * gpus[1]
                holds = ttft_ms <= slo[0] and tpot_ms <= slo[1]
                rate = round(f.traffic.rate_rps, 3)
                out.append(Cell(p, d, cap, rate, ttft_ms, tpot_ms, cost, holds))
    return out


def _ttft_ms(f: Forecast, p: int, routing: str, after_s: Floats, decode_load: float) -> float:
    if decode_load >= 1 or f.prefill.utilisation(f.traffic, p) >= 1:
        return math.inf
    return 1000 * f.ttft_p99_s(f.prefill_times_s(p, routing) + after_s)


# -- for people --------------------------------------------------------------------------------------------


def table(found: WhatIf) -> Table:
    """The cells, cheapest first at each rate; the best is marked, what misses an SLO is dimmed."""
    out = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("req/s", "P", "D", "max running", "GPUs", "TTFT P99 ms", "TPOT P99 ms", ""):
        out.add_column(name, justify="right" if name else "left", no_wrap=True)
    order = sorted(found.cells, key=lambda c: (c.rate_rps, c.gpus, c.prefill, c.decode, c.cap))
    for cell in order:
        best = found.best.get(cell.rate_rps) == cell
        mark = "<- cheapest that holds" if best else "" if cell.holds else "misses"
        style = "bold green" if best else "" if cell.holds else "dim"
        out.add_row(*(Text(text, style) for text in (*_cells(cell), mark)))
    return out


def _cells(cell: Cell) -> Sequence[str]:
    ttft = "over capacity" if math.isinf(cell.ttft_p99_ms) else f"{cell.ttft_p99_ms:.0f}"
    cap = "-" if cell.cap >= UNKNOWN_CAP else str(cell.cap)
    return (
        f"{cell.rate_rps:.2f}",
        str(cell.prefill),
        str(cell.decode),
        cap,
        str(cell.gpus),
        ttft,
        f"{cell.tpot_p99_ms:.1f}",
    )


def around(decision: Decision, m: Measurement, records: Records) -> WhatIf | None:
    """A small grid about the present and the proposed deployment, for the report; None without models."""
    calibration = models_of(decision)
    if calibration is None or calibration.prefill.slope_s <= 0 or calibration.decode.alpha_s <= 0:
        return None
    now, then = calibration.layout, decision.proposal
    sides = []
    for here, there in (
        (now.prefill, then.prefill_instances if then else now.prefill),
        (now.decode, then.decode_instances if then else now.decode),
    ):
        low, high = min(here, there), max(here, there)
        step = max(1, -(-(high - low) // 4))
        picked = {*range(low, high + 1, step), high, max(low - 1, 1), high + 1}
        sides.append(tuple(sorted(picked)))
    cap = (then.max_running_requests if then else None) or now.cap
    return what_if(calibration, m, records, Grid(sides[0], sides[1], (cap,)))
