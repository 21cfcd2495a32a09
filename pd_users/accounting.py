"""One row per due arrival: what the workers reported, and what they could not any more. Pure."""

import numpy as np

from pd_users.records import LOST
from pd_users.wire import COUNTS, MOMENTS, Columns

_PLANNED = ("index", "due_s", "planned_input_tokens", "planned_output_tokens", "class_name")


def account(due: Columns, reported: Columns) -> tuple[Columns, int]:
    """All rows of the run in order of their due moment, and how many arrivals came back twice.

    ``due`` holds the planned columns of every arrival that the schedule made due while the run
    lasted; one that nobody reported was lost with its worker. Rows beyond it (follow-up turns,
    and what went out while the order to stop was on its way) count as due as well. Of an arrival
    reported twice the first row stands.
    """
    _, first = np.unique(reported["index"], return_index=True)
    duplicates = len(reported["index"]) - len(first)
    rows = {name: column[np.sort(first)] for name, column in reported.items()}
    missing = ~np.isin(due["index"], rows["index"])
    lost = _lost({name: due[name][missing] for name in _PLANNED})
    rows = {name: np.concatenate([rows[name], lost[name]]) for name in rows}
    order = np.lexsort((rows["index"], rows["due_s"]))
    return {name: column[order] for name, column in rows.items()}, duplicates


def _lost(planned: Columns) -> Columns:
    n = len(planned["index"])
    rows: Columns = {"worker": np.full(n, -1, "<i4")}
    rows.update({name: np.full(n, np.nan) for name in MOMENTS})
    rows.update({name: np.full(n, -1, "<i4") for name in COUNTS})
    rows.update({name: np.full(n, "", dtype=object) for name in ("token_source", "clock")})
    rows["outcome"] = np.full(n, LOST, dtype=object)
    return {**rows, **planned}
