"""All components under one prior."""

from dataclasses import replace

import numpy as np

import klfusion as kf
from klfusion.model_size.typical_prior import typical_prior, under_one_prior
from klfusion.objective.problem import FusionProblem

RATES = kf.families.Gamma()


def rates(shapes, prior_shapes):
    """Equal observations of a rate, under a prior per silo."""
    prior = RATES.natural(prior_shapes, np.ones(len(shapes)))
    natural = prior + RATES.natural(shapes, np.full(len(shapes), 5.0))
    silo = np.arange(len(shapes))
    return FusionProblem(RATES, natural, silo, np.ones(len(shapes)), prior=prior)


def test_equal_observations_are_equal():
    found = under_one_prior(rates([7.0, 7.0, 7.0], [1.0, 2.0, 9.0]))
    np.testing.assert_allclose(found.natural, found.natural[[0, 0, 0]])
    np.testing.assert_allclose(found.prior, found.prior[[0, 0, 0]])


def test_one_prior_changes_nothing():
    same = rates([7.0, 9.0], [2.0, 2.0])
    assert under_one_prior(same) is same
    none = replace(same, prior=None)
    assert under_one_prior(none) is none


def test_a_component_that_would_leave_the_family_keeps_all_as_they_are():
    problem = rates([-8.0, 7.0], [9.0, 1.0])  # less certain than its prior
    assert under_one_prior(problem) is problem


def test_gaussians_have_a_prior_as_narrow_as_their_components():
    rng, family = np.random.default_rng(0), kf.families.NormalWishart(2)
    means = [np.zeros(2), np.full(2, 20.0)]
    prior = family.natural([np.full(2, 10.0)], [1.0], [200.0 * np.eye(2)], [2.0])
    rows = [m + rng.normal(size=(30, 2)) for m in (*means, *means)]
    natural = prior + np.stack([family.of_points(x).sum(axis=0) for x in rows])
    silo, every = np.array([0, 0, 1, 1]), np.repeat(prior, 4, axis=0)
    problem = FusionProblem(family, natural, silo, np.ones(4), prior=every)
    one = family.params(typical_prior(problem)[None])
    assert np.trace(one["scale_inv"][0]) / one["dof"][0] < 0.1 * 200.0
    found = under_one_prior(problem)
    np.testing.assert_allclose(found.natural - found.prior, natural - prior)
