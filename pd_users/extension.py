"""``--until-conclusive``: a run goes on, step by step, until its verdict is settled.

The workers prepare for the longest window from the start, so nobody need be told of an extension:
the leading process only ends the run later. Looking again and again at the same data makes a wrong
verdict a little likelier than one look does, so looks are few: each step is as long as the planner
asks for, and at least a quarter of what there is.
"""

import logging
import math
from collections import Counter

import gevent
import numpy as np

from pd_users.conclude import context_of
from pd_users.prepare import Prepared
from pd_users.run import Run
from planner.decision import unsettled
from planner.measure import measure
from planner.measurement import RunContext
from planner.records import Records
from planner.verdict import Decision

STEP = 0.25, 1.0  # of the window so far: the shortest and the longest extension

log = logging.getLogger(__name__)


def extend(run: Run, prepared: Prepared) -> bool:
    """At the end of the window: whether the run goes on; its window is longer then."""
    longest_s = run.spec.window_s
    if not run.spec.options.until_conclusive or run.window_s >= longest_s:
        return False
    records, context = _so_far(run, prepared)
    # In a thread, so that streams are read on meanwhile.
    look = (records, context, run.spec.options.confidence)
    doubt = gevent.get_hub().threadpool.apply(_doubt, look)
    if doubt is None or doubt.verdict != "inconclusive":
        return False
    low_s, high_s = (share * run.window_s for share in STEP)
    more_s = min(max(doubt.seconds_more or low_s, low_s), high_s)
    until_s = min(float(math.ceil(run.window_s + more_s)), longest_s)
    run.notes.append(f"at {run.window_s:g} s inconclusive; extended to {until_s:g} s")
    log.info("Inconclusive after %.0f s: on to %.0f s.", run.window_s, until_s)
    run.window_s = until_s
    return True


def _so_far(run: Run, prepared: Prepared) -> tuple[Records, RunContext]:
    """The run up to the first arrival that is not back yet."""
    due, columns = prepared.traffic.due_until(run.now()), run.collector.columns()
    away = ~run.collector.is_reported(due["index"])
    until_s = float(due["due_s"][away].min(initial=run.now()))
    order = np.argsort(columns["due_s"], kind="stable")
    order = order[columns["due_s"][order] < until_s]
    rows = {name: column[order] for name, column in columns.items()}
    records = Records.from_columns(rows)
    context = context_of(run, prepared, Counter(rows["outcome"].tolist()), records)
    return records, context.model_copy(update={"stopped_at_s": until_s, "window_s": until_s})


def _doubt(records: Records, context: RunContext, confidence: str) -> Decision | None:
    return unsettled(measure(records, context), records, confidence)
