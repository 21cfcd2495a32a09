"""Distributions: samples keep to the mean, the cv and the quantiles that each says of itself."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.lengths import (
    Empirical,
    Fixed,
    Gamma,
    Lengths,
    Lognormal,
    Mixture,
    Normal,
    Quantiles,
    Uniform,
    Weibull,
)
from workloads.ranks import correlated
from workloads.scenario import scenario

N = 40_000
KINDS: list[Lengths] = [
    Fixed(2048),
    Uniform(50, 100),
    Normal(480, 240),
    Lognormal.of_cv(512, 0.5),
    Lognormal.of_p99(512, 4000),
    Lognormal.of_cv(512, 2.0, max=4096),
    Gamma(1 / 1.2**2, 300 * 1.2**2),
    Weibull(0.9, 260),
    Mixture((Fixed(20), Lognormal.of_cv(900, 0.5)), (0.6, 0.4)),
    Quantiles((0, 0.5, 0.9, 1), (3, 100, 900, 5000)),
    Empirical((10.0, 20.0, 20.0, 400.0)),
]


@pytest.mark.parametrize(
    "lengths", KINDS, ids=[f"{k}-{type(x).__name__}" for k, x in enumerate(KINDS)]
)
def test_samples_keep_to_mean_cv_and_quantiles(lengths: Lengths) -> None:
    drawn = lengths.sample(np.random.default_rng(1), N)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 1
    error = 5 * lengths.cv / math.sqrt(N)
    assert drawn.mean() == pytest.approx(lengths.mean, rel=error + 1e-9)
    assert drawn.std() / drawn.mean() == pytest.approx(lengths.cv, rel=0.12, abs=1e-9)
    for q in (0.05, 0.5, 0.9, 0.99):
        below = (drawn <= lengths.quantile(q)).mean()
        assert below >= q - 4 * math.sqrt(q * (1 - q) / N)
        assert (drawn < lengths.quantile(q)).mean() <= q + 4 * math.sqrt(q * (1 - q) / N)


@given(st.sampled_from(KINDS), st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_quantiles_never_fall(lengths: Lengths, a: float, b: float) -> None:
    assert lengths.quantile(min(a, b)) <= lengths.quantile(max(a, b))


def test_a_lognormal_is_made_from_what_people_know() -> None:
    assert Lognormal.of_cv(512, 0.5).mean == pytest.approx(512, rel=0.002)
    assert Lognormal.of_cv(512, 0.5).cv == pytest.approx(0.5, rel=0.01)
    of_p99 = Lognormal.of_p99(512, 4000)
    assert of_p99.mean == pytest.approx(512, rel=0.01)
    assert of_p99.quantile(0.99) == pytest.approx(4000, rel=0.001)
    with pytest.raises(ValueError, match=r"between 1 and 14\.9 times the mean"):
        Lognormal.of_p99(100, 1600)


def test_a_normal_says_how_much_of_it_is_clamped() -> None:
    half = Normal(480, 240)
    assert half.clamped_share == pytest.approx(0.0228, abs=0.001)  # P(z < -2)
    assert (half.sample(np.random.default_rng(2), N) == 1).mean() == pytest.approx(
        0.0228, abs=0.003
    )


@pytest.mark.parametrize("asked", [-0.9, -0.38, 0.0, 0.47, 0.95])
def test_input_and_output_have_the_rank_correlation_asked_for(asked: float) -> None:
    rng = np.random.default_rng(3)
    u, other = rng.random(N), rng.random(N)
    tied = correlated(u, other, asked)
    ranks = [np.argsort(np.argsort(x)) for x in (u, tied)]
    assert np.corrcoef(*ranks)[0, 1] == pytest.approx(asked, abs=0.02)
    assert tied.mean() == pytest.approx(0.5, abs=0.01)  # still uniform: lengths stay what they were


@pytest.mark.parametrize(
    ("text", "inputs", "outputs"),
    [
        ("D(100,200)", Fixed(100), Fixed(200)),
        ("N(480,240)/(300,150)", Normal(480, 240), Normal(300, 150, low=2)),
        ("U(50,100)/(200,250)", Uniform(50, 100), Uniform(200, 250)),
        ("U(100, 200)", Uniform(1, 100), Uniform(1, 200)),
    ],
)
def test_scenario_strings_mean_what_they_mean_elsewhere(
    text: str, inputs: Lengths, outputs: Lengths
) -> None:
    assert scenario(text) == (inputs, outputs)


@pytest.mark.parametrize(
    "text", ["D(100)", "D(1,2)/(3,4)", "N(4,2)", "E(5)", "D(0,3)", "U(9,3)/(1,2)"]
)
def test_other_scenario_strings_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"found '.*'"):
        scenario(text)
