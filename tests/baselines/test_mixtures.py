"""Mixtures without matching."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf


def fitted(seed=0, n=300):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)) + np.where(rng.random((n, 1)) < 0.3, 6.0, -6.0)
    return BayesianGaussianMixture(n_components=2, random_state=0).fit(x), x


def test_all_components_are_the_average_of_the_local_densities():
    (one, x), (two, y) = fitted(0), fitted(1, 600)
    both = kf.baselines.concatenation({"a": one, "b": two})
    assert both.n_components == 4
    np.testing.assert_allclose(both.means_, np.concatenate([one.means_, two.means_]))
    np.testing.assert_allclose(
        both.covariances_, np.concatenate([one.covariances_, two.covariances_])
    )
    assert both.weights_[2:].sum() == pytest.approx(2 / 3, abs=0.01)
    free = kf.baselines.concatenation({"a": one, "b": two}, prior=False)
    assert free.score(np.concatenate([x, y])) > both.score(np.concatenate([x, y]))


def test_a_refit_to_draws_finds_the_components():
    models = {name: fitted(seed)[0] for seed, name in enumerate("ab")}
    found = kf.baselines.fedgen_gmm(models, n_components=2, random_state=3)
    again = kf.baselines.fedgen_gmm(models, n_components=2, random_state=3)
    np.testing.assert_array_equal(found.means_, again.means_)
    np.testing.assert_allclose(np.sort(found.means_[:, 0]), [-6.0, 6.0], atol=0.5)
    few = kf.baselines.fedgen_gmm(models, n_components=2, n_samples=50)
    with pytest.raises(kf.KLFusionError, match="expected n_samples to be an integer >= 1, got -1"):
        kf.baselines.fedgen_gmm(models, n_components=2, n_samples=-1)
    with pytest.raises(kf.KLFusionError, match="expected at least n_components=20 draws, got"):
        kf.baselines.fedgen_gmm(models, n_components=20, n_samples=5)
    assert few.converged_


def test_other_models_are_refused():
    rates = kf.families.Gamma()
    with pytest.raises(kf.KLFusionError, match="silo 'a': expected a Gaussian mixture"):
        kf.baselines.concatenation([kf.Posterior(rates, rates.natural([3.0], [1.0]), name="a")])
