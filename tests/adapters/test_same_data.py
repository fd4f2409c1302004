"""``data=`` must be the rows that a model was fitted to."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)

import klfusion as kf

REGRESSIONS = {
    "linear": LinearRegression(),
    "no intercept": LinearRegression(fit_intercept=False),
    "ridge": Ridge(alpha=30.0),
    "bayesian": BayesianRidge(),
    "ard": ARDRegression(),
    "poisson": PoissonRegressor(alpha=0.1),
    "two classes": LogisticRegression(C=0.1),
    "liblinear": LogisticRegression(solver="liblinear"),
    "three classes": LogisticRegression(C=0.1),
    "lda": LinearDiscriminantAnalysis(),
    "qda": QuadraticDiscriminantAnalysis(),
}


def rows(kind, seed, n=120):
    rng = np.random.default_rng(seed)
    x = rng.normal([50.0, 0.0, 3.0], [10.0, 1.0, 0.5], (n, 3))
    signal = (x - [50.0, 0.0, 3.0]) @ [0.05, 0.8, -0.5] - 1.0
    if kind == "poisson":
        return x, rng.poisson(np.exp(0.5 * signal))
    if kind in ("two classes", "liblinear", "lda", "qda"):
        return x, (rng.random(n) < 1.0 / (1.0 + np.exp(-signal))).astype(int)
    noisy = signal + rng.normal(size=n)
    return x, np.digitize(noisy, [-1.5, 0.0]) if kind == "three classes" else noisy


@pytest.mark.parametrize("kind", REGRESSIONS)
def test_other_rows_than_those_of_the_fit_are_refused(kind):
    x, y = rows(kind, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = REGRESSIONS[kind].fit(x, y)
    options = [{}] if kind in ("lda", "qda") else [{}, {"prior_sd": 2.0}]
    for own in options:
        kf.extract(model, name="a", data=(x, y), **own)
        with pytest.raises(kf.KLFusionError, match="silo 'a': expected the data that the model"):
            kf.extract(model, name="a", data=rows(kind, 1), **own)


def test_weighted_rows_are_other_data():
    x, y = rows("linear", 0)
    model = LinearRegression().fit(x, y, sample_weight=np.arange(len(y)) < 60)
    with pytest.raises(kf.KLFusionError, match="all of one weight"):
        kf.extract(model, name="a", data=(x, y))


def test_rows_without_noise_are_those_of_their_fit():
    x, _ = rows("linear", 0)
    y = 1e6 * (x @ [1.0, 2.0, 3.0])
    kf.extract(LinearRegression().fit(x, y), name="a", data=(x, y))
    with pytest.raises(kf.KLFusionError, match="got others"):
        kf.extract(LinearRegression().fit(x, y + 1.0), name="a", data=(x, y))
