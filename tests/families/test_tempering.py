"""Tempering scales certainty and nothing else; comparable posteriors stay posteriors."""

import numpy as np
import pytest

from klfusion.families import (
    Categorical,
    DiagonalNormal,
    Dirichlet,
    Gamma,
    IsotropicNormalGamma,
    NormalGamma,
    NormalWishart,
    Product,
    Tempered,
)
from tests.families.cases import CASES, case_for, every_case, every_case_with

every_tempered = every_case_with(Tempered)
FACTORS = np.array([0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0])


def expected(matrix, dof):
    return dof[:, None, None] * np.linalg.inv(matrix)


# What tempering keeps, by family.
LOCATIONS = {
    "beta": lambda a, b: [a / (a + b)],
    "categorical": lambda probability: [probability],
    "diagonal-normal": lambda mean, variance: [mean, variance],
    "dirichlet": lambda concentration: [concentration / concentration.sum(1, keepdims=True)],
    "gamma": lambda shape, rate: [shape / rate],
    "inverse-gamma": lambda shape, scale: [scale / shape],
    "isotropic-normal-gamma": lambda mean, kappa, shape, rate: [mean, shape / rate],
    "normal-gamma": lambda mean, kappa, shape, rate: [mean, shape / rate],
    "normal-wishart": lambda mean, kappa, scale_inv, dof: [mean, expected(scale_inv, dof)],
    "wishart": lambda scale_inv, dof: [expected(scale_inv, dof)],
}


def locations(family, params):
    if family.name != "product":
        return LOCATIONS[family.name](**params)
    out = []
    for name, factor in family.factors:
        prefix = f"{name}."
        own = {k.removeprefix(prefix): v for k, v in params.items() if k.startswith(prefix)}
        out += locations(factor, own)
    return out


def test_every_family_says_what_tempering_keeps():
    able = {case.family.name for case in CASES if isinstance(case.family, Tempered)}
    assert able - {"product"} <= set(LOCATIONS)


def test_only_plain_distributions_cannot_be_tempered():
    others = {case.family.name for case in CASES if not isinstance(case.family, Tempered)}
    assert others == {"categorical", "diagonal-normal", "normal"}


@every_tempered
def test_effective_size_is_positive_and_scales(case):
    natural = case.draw(np.random.default_rng(0), len(FACTORS))
    size = case.family.effective_size(natural)
    assert size.shape == FACTORS.shape and np.all(size > 0)
    tempered = case.family.tempered(natural, FACTORS)
    np.testing.assert_allclose(case.family.effective_size(tempered), FACTORS * size, rtol=1e-12)


@every_tempered
@pytest.mark.parametrize("spread", [0.1, 1.0, 2.0])
def test_location_and_domain_stay(case, spread):
    family = case.family
    natural = case.draw(np.random.default_rng(1), len(FACTORS), spread)
    tempered = family.tempered(natural, FACTORS)
    assert tempered.shape == natural.shape
    family.check(tempered)
    before, after = (locations(family, family.params(eta)) for eta in (natural, tempered))
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12)


@every_tempered
def test_a_factor_of_one_changes_nothing_and_factors_compose(case):
    natural = case.draw(np.random.default_rng(2), 4)
    twice, half, one = np.full(4, 2.0), np.full(4, 0.5), np.ones(4)
    tempered = case.family.tempered
    np.testing.assert_allclose(tempered(natural, one), natural, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        tempered(tempered(natural, twice), half), natural, rtol=1e-12, atol=1e-13
    )


@every_tempered
@pytest.mark.parametrize("spread", [0.1, 1.0, 2.0])
def test_comparable_stays_inside_and_brings_sizes_together(case, spread):
    family = case.family
    natural = case.draw(np.random.default_rng(3), 7, spread)
    uneven = family.tempered(natural, FACTORS)
    comparable = family.comparable(uneven)
    assert comparable.shape == natural.shape
    family.check(comparable)
    size = family.effective_size(uneven)
    assert np.ptp(np.log(family.effective_size(comparable))) <= 0.51 * np.ptp(np.log(size))


def test_comparable_goes_halfway():
    family = Gamma()
    natural = family.natural(shape=[1.0, 100.0], rate=[1.0, 10.0])
    shape = family.params(family.comparable(natural))["shape"][:, 0]
    np.testing.assert_allclose(shape, [np.sqrt(10.0), np.sqrt(1000.0)])


def test_comparable_dirichlets_have_one_sum():
    family = Dirichlet(4)
    natural = case_for(family).draw(np.random.default_rng(4), 5, 2.0)
    assert np.ptp(family.comparable(natural).sum(axis=1)) < 1e-12


def test_tempering_far_from_the_origin():
    """Rounding of the moments must not make the matrix look asymmetric."""
    family, rng = NormalWishart(3), np.random.default_rng(5)
    natural = family.natural(
        mean=1e6 + rng.normal(size=(4, 3)),
        kappa=rng.gamma(3.0, 10.0, 4),
        scale_inv=50.0 * np.stack([np.eye(3)] * 4),
        dof=np.full(4, 20.0),
    )
    family.check(natural)
    family.check(family.comparable(natural))
    family.check(family.tempered(natural, np.array([0.1, 0.9, 1.1, 10.0])))


def test_a_product_tempers_only_what_can_tell_its_size():
    family = Product(rate=Gamma(), state=Categorical(2), place=DiagonalNormal(1))
    natural = case_for(family).draw(np.random.default_rng(6), 2)
    tempered = family.tempered(natural, np.array([2.0, 5.0]))
    np.testing.assert_allclose(tempered[:, :2], natural[:, :2] * [[2.0], [5.0]])
    np.testing.assert_array_equal(tempered[:, 2:], natural[:, 2:])
    assert not isinstance(Product(state=Categorical(2)), Tempered)


@every_case
def test_least_count_is_positive(case):
    assert case.family.least_count > 0


def test_a_variance_takes_two_points():
    assert NormalGamma(3).least_count == IsotropicNormalGamma(3).least_count == 2.0


def test_a_product_asks_for_what_its_factors_do():
    assert NormalWishart(4).least_count == 6.0
    assert Product(rate=Gamma(), inner=Product(place=NormalWishart(4))).least_count == 6.0
