"""How a run stands now, from the counts that are in: for the progress bar and the web page."""

from dataclasses import dataclass

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
    """The view of ``run`` now; percentiles are within 0.25 %."""
    seen = run.collector
    ok = seen.outcomes[OK]
    return LiveView(
        elapsed_s=min(max(run.now(), 0.0), run.window_s, run.stopped_at_s),
        window_s=run.window_s,
        reported=seen.reported,
        ok=ok,
        failed=seen.reported - ok,
        ttft_p50_ms=seen.ttft.quantile_ms(0.5),
        ttft_p99_ms=seen.ttft.quantile_ms(0.99),
        tpot_p50_ms=seen.tpot.quantile_ms(0.5),
        tpot_p99_ms=seen.tpot.quantile_ms(0.99),
        lag_p99_ms=seen.lag.quantile_ms(0.99),
    )
