"""scikit-learn's mixtures: out, and back again."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import KLFusionError

WEIGHTS = ["dirichlet_process", "dirichlet_distribution"]


def data(seed=0, n=400):
    rng = np.random.default_rng(seed)
    centres = np.array([[-5.0, 0.0, 1.0], [5.0, 0.0, 0.0], [0.0, 6.0, -2.0]])
    return centres[rng.integers(3, size=n)] + rng.normal(size=(n, 3)) * [1.0, 0.3, 2.0]


def fitted(covariance="full", weights=WEIGHTS[0], seed=0, n_components=3):
    model = BayesianGaussianMixture(
        n_components=n_components,
        covariance_type=covariance,
        weight_concentration_prior_type=weights,
        random_state=seed,
        max_iter=500,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(data(seed))


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("covariance", ["full", "diag"])
class TestRoundTrip:
    def test_a_rebuilt_model_predicts_the_same(self, covariance, weights, tmp_path):
        model = fitted(covariance, weights, n_components=5)
        kf.save(tmp_path / "site.safetensors", kf.extract(model, name="site"))
        again = rebuild(kf.load(tmp_path / "site.safetensors"))
        x = data(seed=9)
        np.testing.assert_array_equal(again.predict(x), model.predict(x))
        np.testing.assert_allclose(again.predict_proba(x), model.predict_proba(x), atol=1e-8)
        np.testing.assert_allclose(again.score(x), model.score(x), rtol=1e-10)
        np.testing.assert_allclose(again.weights_, model.weights_, atol=1e-10)
        np.testing.assert_allclose(again.precisions_, model.precisions_, rtol=1e-8)

    def test_copies_fuse_to_the_model(self, covariance, weights):
        model = fitted(covariance, weights)
        fusion = kf.fuse({"a": model, "b": model})
        assert fusion.n_components == 3
        x = data(seed=9)
        np.testing.assert_allclose(
            np.sort(fusion.model().predict_proba(x), axis=1),
            np.sort(model.predict_proba(x), axis=1),
            atol=0.02,  # the weights' prior counts half as much with twice the data
        )

    def test_a_rebuilt_model_can_be_cloned_and_refitted(self, covariance, weights):
        model = kf.fuse({"a": fitted(covariance, weights)}).model()
        assert clone(model).fit(data()).converged_


def test_counts_are_the_expected_numbers_of_points():
    for weights in WEIGHTS:
        counts = kf.extract(fitted(weights=weights), name="a").counts
        np.testing.assert_allclose(counts.sum(), 400, rtol=1e-6)


@pytest.mark.parametrize("covariance", ["tied", "spherical"])
def test_other_covariances_say_what_would_work(covariance):
    with pytest.raises(KLFusionError, match=r"silo 'a': expected covariance_type 'full' or 'diag'"):
        kf.extract(fitted(covariance), name="a")


def test_a_posterior_without_a_model_says_so():
    family = kf.families.Gamma()
    silo = kf.Posterior(family, family.natural(shape=[1.0], rate=[1.0]), name="a")
    with pytest.raises(KLFusionError, match="does not say which model it came from"):
        kf.fuse([silo]).model()
