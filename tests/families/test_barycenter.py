"""The average of natural parameters is the barycenter, and its cost the Jensen gap."""

import numpy as np
import pytest

from tests.families.cases import every_case
from tests.families.sampling import jensen_gap
from tests.helpers.loops import for_each

PERTURBATIONS = 1000


def cost(family, centres, natural, weights):
    return weights @ family.kl_from(centres, natural)


def perturbed(family, centre, natural, rng):
    """Points about the centre, a tenth of them close by, all inside the domain."""
    size = 10.0 ** rng.uniform(-3, 0, (PERTURBATIONS, 1))
    others = rng.dirichlet(np.ones(len(natural)), PERTURBATIONS) @ natural  # in the domain
    moved = centre + size * rng.normal(size=(PERTURBATIONS, family.size)) * natural.std(axis=0)
    keep = np.array([family.in_domain(row[None]) for row in moved])
    assert keep.sum() > PERTURBATIONS / 4
    return np.where(keep[:, None], moved, others)


@every_case
@for_each("seed", [0, 1])
def test_beats_perturbations(case, seed):
    family, rng = case.family, np.random.default_rng(seed)
    natural, weights = case.draw(rng, 6), rng.gamma(1.0, size=6) + 0.01
    centre = family.barycenter(natural, weights)
    family.check(centre[None])
    best = cost(family, centre[None], natural, weights)[0]
    others = cost(family, perturbed(family, centre, natural, rng), natural, weights)
    assert np.all(best <= others * (1 + 1e-12) + 1e-14)


@every_case
@for_each("spread", [0.3, 1.0, 2.0])
def test_costs_the_jensen_gap(case, spread):
    family, rng = case.family, np.random.default_rng(2)
    natural, weights = case.draw(rng, 8, spread), rng.gamma(1.0, size=8) + 0.01
    centre = family.barycenter(natural, weights)[None]
    expected = cost(family, centre, natural, weights)[0]
    assert jensen_gap(family, natural, weights) == pytest.approx(expected, rel=1e-8, abs=1e-13)


@every_case
def test_weights_default_to_equal_and_only_ratios_move_the_centre(case):
    family, rng = case.family, np.random.default_rng(3)
    natural, weights = case.draw(rng, 5), rng.gamma(1.0, size=5) + 0.01
    ones = np.ones(5)
    np.testing.assert_allclose(family.barycenter(natural), family.barycenter(natural, ones))
    np.testing.assert_allclose(
        family.barycenter(natural, weights), family.barycenter(natural, 7 * weights), rtol=1e-13
    )
    assert jensen_gap(family, natural) == pytest.approx(
        jensen_gap(family, natural, ones), abs=1e-13
    )
    assert jensen_gap(family, natural, 3 * weights) == pytest.approx(
        3 * jensen_gap(family, natural, weights), rel=1e-9, abs=1e-12
    )


@every_case
def test_of_equal_components_is_that_component_at_no_cost(case):
    family = case.family
    natural = np.repeat(case.draw(np.random.default_rng(4), 1), 4, axis=0)
    np.testing.assert_allclose(family.barycenter(natural), natural[0], rtol=1e-15)
    scale = 1 + np.abs(family.log_partition(natural[:1])[0])
    assert 0 <= jensen_gap(family, natural) <= 1e-14 * scale


@every_case
def test_gap_of_an_invalid_posterior_is_not_zero(case):
    natural = case.draw(np.random.default_rng(5), 3)
    natural[1] = np.nan
    with np.errstate(all="ignore"):
        assert np.isnan(jensen_gap(case.family, natural))


@every_case
def test_log_partition_of_an_average(case):
    rng = np.random.default_rng(7)
    natural, mass = case.draw(rng, 6), rng.uniform(0.5, 3.0, size=6)
    expected = case.family.log_partition(natural)
    found = case.family.log_partition_of_average(natural * mass[:, None], mass)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
