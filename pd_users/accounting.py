"""One row per due arrival: what the workers reported, and what they could not any more. Pure."""

import numpy as np

from pd_users.records import LOST
from pd_users.wire import COUNTS, MOMENTS, Columns

_PLANNED = ("index", "due_s", "planned_input_tokens", "planned_output_tokens", "class_name")


def account(reported: Columns, missing: Columns) -> Columns:
    """All rows of the run in order of their due moment.

    ``missing`` holds the planned columns of every arrival that the schedule made due while the run
    lasted and that nobody reported: it was lost with its worker. Reported rows beyond the schedule
    (follow-up turns, and what went out while the order to stop was on its way) count as due as well.
    """
    lost = _lost(missing)
    rows = {name: np.concatenate([reported[name], lost[name]]) for name in reported}
    order = np.lexsort((rows["index"], rows["due_s"]))
    return {name: column[order] for name, column in rows.items()}


def _lost(planned: Columns) -> Columns:
    n = len(planned["index"])
    rows: Columns = {"worker": np.full(n, -1, "<i4")}
    rows.update({name: np.full(n, np.nan) for name in MOMENTS})
    rows.update({name: np.full(n, -1, "<i4") for name in COUNTS})
    rows.update({name: np.full(n, "", dtype=object) for name in ("token_source", "clock")})
    rows["outcome"] = np.full(n, LOST, dtype=object)
    return {**rows, **{name: planned[name] for name in _PLANNED}}
