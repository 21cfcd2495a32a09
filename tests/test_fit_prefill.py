"""Where the fit of P starts."""

import numpy as np
import pytest

from planner.fit_prefill import able, quickest
from planner.models import PrefillModel
from tests.made import records


def test_p_is_not_taken_for_slower_than_it_was() -> None:
    """A line through answers of which nearly all waited for D: 4 P could not have done what was done."""
    tokens = np.random.default_rng(1).integers(200, 4000, 2000)
    rows = records(2000, ttft_ms=20 + 0.05 * tokens, input_tokens=tokens)
    rate = 2000 / float(rows.done_s.max() - rows.sent_s.min())
    start = PrefillModel(0.003, overhead_s=0.16, setup_s=0.09, square_s=2e-7)
    assert start.work_s(rows.effective_tokens) * rate > 4
    found = able(start, rows, 4)
    assert found.work_s(rows.effective_tokens) * rate == pytest.approx(4 * 0.9)
    assert found.overhead_s == pytest.approx(0.0295, abs=0.001)  # the quickest answer took as long


def test_a_start_that_p_could_do_stays() -> None:
    tokens = np.random.default_rng(2).integers(200, 4000, 2000)
    rows = records(2000, ttft_ms=20 + 0.05 * tokens, input_tokens=tokens)
    start = quickest(rows, 8192)
    assert able(start, rows, 4) == start
    assert start.slope_s == pytest.approx(0.00005, rel=0.1)
