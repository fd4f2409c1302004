"""Pipelines: the last step is fused, and steps before it must be the same at every site."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import klfusion as kf
from tests.helpers.loops import for_each

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal([50, 120], [5, 8], (80, 2)), RNG.normal([75, 160], [5, 8], (80, 2))])
X = RNG.permutation(X)


def mixture():
    return BayesianGaussianMixture(n_components=2, random_state=0)


def test_models_behind_an_agreed_scaling_are_fused():
    scaling = kf.agreed_scaling([60, 140], [15, 25])
    sites = {
        name: make_pipeline(scaling, mixture()).fit(x)
        for name, x in {"a": X[:80], "b": X[80:]}.items()
    }
    fusion = kf.fuse(sites)
    model = fusion.model()
    first, second = model.predict([[50.0, 120.0], [75.0, 160.0]])
    assert first != second
    np.testing.assert_allclose(model[0].inverse_transform(model[0].transform(X)), X)
    plain = {n: p[-1] for n, p in sites.items()}
    np.testing.assert_array_equal(
        model.predict(X), kf.fuse(plain).model().predict(scaling.transform(X))
    )


def test_it_survives_a_file(tmp_path):
    model = make_pipeline(kf.agreed_scaling([60, 140], [15, 25]), mixture()).fit(X)
    kf.save(tmp_path / "a.safetensors", kf.extract(model, name="a"))
    again = kf.adapters.rebuild(kf.load(tmp_path / "a.safetensors"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_classifier_behind_a_scaling():
    y = np.where(X[:, 0] > 62, "old", "young")
    model = make_pipeline(kf.agreed_scaling([60, 140], [15, 25]), GaussianNB()).fit(X, y)
    assert kf.fuse({"a": model}).model().predict([[80.0, 160.0]])[0] == "old"


def test_a_scaling_of_one_site_is_refused():
    model = make_pipeline(StandardScaler(), mixture()).fit(X)
    expected = r"silo 'a', pipeline step 'standardscaler': expected kf\.agreed_scaling"
    with pytest.raises(kf.KLFusionError, match=expected):
        kf.fuse({"a": model})


def test_a_pipeline_of_one_step_is_that_step():
    model = make_pipeline("passthrough", mixture()).fit(X)
    np.testing.assert_array_equal(
        kf.extract(model, name="a").natural, kf.extract(model[-1], name="a").natural
    )


def test_sites_with_different_scalings_are_named():
    a = make_pipeline(kf.agreed_scaling([60, 140], [15, 25]), mixture()).fit(X)
    b = make_pipeline(kf.agreed_scaling([60, 140], [15, 20]), mixture()).fit(X)
    with pytest.raises(kf.KLFusionError, match="silo 'b': expected the agreed scaling as in"):
        kf.fuse({"a": a, "b": b})


@for_each(
    "means, deviations",
    [([1, 2], [1]), ([1], [0]), ([np.nan], [1]), (["a"], [1]), ([[1]], [[1]])],
)
def test_wrong_numbers(means, deviations):
    with pytest.raises(kf.KLFusionError, match="agreed scaling: expected"):
        kf.agreed_scaling(means, deviations)


def test_wrong_columns():
    with pytest.raises(kf.KLFusionError, match="agreed scaling of 2 columns"):
        kf.agreed_scaling([0, 0], [1, 1]).fit(X[:, :1])
