"""Records survive the wire: nothing rounded, nothing lost, few bytes."""

from dataclasses import fields
from math import isnan, nan

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pd_users.records import RequestRecord
from pd_users.wire import concatenate, pack, unpack

moments = st.one_of(st.just(nan), st.integers(0, 86_400 * 10**9).map(lambda ns: ns / 1e9))
counts = st.integers(-1, 2**31 - 1)
names = st.sampled_from(["ok", "reset", "chat", "", "usage", "日本"])
rows = st.builds(
    RequestRecord,
    index=st.integers(0, 2**50),
    worker=st.just(3),
    class_name=names,
    due_s=st.integers(0, 86_400 * 10**9).map(lambda ns: ns / 1e9),
    planned_input_tokens=counts,
    planned_output_tokens=counts,
    outcome=names,
    sent_s=moments,
    first_token_s=moments,
    second_token_s=moments,
    last_token_s=moments,
    done_s=moments,
    input_tokens=counts,
    cached_tokens=counts,
    output_tokens=counts,
    n_first=counts,
    token_source=names,
    clock=names,
)


@given(st.lists(rows, max_size=20))
def test_a_batch_comes_back_as_it_went(records: list[RequestRecord]) -> None:
    columns = unpack(pack(records))
    for field in fields(RequestRecord):
        got = list(columns[field.name])
        expected = [getattr(r, field.name) for r in records]
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert a == b or (isnan(a) and isnan(b)) or abs(a - b) <= 1e-9


@given(st.lists(rows, max_size=6), st.lists(rows, max_size=6))
def test_two_batches_are_their_concatenation(
    a: list[RequestRecord], b: list[RequestRecord]
) -> None:
    both = concatenate([unpack(pack(a)), unpack(pack(b))])
    assert list(both["index"]) == [r.index for r in [*a, *b]]


def test_a_request_takes_under_64_bytes_on_the_wire() -> None:
    rng = np.random.default_rng(1)
    due = np.cumsum(rng.exponential(0.02, 300)) + 3600
    records = [
        RequestRecord(
            index=40_000 + 2 * k,
            worker=1,
            class_name="azure_conv_2023",
            due_s=t,
            planned_input_tokens=int(rng.lognormal(6.5, 1)),
            planned_output_tokens=int(rng.lognormal(5, 1)),
            outcome="ok",
            sent_s=t + rng.exponential(0.0005),
            first_token_s=t + rng.gamma(2, 0.1),
            second_token_s=t + 0.5 + rng.gamma(2, 0.01),
            last_token_s=t + 5 + rng.gamma(2, 1),
            done_s=t + 9 + rng.gamma(2, 1),
            input_tokens=int(rng.lognormal(6.5, 1)),
            cached_tokens=0,
            output_tokens=int(rng.lognormal(5, 1)),
            n_first=1,
            token_source="usage",
            clock="kernel",
        )
        for k, t in enumerate(due)
    ]
    assert len(pack(records)) / len(records) < 64
