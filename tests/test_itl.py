"""Gap counts merge exactly, and their quantiles are within the promised quarter of a percent."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pd_users.itl import GapSketch, count_gaps

gaps = st.lists(st.floats(1e-5, 100), min_size=1, max_size=50)


@given(gaps, gaps)
def test_counting_two_parts_is_counting_the_whole(a: list[float], b: list[float]) -> None:
    parts: Counter[int] = Counter()
    count_gaps(a, parts)
    count_gaps(b, parts)
    whole: Counter[int] = Counter()
    count_gaps(a + b, whole)
    assert parts == whole


def test_a_quantile_is_within_a_quarter_of_a_percent() -> None:
    values = np.random.default_rng(1).lognormal(-4, 0.7, 20_000)
    counts: Counter[int] = Counter()
    count_gaps(values.tolist(), counts)
    sketch = GapSketch()
    sketch.add(counts)
    assert sketch.count == 20_000
    for q in (0.5, 0.9, 0.99):
        true_ms = float(np.quantile(values, q, method="inverted_cdf")) * 1000
        assert abs(sketch.quantile_ms(q) / true_ms - 1) < 0.00251


def test_no_gaps_give_no_quantile() -> None:
    assert GapSketch().quantile_ms(0.5) is None
