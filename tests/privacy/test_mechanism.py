"""The mechanism: sensitivity, exact sums, secure noise, refused seeds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import CategoricalNB, GaussianNB, MultinomialNB

from klfusion.errors import KLFusionError
from klfusion.learners import BayesianHead
from klfusion.privacy import classes, heads, regressions
from klfusion.privacy.mechanism import (
    Budget,
    Statistic,
    epsilon_of,
    multiplier,
    noised,
    packed_rows,
    seeds_allowed,
)
from klfusion.privacy.plan import Request

pytest.importorskip("opendp")
pytestmark = pytest.mark.filterwarnings("ignore::klfusion.privacy.bounds.ClippedWarning")
BOUNDS = {"x0": (-1.0, 2.0), "x1": (3.0, 5.0), "y": (-1.0, 1.0)}
PLANS = {
    "linear": (regressions.linear, LinearRegression(), BOUNDS),
    "logistic": (regressions.logistic, LogisticRegression(), BOUNDS),
    "second round": (regressions.logistic, LogisticRegression(), BOUNDS),
    "naive Bayes": (classes.gaussian, GaussianNB(), BOUNDS),
    "discriminant": (classes.discriminant, LinearDiscriminantAnalysis(), BOUNDS),
    "categorical": (classes.categorical, CategoricalNB(), {"x0": 3, "x1": 4}),
    "counts": (classes.multinomial, MultinomialNB(), {}),
    "head": (heads.head, BayesianHead(), {}),
}


def rows_of(kind, x, y, norm):
    """What each row adds to the sums, in units of the noise."""
    make, model, bounds = PLANS[kind]
    x = np.abs(x) if kind in ("categorical", "counts") else x
    at = {"intercept": norm, "x0": 2.0, "x1": -1.0} if kind == "second round" else None
    request = Request("a", x, y, ("x0", "x1"), True, bounds, norm, 1.0, (), [0, 1], at)
    statistics = make(model, request).statistics
    total = sum(own.share for own in statistics.values())
    rows = np.concatenate([packed_rows(own) for own in statistics.values()], axis=1)
    squared = sum(own.replaced**2 * own.share for own in statistics.values()) / total
    return rows / math.sqrt(total), math.sqrt(squared)


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 1.4), st.sampled_from(sorted(PLANS)))
def test_sensitivity_holds_for_random_neighbouring_tables(seed, norm, kind):
    rng = np.random.default_rng(seed)
    x = rng.standard_cauchy(size=(40, 2)) * 3.0  # far beyond the bounds
    y = rng.integers(2, size=40)
    rows, replaced = rows_of(kind, x, y, norm)
    assert np.linalg.norm(rows, axis=1).max() <= 1.0 + 1e-9  # one row added or removed
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    assert apart.max() <= replaced + 1e-9  # one row replaced


def test_sensitivity_is_reached():
    largest = {"x0": (-1.0, 1.0), "x1": (-1.0, 1.0), "y": (-1.0, 1.0)}
    request = Request(
        "a", np.array([[1.0, -1.0]]), np.array([1.0]), ("x0", "x1"), True, largest, None, 1.0, (),
        None,
    )  # fmt: skip
    statistics = regressions.linear(LinearRegression(), request).statistics
    for own in statistics.values():
        assert np.linalg.norm(own.rows[0]) == pytest.approx(own.bound)


@pytest.mark.secure
def test_noise_is_of_no_seed_and_has_the_deviation_that_is_said():
    rows = np.tile([0.3, -0.2, 0.1, 0.0], (50, 1))
    found, other = (
        noised({"a": Statistic(np.tile(rows, 500), 30.0)}, Budget(1.0, 1e-5)) for _ in range(2)
    )
    assert not np.array_equal(found.sums["a"], other.sums["a"])
    off = found.sums["a"] - np.tile(rows, 500).sum(axis=0)
    assert np.std(off) / found.deviations["a"] == pytest.approx(1.0, abs=0.1)  # 6 deviations
    assert found.statement["epsilon"] == 1.0
    assert epsilon_of(found.statement["rho"], 1e-5) <= 1.0


def test_symmetric_matrices_come_back_and_off_diagonals_have_half_the_variance():
    one = np.array([[0.5, 0.2], [0.2, -0.1]])
    matrix = Statistic(np.tile(one, (10, 3, 1, 1)), 2.0, symmetric=True)
    with seeds_allowed():
        drawn = [noised({"m": matrix}, Budget(5.0, 1e-5), random_state=k) for k in range(400)]
    sums = np.array([found.sums["m"] for found in drawn])
    assert np.array_equal(sums, np.swapaxes(sums, -1, -2))
    deviations = sums.std(axis=0).mean(axis=0) / drawn[0].deviations["m"]
    assert deviations == pytest.approx(np.array([[1.0, 0.707], [0.707, 1.0]]), abs=0.08)


def test_seeds_are_refused_in_production():
    one = {"a": Statistic(np.zeros((3, 1)), 1.0)}
    with pytest.raises(KLFusionError, match="expected no random_state"):
        noised(one, Budget(1.0, 1e-5), random_state=0)
    with seeds_allowed():
        found = noised(one, Budget(1.0, 1e-5), random_state=0)
    assert "no privacy" in found.statement["mechanism"] and "epsilon" not in found.statement
    with pytest.raises(KLFusionError, match="expected no random_state"):
        noised(one, Budget(1.0, 1e-5), random_state=0)


def test_rows_beyond_the_bound_are_refused():
    with pytest.raises(KLFusionError, match="a: expected rows clipped"):
        noised({"a": Statistic(np.ones((3, 2)), 1.0)}, Budget(1.0, 1e-5))


def test_more_budget_is_less_noise():
    scales = [multiplier(epsilon, 1e-5) for epsilon in (0.1, 1.0, 10.0)]
    assert scales == sorted(scales, reverse=True)
    assert epsilon_of(0.5 / scales[1] ** 2, 1e-5) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": 1e-9},
        {"epsilon": 100.0},
        {"epsilon": "1"},
        {"delta": 1.0},
        {"neighbours": "friends"},
    ],
)
def test_budgets_are_checked(wrong):
    with pytest.raises(KLFusionError, match=next(iter(wrong))):
        Budget(**({"epsilon": 1.0, "delta": 1e-5} | wrong))


@pytest.mark.parametrize("epsilon", [1.1e-5, 49.0])
@pytest.mark.parametrize("delta", [1e-12, 0.3])
def test_every_budget_that_is_allowed_has_a_scale(epsilon, delta):
    assert epsilon_of(0.5 / multiplier(epsilon, delta) ** 2, delta) <= epsilon
