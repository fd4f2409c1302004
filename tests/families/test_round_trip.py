"""Usual and natural parameters undo each other."""

import numpy as np
import pytest

from klfusion.families import Categorical, Normal, NormalWishart, Wishart
from tests.families.cases import every_case
from tests.helpers.loops import for_each

from .test_kl_precision import ill_conditioned


@every_case
@for_each("spread", [0.1, 1.0, 2.0])
def test_natural_to_params_and_back(case, spread):
    natural = case.draw(np.random.default_rng(0), 20, spread)
    back = case.family.natural(**case.family.params(natural))
    size = np.abs(natural).max(axis=1, keepdims=True)
    assert np.all(np.abs(back - natural) <= 1e-9 * np.abs(natural) + 1e-13 * size)


@every_case
@for_each("spread", [0.1, 1.0, 2.0])
def test_params_to_natural_and_back(case, spread):
    params = case.family.params(case.draw(np.random.default_rng(1), 20, spread))
    back = case.family.params(case.family.natural(**params))
    assert list(back) == list(params)
    for key, value in params.items():
        np.testing.assert_allclose(back[key], value, rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("dim", [5, 50])
def test_at_condition_1e8(dim):
    """The Normal inverts a matrix each way: 1e8 roundings, 1e-7 of the largest entry.

    Worst measured: Normal 2e-9 to 1e-8 of each matrix's largest entry; the others, which store the
    matrix itself, 1e-15.
    """
    rng, n = np.random.default_rng(dim), 5
    matrix = ill_conditioned(rng, n, dim, 1e8)
    mean, ones = rng.normal(size=(n, dim)), np.ones(n)
    checks = [
        (Normal(dim), {"mean": mean, "covariance": matrix}, 1e-7),
        (Wishart(dim), {"scale_inv": matrix, "dof": dim * ones}, 1e-14),
        (
            NormalWishart(dim),
            {"mean": mean, "kappa": 2 * ones, "scale_inv": matrix, "dof": dim * ones},
            1e-14,
        ),
    ]
    for family, params, tolerance in checks:
        back = family.params(family.natural(**params))
        for key, value in params.items():
            error = np.abs(back[key] - value).max() / np.abs(value).max()
            assert error < tolerance, (family, key, error)


def test_matrices_come_back_exactly_symmetric():
    rng, dim = np.random.default_rng(2), 4
    scatter = ill_conditioned(rng, 3, dim, 10.0)
    far = 1e5 + rng.normal(size=(3, dim))
    family = NormalWishart(dim)
    natural = family.natural(mean=far, kappa=np.ones(3), scale_inv=scatter, dof=np.full(3, 9.0))
    back = family.params(natural)["scale_inv"]
    np.testing.assert_array_equal(back, back.swapaxes(1, 2))
    family.natural(**family.params(natural))


def test_a_constant_added_to_a_categorical_changes_nothing():
    family, rng = Categorical(4), np.random.default_rng(3)
    natural = family.natural(rng.dirichlet(np.ones(4), 6))
    shifted = natural + rng.normal(size=(6, 1)) * 100
    np.testing.assert_allclose(
        family.params(shifted)["probability"], family.params(natural)["probability"], rtol=1e-12
    )
    np.testing.assert_allclose(
        family.kl(shifted, natural), family.kl(natural, natural), rtol=1e-9, atol=1e-12
    )
