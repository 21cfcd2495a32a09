"""Every due arrival ends as exactly one row, whatever the workers reported."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pd_users.accounting import account
from pd_users.records import RequestRecord
from pd_users.wire import Columns, pack, unpack


def reported(indexes: list[int]) -> Columns:
    rows = [RequestRecord(k, 0, "chat", k / 10, 5, 7, "ok", sent_s=k / 10) for k in indexes]
    return unpack(pack(rows))


def due(n: int) -> Columns:
    return {
        "index": np.arange(n),
        "due_s": np.arange(n) / 10,
        "planned_input_tokens": np.full(n, 5),
        "planned_output_tokens": np.full(n, 7),
        "class_name": np.full(n, "chat", dtype=object),
    }


@given(st.integers(0, 30), st.lists(st.integers(0, 40), max_size=40))
def test_due_is_what_was_reported_plus_what_was_lost(n: int, indexes: list[int]) -> None:
    rows, duplicates = account(due(n), reported(indexes))
    assert sorted(rows["index"]) == sorted(set(range(n)) | set(indexes))
    assert duplicates == len(indexes) - len(set(indexes))
    lost = {int(k) for k in rows["index"][rows["outcome"] == "lost"]}
    assert lost == set(range(n)) - set(indexes)
    assert list(rows["due_s"]) == sorted(rows["due_s"])


def test_a_lost_row_keeps_what_was_planned() -> None:
    rows, _ = account(due(2), reported([0]))
    assert rows["planned_output_tokens"][1] == 7
    assert np.isnan(rows["sent_s"][1])
    assert rows["worker"][1] == -1
