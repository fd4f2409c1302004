"""What the data added to a prior."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import klfusion as kf
from klfusion.posteriors.posterior import less_prior
from tests.families.cases import CASES


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_the_likelihood_of_a_mixture_has_the_moments_of_the_data(covariance_type):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3)) * [1.0, 2.0, 0.5] + 3.0
    settings = {"n_components": 1, "covariance_type": covariance_type}
    point = GaussianMixture(**settings, reg_covar=0.0).fit(x)
    models = {
        "point": kf.extract(point, name="point", n_observations=500),
        "bayesian": kf.extract(
            BayesianGaussianMixture(**settings, reg_covar=0.0).fit(x), name="bayesian"
        ),
    }
    for posterior in models.values():
        found = posterior.likelihood()
        mean, covariance = found.family.observation_moments(found.natural)
        expected = np.cov(x.T, ddof=0)
        np.testing.assert_allclose(mean[0], x.mean(axis=0), rtol=1e-9)
        if covariance.ndim == 2:
            expected = np.diag(expected)
        if covariance_type == "spherical":
            expected = np.full(3, expected.mean())
        np.testing.assert_allclose(covariance[0], expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.family.effective_size(found.natural), 500.0)
        assert found.prior is None
        np.testing.assert_array_equal(found.counts, posterior.counts)


def test_few_observations_keep_the_least_share_of_the_prior():
    family = kf.families.NormalWishart(3)
    prior = family.natural(np.zeros((1, 3)), [1.0], np.eye(3)[None], [3.0])[0]
    x = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # two points in three dimensions
    moment = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 0.0])  # packed
    data = np.concatenate([x.sum(axis=0), [2.0], moment, [2.0]])
    posterior = kf.Posterior(family, (prior + data)[None], prior=prior)
    kept = (posterior.likelihood().natural - data) / np.where(prior == 0, 1.0, prior)
    share = kept[0, 3]
    np.testing.assert_allclose(kept[0, prior != 0], share)
    assert 0 < share <= 2.0**-10  # any share makes the scatter positive definite
    fewer = kf.Posterior(family, (prior + 0.1 * data)[None], prior=prior)
    kept = fewer.likelihood().natural[0] - 0.1 * data
    assert 0.6 < kept[-1] / 3.0 <= 0.6 + 2.0**-9  # dof exceeds 2


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_left_is_always_a_distribution(case):
    rng = np.random.default_rng(0)
    natural = case.draw(rng, 20)
    for prior in case.draw(rng, 3):
        left = less_prior(case.family, natural, prior)
        assert case.family.inside(left).all()
        exact = case.family.inside(natural - prior)
        np.testing.assert_array_equal(left[exact], (natural - prior)[exact])
    np.testing.assert_array_equal(less_prior(case.family, natural, np.zeros_like(prior)), natural)


def test_a_likelihood_needs_a_prior():
    rates = kf.families.Gamma()
    with pytest.raises(kf.KLFusionError, match="silo 'a': expected a posterior with a prior"):
        kf.Posterior(rates, rates.natural([3.0], [1.0]), name="a").likelihood()
