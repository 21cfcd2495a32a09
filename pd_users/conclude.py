"""The end of a run: records and facts in, verdict and files out. Called once for each run."""

import locust

import logging
import platform
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gevent
import numpy as np
from rich.console import Console

from pd_users import VERSION
from pd_users.accounting import account
from pd_users.cures import cures_for, evidence_of, pages_for, tpot_jitter
from pd_users.endpoint import shown_url
from pd_users.metrics import Collector
from pd_users.prepare import Prepared
from pd_users.records import LOST, OK
from pd_users.run import Run
from pd_users.seats import Seat
from pd_users.spec import RunSpec
from planner.decision import Decision, decide
from planner.measure import measure
from planner.measurement import Measurement, RunContext, Size, Slo
from planner.records import Records
from planner.report import console
from planner.run_files import write_run
from planner.window import settled_at

log = logging.getLogger(__name__)


@dataclass
class Conclusion:
    """What came out, and where it lies."""

    measurement: Measurement
    decision: Decision
    folder: Path | None
    to_stderr: bool = False

    @property
    def exit_code(self) -> int:
        """The verdict's."""
        return self.decision.exit_code

    @property
    def report_path(self) -> Path | None:
        """The report, when it could be written."""
        return self.folder / "report.html" if self.folder else None

    def show(self) -> None:
        """Print the table and the verdict."""
        out = Console(stderr=self.to_stderr, soft_wrap=not sys.stdout.isatty())
        out.print(console(self.measurement, self.decision))
        if self.folder is not None:
            out.print(f"Files: {self.folder}/", markup=False, highlight=False)

    def for_page(self) -> dict[str, Any]:
        """What the capacity page shows; plain text only."""
        decision = self.decision
        return {
            "headline": decision.headline(),
            "proposal": decision.next_command,
            "reasons": decision.reasons,
            "exit_code": decision.exit_code,
            "folder": str(self.folder) if self.folder else "",
        }


def conclude(run: Run, prepared: Prepared) -> Conclusion:
    """Account, measure, decide, write. A full disk costs neither the verdict nor the files."""
    prepared.scraper.stop()
    due, collector = prepared.traffic.due_until(run.stopped_at_s), run.collector
    unseen = ~collector.is_reported(due["index"])
    missing = {name: column[unseen] for name, column in due.items()}
    records = Records.from_columns(account(collector.columns(), missing))
    outcomes = Counter({**collector.outcomes, LOST: int(unseen.sum())})
    context = context_of(run, prepared, outcomes, records)
    # In a thread: the web page answers meanwhile, and workers do not believe the master gone.
    pool = gevent.get_hub().threadpool
    measurement = pool.apply(measure, (records, context))
    judged = (prepared.plan, measurement, records, run.spec.options.confidence)
    decision = pool.apply(decide, judged)
    cures = _cures(run, measurement)
    decision = decision.model_copy(update={"reasons": [*decision.reasons, *cures]})
    folder = pool.apply(_write, (run.spec, measurement, decision, records))
    return Conclusion(measurement, decision, folder)


def _write(
    spec: RunSpec, measurement: Measurement, decision: Decision, records: Records
) -> Path | None:
    """The folder of the run: where it was asked for, else in the system's temporary directory."""
    asked = Path(spec.options.run_dir) / spec.run_id
    try:
        write_run(asked, measurement, decision, records)
        return asked
    except OSError as error:
        log.error("%s: nothing could be written there: %s.", asked, error.strerror or error)
    try:
        folder = Path(tempfile.mkdtemp(prefix="pd-load-test-")) / spec.run_id
        write_run(folder, measurement, decision, records)
        return folder
    except OSError as error:
        log.error("Nor in the temporary directory: %s. Files: none.", error.strerror or error)
    return None


def _cures(run: Run, measurement: Measurement) -> list[str]:
    """A line for each failure that occurred, as fine as what the target said allows."""
    failed = measurement.arrivals.failed
    told = evidence_of(str(error.error) for error in run.locust_errors())
    lines = cures_for(failed, told)
    if failed:
        lines.append(f"More on each failure: {', '.join(pages_for(failed, told))}")
    jitter = tpot_jitter(measurement)
    return [*lines, jitter] if jitter else lines


