"""Silos of few rows match those of many, also where priors follow each silo's data."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from klfusion.families import EmpiricalPrior
from klfusion.families.gaussian import GaussianPosterior
from tests.families.cases import every_case_with
from tests.helpers.loops import for_each

KINDS = 8.0 * np.array(np.meshgrid([0, 1], [0, 1], [0, 1])).reshape(3, 8).T


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
@for_each("seed", [10, 11])
def test_sites_of_40_and_of_1000_rows(covariance_type, seed):
    """Many have one or two components, which lie in one place."""
    rng, sites = np.random.default_rng(seed), {}
    for j in range(30):
        held = rng.choice(8, rng.integers(1, 6), replace=False)
        n = [40, 1000][j % 2]
        x = KINDS[rng.choice(held, n)] + rng.normal(size=(n, 3))
        sites[f"site-{j}"] = BayesianGaussianMixture(
            n_components=len(held), covariance_type=covariance_type, random_state=0, max_iter=500
        ).fit(x)
    assert kf.fuse(sites).n_components == 8


@every_case_with(EmpiricalPrior)
def test_the_typical_prior_of_equal_priors_is_this_prior(case):
    prior = case.draw(np.random.default_rng(0), 1)
    found = case.family.typical_prior(np.repeat(prior, 3, axis=0))
    np.testing.assert_allclose(found, prior[0], rtol=1e-9, atol=1e-12)


@every_case_with(GaussianPosterior)
def test_locations_that_lie_apart_widen_only_the_prior_of_locations(case):
    family, rng = case.family, np.random.default_rng(1)
    prior = np.repeat(case.draw(rng, 1), 2, axis=0)
    location = family.location(prior)
    apart = family.relocated(prior, location + 100.0 * np.array([[1.0], [-1.0]]))
    found = family.typical_prior(apart)[None]
    spread = [family.observation_moments(eta)[1] for eta in (found, prior[:1])]
    np.testing.assert_allclose(*spread, rtol=1e-6)
    before, after = (family.location_covariance(eta) for eta in (prior[:1], found))
    assert after.sum() > before.sum() + 1e3
