"""scikit-learn's point estimates of mixtures, made posteriors by the number of observations."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import klfusion as kf
from klfusion.errors import IncompatibleSilosError, KLFusionError

CENTRES = np.array([[-6.0, 0.0, 1.0], [6.0, 0.0, 0.0], [0.0, 8.0, -2.0]])


def data(kinds=(0, 1, 2), n=600, seed=0):
    rng = np.random.default_rng(seed)
    return CENTRES[rng.choice(kinds, n)] + rng.normal(size=(n, 3)) * [1.0, 0.5, 2.0]


def fitted(x, n_components, covariance="full", cls=GaussianMixture):
    model = cls(
        n_components=n_components,
        covariance_type=covariance,
        tol=1e-8,
        max_iter=500,
        n_init=3,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(x)


@pytest.mark.parametrize("covariance", ["full", "diag", "spherical", "tied"])
class TestEveryCovarianceType:
    def test_is_what_the_bayesian_mixture_finds(self, covariance):
        x = data()
        point = kf.extract(fitted(x, 3, covariance), name="a", n_observations=len(x))
        full = kf.extract(fitted(x, 3, covariance, BayesianGaussianMixture), name="b")
        # Well apart, both share the observations out alike, in another order.
        order, other = (np.argsort(p.params()["mean"][:, 0]) for p in (point, full))
        for key, value in point.params().items():
            np.testing.assert_allclose(
                value[order], full.params()[key][other], rtol=0.03, atol=0.03, err_msg=key
            )
        np.testing.assert_allclose(point.counts[order], full.counts[other], rtol=0.01)

    def test_the_model_back_predicts_as_it_did(self, covariance):
        x = data()
        model = fitted(x, 3, covariance)
        again = kf.adapters.rebuild(kf.extract(model, name="a", n_observations=len(x)))
        new = data(seed=1)
        np.testing.assert_array_equal(again.predict(new), model.predict(new))
        np.testing.assert_allclose(again.weights_, model.weights_, atol=0.01)

    def test_fused_silos_have_all_clusters(self, covariance):
        sees = {"a": (0, 1), "b": (1, 2), "c": (0, 2)}
        sites = []
        for seed, (name, kinds) in enumerate(sees.items()):
            x = data(kinds, 300, seed)
            sites.append(kf.extract(fitted(x, 2, covariance), name=name, n_observations=len(x)))
        fusion = kf.fuse(sites)
        assert fusion.n_components == 3
        assert len(set(fusion.model().predict(CENTRES))) == 3


def test_columns_of_a_frame_are_kept():
    names = np.array(["age", "bmi", "glucose"], dtype=object)
    sites = []
    for name, columns in {"a": names, "b": names[::-1]}.items():
        model = fitted(data(), 3)
        model.feature_names_in_ = columns
        sites.append(kf.extract(model, name=name, n_observations=600))
    with pytest.raises(IncompatibleSilosError, match="in this order"):
        kf.fuse(sites)


def test_says_how_to_give_the_number_of_observations():
    with pytest.raises(KLFusionError, match=r"'north'.*n_observations=len\(x\)"):
        kf.fuse({"north": fitted(data(), 3)})


@pytest.mark.parametrize("n", [0, -5, np.nan, np.inf, "many", True, 1e300])
def test_refuses_a_number_that_is_none(n):
    with pytest.raises(KLFusionError, match="'a': expected n_observations to be a number > 0"):
        kf.extract(fitted(data(), 3), name="a", n_observations=n)


def test_refuses_one_that_is_not_fitted():
    with pytest.raises(KLFusionError, match="'a': expected a fitted GaussianMixture"):
        kf.extract(GaussianMixture(2), name="a", n_observations=10)


@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize(
    ("what", "value"),
    [("means_", np.nan), ("weights_", -0.1), ("covariances_", np.inf), ("covariances_", -1.0)],
)
def test_refuses_estimates_that_are_none(covariance, what, value):
    x = np.random.default_rng(0).normal(size=(100, 2))
    model = GaussianMixture(n_components=2, covariance_type=covariance, random_state=0).fit(x)
    values = getattr(model, what).copy()
    values.flat[0] = value
    setattr(model, what, values)
    with pytest.raises(kf.KLFusionError, match=f"silo 'here': {what}: expected"):
        kf.extract(model, name="here", n_observations=100)
