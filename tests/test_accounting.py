"""Every due arrival ends as exactly one row, whatever the workers reported."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pd_users.accounting import account
from pd_users.metrics import Collector
from pd_users.records import RequestRecord
from pd_users.wire import Columns, pack


def report(indexes: list[int]) -> dict[str, object]:
    rows = [RequestRecord(k, 0, "chat", k / 10, 5, 7, "ok", sent_s=k / 10) for k in indexes]
    return {"rows": pack(rows), "gaps": []}


def due(n: int) -> Columns:
    return {
        "index": np.arange(n),
        "due_s": np.arange(n) / 10,
        "planned_input_tokens": np.full(n, 5),
        "planned_output_tokens": np.full(n, 7),
        "class_name": np.full(n, "chat", dtype=object),
    }


def accounted(n: int, reports: list[list[int]]) -> tuple[Columns, Collector]:
    collector = Collector()
    for indexes in reports:
        collector.add(report(indexes))
    unseen = ~collector.is_reported(np.arange(n))
    missing = {name: column[unseen] for name, column in due(n).items()}
    return account(collector.columns(), missing), collector


numbers = st.lists(st.integers(0, 40), max_size=30)


@given(st.integers(0, 30), st.lists(numbers, max_size=3))
def test_due_is_what_was_reported_plus_what_was_lost(n: int, reports: list[list[int]]) -> None:
    rows, collector = accounted(n, reports)
    indexes = [k for one in reports for k in one]
    assert sorted(rows["index"]) == sorted(set(range(n)) | set(indexes))
    assert collector.duplicates == len(indexes) - len(set(indexes))
    lost = {int(k) for k in rows["index"][rows["outcome"] == "lost"]}
    assert lost == set(range(n)) - set(indexes)
    assert list(rows["due_s"]) == sorted(rows["due_s"])


def test_a_lost_row_keeps_what_was_planned() -> None:
    rows, _ = accounted(2, [[0]])
    assert rows["planned_output_tokens"][1] == 7
    assert np.isnan(rows["sent_s"][1])
    assert rows["worker"][1] == -1


def test_a_very_long_run_keeps_a_uniform_sample_and_exact_counts() -> None:
    collector = Collector(seed=1, limit=1000)
    for start in range(0, 10_000, 250):
        collector.add(report(list(range(start, start + 250))))
    kept = collector.columns()["index"]
    assert len(kept) <= 1000
    assert collector.reported == collector.outcomes["ok"] == 10_000
    assert collector.sampled_share == 1 / 16
    quarters = np.histogram(kept, bins=4, range=(0, 10_000))[0]
    assert quarters.min() > 0.7 * quarters.mean()  # early and late rows alike
    assert collector.is_reported(np.array([0, 9999])).all()


def test_what_is_shown_while_it_runs_is_what_the_records_say() -> None:
    rng, collector, rows = np.random.default_rng(2), Collector(), []
    for k in range(500):
        due_s, outcome = k / 10, "ok" if k % 5 else "reset"
        sent_s = due_s + rng.exponential(0.001)
        first_s = sent_s + rng.exponential(0.2)
        last_s = first_s + rng.exponential(3)
        moments = {"sent_s": sent_s, "first_token_s": first_s, "last_token_s": last_s}
        counts = {"output_tokens": int(rng.integers(1, 90)), "n_first": 1}
        rows.append(RequestRecord(k, 0, "chat", due_s, 5, 7, outcome, **moments, **counts))  # type: ignore[arg-type]
    for start in range(0, 500, 100):
        collector.add({"rows": pack(rows[start : start + 100]), "gaps": []})
    ok = [r for r in rows if r.outcome == "ok"]
    assert collector.ttft.count == len(ok) == 400
    for sketch, exact in (
        (collector.ttft, [r.ttft_s for r in ok]),
        (collector.tpot, [r.tpot_s for r in ok if np.isfinite(r.tpot_s)]),
        (collector.lag, [r.sent_s - r.due_s for r in rows]),
    ):
        assert sketch.count == len(exact)
        for q in (0.5, 0.99):
            true_ms = 1000 * float(np.quantile(exact, q, method="inverted_cdf"))
            assert abs((sketch.quantile_ms(q) or 0) / true_ms - 1) < 0.00251
