"""Decode: a measured curve. The TPOT limit caps the batch, and the batch gives the throughput."""

from collections.abc import Sequence

import numpy as np

from planner.errors import PlanError


def throughput_at_tpot_tps(
    curve: Sequence[tuple[float, float]], tpot_ms: float
) -> tuple[float, float]:
    """Largest batch whose TPOT is within the limit, and the tokens/s at that limit.

    The throughput is a parabola through the points' throughput over TPOT, as in the paper's script
    (linear interpolation with fewer than four points). Beyond the last point of the curve nothing is
    known, so the batch stays there.
    """
    batches, tpots = (np.array(c, float) for c in zip(*curve, strict=True))
    if tpot_ms < tpots[0]:
        raise PlanError(
            f"slo.tpot_p99_ms: {tpot_ms:g} ms is less than the curve's first point ({tpots[0]:g} ms "
            f"at batch {batches[0]:g}); no number of instances helps."
        )
    batch = float(np.interp(tpot_ms, tpots, batches))
    at_ms = min(tpot_ms, float(tpots[-1]))
    tps = 1000 * batches / tpots
    if len(curve) < 4:
        return batch, float(np.interp(at_ms, tpots, tps))
    return batch, float(np.polyval(np.polyfit(tpots, tps, 2), at_ms))
