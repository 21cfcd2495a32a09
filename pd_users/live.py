"""How a run stands now, from the records that are in: for the progress bar and the web page."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pd_users.records import OK
from pd_users.run import Run


@dataclass(frozen=True, slots=True)
class LiveView:
    """Figures of the moment; a percentile is None while there is nothing to take it from."""

    elapsed_s: float
    window_s: float
    reported: int
    ok: int
    failed: int
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    tpot_p50_ms: float | None
    tpot_p99_ms: float | None
    lag_p99_ms: float | None


def live_view(run: Run) -> LiveView:
    """The view of ``run`` now."""
    rows = run.collector.columns()
    ok = rows["outcome"] == OK
    n, n_first = rows["output_tokens"][ok], rows["n_first"][ok]
    spread = n > n_first
    span_s = (rows["last_token_s"] - rows["first_token_s"])[ok][spread]
    tpot_ms = 1000 * span_s / (n - n_first)[spread]
    ttft_ms = 1000 * (rows["first_token_s"] - rows["due_s"])[ok]
    lag_ms = 1000 * (rows["sent_s"] - rows["due_s"])[np.isfinite(rows["sent_s"])]
    return LiveView(
        elapsed_s=min(max(run.now(), 0.0), run.window_s, run.stopped_at_s),
        window_s=run.window_s,
        reported=len(ok),
        ok=int(ok.sum()),
        failed=int(len(ok) - ok.sum()),
        ttft_p50_ms=_nearest_rank(ttft_ms, 0.5),
        ttft_p99_ms=_nearest_rank(ttft_ms, 0.99),
        tpot_p50_ms=_nearest_rank(tpot_ms, 0.5),
        tpot_p99_ms=_nearest_rank(tpot_ms, 0.99),
        lag_p99_ms=_nearest_rank(lag_ms, 0.99),
    )


def _nearest_rank(values: NDArray[Any], q: float) -> float | None:
    if not len(values):
        return None
    k = max(int(np.ceil(q * len(values))) - 1, 0)
    return float(np.partition(values, k)[k])
