"""A prior that is learned from components."""

import numpy as np
import pytest

from klfusion.families import IsotropicNormalGamma, NormalGamma, NormalWishart
from klfusion.families.gaussian import GaussianPosterior
from tests.families.cases import every_case_with


def evidence(family, added, prior):
    """Log marginal likelihood of what components add to a prior, but for a constant."""
    return float((family.log_partition(prior + added) - family.log_partition(prior[None])).sum())


@every_case_with(GaussianPosterior)
def test_components_are_likelier_under_the_learned_prior(case):
    rng = np.random.default_rng(0)
    prior = case.draw(rng, 1)[0]
    added = case.draw(rng, 40) * 20.0
    learned = case.family.likelier_prior(prior + added, prior)
    case.family.check(learned[None])
    assert evidence(case.family, added, learned) > evidence(case.family, added, prior)


@every_case_with(GaussianPosterior)
def test_a_prior_that_fits_stays(case):
    """Components without observations tell nothing."""
    prior = case.draw(np.random.default_rng(0), 1)[0]
    found = case.family.likelier_prior(np.repeat(prior[None], 3, axis=0), prior)
    np.testing.assert_allclose(found, prior, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", [NormalWishart(2), NormalGamma(2), IsotropicNormalGamma(2)])
def test_its_weight_stays(family):
    rng = np.random.default_rng(0)
    mean, n = rng.normal(scale=9.0, size=(6, 2)), np.full(6, 50.0)
    covariance = np.repeat(np.eye(2)[None], 6, axis=0)
    one = family.observed(np.zeros((1, 2)), 50.0 * np.eye(2)[None], np.array([3.0]))[0]
    natural = one + family.observed(mean, covariance, n)
    found = family.likelier_prior(natural, one)
    before, after = (family.params(x[None]) for x in (one, found))
    weight = "dof" if "dof" in before else "shape"
    np.testing.assert_allclose(after[weight], before[weight])
    assert (after["kappa"] < before["kappa"]).all()
    spread = [family.observation_moments(x[None])[1].max() for x in (one, found)]
    assert spread[1] < 0.2 * spread[0]