def context_of(
    run: Run, prepared: Prepared, outcomes: Counter[str], records: Records
) -> RunContext:
    """What the records do not say, as it stands now; ``outcomes`` are exact counts."""
    spec, gaps = run.spec, run.collector.gaps
    seats = run.seats()
    end_s = min(run.stopped_at_s, run.window_s)
    warmup_s = spec.options.warmup_s
    if warmup_s is None:
        warmup_s = settled_at(records, end_s)
    return RunContext(
        run_id=spec.run_id,
        seed=spec.options.seed,
        target=shown_url(spec.host),
        model=spec.model,
        workers=len(seats),
        versions={
            "pd-load-test": VERSION,
            "locust": locust.__version__,
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "gevent": version("gevent"),
        },
        started_at=run.started_at,
        workload={"name": spec.workload_name, "digest": spec.digest},
        window_s=run.window_s,
        stopped_at_s=run.stopped_at_s,
        warmup_s=warmup_s,
        emulated=prepared.emulated,
        partial=bool(run.partial_reason),
        partial_reason=run.partial_reason,
        slo=Slo(ttft_p99_ms=spec.ttft_slo_ms, tpot_p99_ms=spec.tpot_slo_ms),
        class_slo=_class_slo(spec, prepared),
        wanted_hit_rate=run.collector.shared_rate,
        rate_planned_rps=spec.rate_rps,
        max_concurrency=spec.slots,
        duplicates=run.collector.duplicates,
        outcomes={name: count for name, count in outcomes.items() if count},
        deployment=Size(**prepared.deployment) if prepared.deployment else None,
        client=_client(seats, run.start_clock_s),
        itl={
            "p50": gaps.quantile_ms(0.5),
            "p90": gaps.quantile_ms(0.9),
            "p99": gaps.quantile_ms(0.99),
            "n": gaps.count,
            "tokens_per_chunk": _tokens_per_chunk(run.collector),
        },
        server=prepared.scraper.summary(run.start_clock_s + warmup_s, run.start_clock_s + end_s),
        notes=[*prepared.notes, *run.notes, *_sampled(run.collector)],
    )


def _class_slo(spec: RunSpec, prepared: Prepared) -> dict[str, Slo]:
    """Limits that classes have of their own; what the command line says holds for all."""
    asked = spec.options.ttft_p99_ms, spec.options.tpot_p99_ms
    return {
        name: Slo(
            ttft_p99_ms=asked[0] or ttft_ms or spec.ttft_slo_ms,
            tpot_p99_ms=asked[1] or tpot_ms or spec.tpot_slo_ms,
        )
        for name, (ttft_ms, tpot_ms) in prepared.traffic.limits.items()
    }


def _tokens_per_chunk(collector: Collector) -> float | None:
    """Over 1.05, a server merges tokens, and the gaps are per chunk."""
    events = collector.gaps.count + collector.outcomes[OK]
    return round(collector.ok_tokens / events, 3) if events else None


def _sampled(collector: Collector) -> list[str]:
    if collector.sampled_share == 1:
        return []
    ttft_ms, tpot_ms = collector.ttft.quantile_ms(0.99), collector.tpot.quantile_ms(0.99)
    return [
        f"{collector.kept} of {collector.reported} records were kept, a uniform sample; counts are exact. "
        f"Of all successes, within 0.25 %: TTFT P99 {ttft_ms} ms, TPOT P99 {tpot_ms} ms."
    ]


def _client(seats: list[Seat], start_clock_s: float) -> dict[str, Any]:
    """The worst of the workers, and the sum of what they counted."""
    health = [s.health for s in seats if s.health]

    def worst(name: str) -> float:
        return max((float(h[name]) for h in health), default=0.0)

    def total(name: str) -> int:
        return int(np.sum([h.get(name, 0) for h in health]))

    return {
        "loop_lag_p99_ms": worst("loop_lag_p99_ms"),
        "cpu_percent_max": worst("cpu_percent"),
        "start_skew_ms": round(1000 * max((s.skew_s for s in seats), default=0.0), 3),
        "start_monotonic_s": start_clock_s,
        **{name: total(name) for name in ("coalesced", "jumped", "retried", "connections")},
    }
