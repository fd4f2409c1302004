"""Heads of features of any scale, and what calibration refuses."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.learners import BayesianHead

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
Y = np.array(["low", "mid", "high"])[np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.5])]
PARTS = {"a": Y == "low", "b": Y == "mid", "c": Y == "high"}


def fused(x):
    return kf.fuse({k: BayesianHead().fit(x[own], Y[own]) for k, own in PARTS.items()}).model()


@pytest.mark.parametrize("scale", [1e-12, 1e-8, 1e8, 1e100])
def test_the_unit_of_all_columns_is_without_effect(scale):
    expected = BayesianHead().fit(X, Y).predict_proba(X)
    np.testing.assert_allclose(fused(scale * X).predict_proba(scale * X), expected, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-8, 1e8, 1e12])
def test_columns_that_rounding_hides_are_refused(scale):
    x = X * [1.0, 1.0, scale, 1.0]
    with pytest.raises(kf.KLFusionError, match="columns of similar scale, got standard deviations"):
        fused(x).predict(x)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 / 7.0])
def test_constant_columns(value):
    constant = np.full((len(X), 2), value)
    expected = BayesianHead().fit(X, Y).predict_proba(X)
    both = np.hstack([X, constant])
    np.testing.assert_allclose(fused(both).predict_proba(both), expected, atol=1e-6)
    counts = np.unique(Y, return_counts=True)[1]
    nothing = fused(constant).predict(constant)
    assert set(nothing) == {np.unique(Y)[counts.argmax()]}


def test_squares_that_overflow_are_named():
    with pytest.raises(kf.KLFusionError, match="squares are below 1e308"):
        BayesianHead().fit(1e200 * X, Y)
    with pytest.raises(kf.KLFusionError, match=r"expected finite features .* got shape \(300, 0\)"):
        BayesianHead().fit(X[:, :0], Y)


@pytest.mark.parametrize(
    ("rows", "labels", "reason"),
    [
        (np.full_like(X, np.nan), Y, "expected finite features"),
        (X[:, :2], Y, "expected 4 features, got 2"),
        (X[:0], Y[:0], "expected rows X and one label per row"),
        (X, np.zeros(300), "expected labels among the classes"),
        (1e3 * X, Y, "expected rows that the head was fitted to"),
    ],
)
def test_errors_of_calibration_name_the_silo(rows, labels, reason):
    with pytest.raises(kf.KLFusionError, match=f"silo 'site 7': {reason}"):
        BayesianHead().fit(X, Y).calibration(rows, labels, name="site 7")


@pytest.mark.parametrize(
    "settings", [{"pooling": "average"}, {"weights": [2, 1, 1]}, {"weights": [2, 2, 2]}]
)
def test_calibrations_are_added_up(settings):
    head = BayesianHead().fit(X, Y)
    sent = [head.calibration(X[own], Y[own], name=k) for k, own in PARTS.items()]
    with pytest.raises(kf.KLFusionError, match="the sum of all sites' calibrations"):
        head.calibrated(kf.fuse(sent, **settings))


def test_flags_are_checked():
    with pytest.raises(kf.KLFusionError, match="held_out to be True or False, got 'no'"):
        BayesianHead().fit(X, Y).calibration(X, Y, name="a", held_out="no")
