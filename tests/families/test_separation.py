"""How many standard deviations lie between components, and that far ones stay apart."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis

import klfusion as kf
from klfusion.families import Product, Tempered, registered_families
from tests.families.cases import CASES, every_case, every_case_with

MOST = 10.0  # standard deviations: one-component silos further apart are not merged


def pair(family, first, second):
    """Natural parameters (1, p) of two components by their named parameters."""
    return tuple(
        family.natural(**{name: np.array([value]) for name, value in params.items()})
        for params in (first, second)
    )


# Two components of each family that nobody would take for one.
FAR = {
    "beta": ({"a": [500.0], "b": [1.0]}, {"a": [1.0], "b": [500.0]}),
    "categorical": ({"probability": [0.999, 0.001]}, {"probability": [0.001, 0.999]}),
    "diagonal-normal": (
        {"mean": [0.0, 0.0], "variance": [1.0, 1.0]},
        {"mean": [0.0, 1e4], "variance": [1.0, 1.0]},
    ),
    "dirichlet": ({"concentration": [500.0, 1.0, 1.0]}, {"concentration": [1.0, 1.0, 500.0]}),
    "gamma": ({"shape": [100.0], "rate": [100.0]}, {"shape": [100.0], "rate": [0.01]}),
    "inverse-gamma": ({"shape": [100.0], "scale": [1.0]}, {"shape": [50.0], "scale": [1e4]}),
    "isotropic-normal-gamma": (
        {"mean": [0.0, 0.0], "kappa": 50.0, "shape": 50.0, "rate": 50.0},
        {"mean": [0.0, 100.0], "kappa": 50.0, "shape": 50.0, "rate": 50.0},
    ),
    "normal": (
        {"mean": [0.0, 0.0], "covariance": np.eye(2)},
        {"mean": [0.0, 1e4], "covariance": np.eye(2)},
    ),
    "normal-gamma": (
        {"mean": [0.0], "kappa": [50.0], "shape": [25.0], "rate": [25.0]},
        {"mean": [100.0], "kappa": [50.0], "shape": [25.0], "rate": [25.0]},
    ),
    "normal-wishart": (
        {"mean": [0.0, 0.0], "kappa": 50.0, "scale_inv": 50.0 * np.eye(2), "dof": 50.0},
        {"mean": [0.0, 100.0], "kappa": 500.0, "scale_inv": 500.0 * np.eye(2), "dof": 500.0},
    ),
    "wishart": (
        {"scale_inv": 50.0 * np.eye(2), "dof": 50.0},
        {"scale_inv": 5e5 * np.eye(2), "dof": 50.0},
    ),
}  # fmt: skip
DIMS = {"beta": 1, "gamma": 1, "inverse-gamma": 1, "normal-gamma": 1, "dirichlet": 3}


def far_pair(name):
    family = registered_families()[name](DIMS.get(name, 2))
    return family, pair(family, *FAR[name])


def fused_size(family, rows):
    """Components of the global model of silos with one component each."""
    silos = [kf.Posterior(family, row[None], name=f"s{j}") for j, row in enumerate(rows)]
    return kf.fuse(silos).n_components


def test_every_family_has_a_far_pair():
    assert {case.family.name for case in CASES} - {"product"} == set(FAR)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", FAR)
def test_far_components_stay_apart(name, wrapped):
    family, (first, second) = far_pair(name)
    family = Product(x=family) if wrapped else family
    assert family.separation(first, second)[0] > MOST
    assert fused_size(family, [first[0], second[0]]) == 2
    assert fused_size(family, [first[0], second[0], first[0], second[0]]) == 2


@every_case
def test_copies_in_two_one_component_silos_merge_and_far_ones_do_not(case):
    rng = np.random.default_rng(0)
    for spread in (0.3, 1.0, 3.0, 6.0):
        first, second = case.draw(rng, 2, spread)
        assert fused_size(case.family, [first, first]) == 1
        if case.family.separation(first[None], second[None])[0] > MOST:
            assert fused_size(case.family, [first, second]) == 2


@every_case
def test_separation_is_a_symmetric_dissimilarity(case):
    rng = np.random.default_rng(1)
    first, second = case.draw(rng, 5), case.draw(rng, 5)
    there, back = case.family.separation(first, second), case.family.separation(second, first)
    assert there.shape == (5,) and (there >= 0).all()
    np.testing.assert_allclose(there, back, rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(case.family.separation(first, first), 0.0)


@every_case_with(Tempered)
def test_more_data_do_not_move_components_apart(case):
    """Deviations are of observations, not of ever more certain posteriors."""
    family, rng = case.family, np.random.default_rng(2)
    first, second = case.draw(rng, 5), case.draw(rng, 5)
    some, many = (
        family.separation(*(family.tempered(eta, np.full(5, size)) for eta in (first, second)))
        for size in (1e4, 1e7)
    )
    np.testing.assert_allclose(some, many, rtol=1e-2)


@pytest.mark.parametrize("dim", [1, 4])
def test_normal_wisharts_have_mahalanobis_distances(dim):
    rng = np.random.default_rng(0)
    family, scatter = kf.families.NormalWishart(dim), []
    for _ in range(2):
        x = rng.normal(size=(50, dim))
        scatter.append(x.T @ x)
    mean = rng.normal(size=(2, dim))
    natural = family.natural(mean, [50.0, 80.0], scatter, [50.0, 80.0])
    pooled = (scatter[0] + scatter[1]) / 130.0
    expected = mahalanobis(mean[0], mean[1], np.linalg.inv(pooled))
    np.testing.assert_allclose(family.separation(*natural[:, None]), [expected], rtol=1e-6)


@pytest.mark.parametrize("name", ["NormalGamma", "IsotropicNormalGamma"])
def test_diagonal_and_isotropic_ones_agree_with_them(name):
    dim, variance = 3, 4.0
    mean = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 6.0]])
    family = getattr(kf.families, name)(dim)
    shape = np.array([5.0, 15.0])
    of_all = [1.0, 1.0, 1.0] if name == "NormalGamma" else 1.0  # one for each dimension, or one
    rate = np.multiply.outer(variance * shape, of_all)
    natural = family.natural(mean, [10.0, 30.0], shape, rate)
    full = kf.families.NormalWishart(dim)
    counts = np.array([10.0, 30.0])
    scatter = variance * counts[:, None, None] * np.eye(3)
    expected = full.separation(*full.natural(mean, counts, scatter, counts)[:, None])
    np.testing.assert_allclose(family.separation(*natural[:, None]), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["Normal", "DiagonalNormal"])
def test_the_general_separation_is_that_of_normals_of_one_covariance(name):
    mean, variance = np.array([[0.0, 1.0], [3.0, 5.0]]), np.array([4.0, 9.0])
    family = getattr(kf.families, name)(2)
    spread = np.diag(variance) if name == "Normal" else variance
    natural = family.natural(mean, np.stack([spread] * 2))
    expected = np.sqrt(((mean[0] - mean[1]) ** 2 / variance).sum())
    for separation in (family.separation, lambda a, b: kf.families.Family.separation(family, a, b)):
        np.testing.assert_allclose(separation(*natural[:, None]), [expected], rtol=1e-6)


def test_the_separation_of_rates_is_that_of_the_observations():
    """Waiting times: KL(a || b) + KL(b || a) = a / b + b / a - 2 of exponentials of rates a, b."""
    family = kf.families.Gamma()
    first, second = family.natural([100.0], [100.0]), family.natural([7.0], [7e-4])
    found = family.separation(first, second)
    np.testing.assert_allclose(found, [np.sqrt(1e4 + 1e-4 - 2.0)], rtol=1e-6)


def test_the_separation_of_frequencies_is_fisher_s():
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.ones(6), size=2)
    pooled = 0.5 * (np.diag(p) - np.outer(p, p) + np.diag(q) - np.outer(q, q))
    expected = np.sqrt((p - q) @ np.linalg.pinv(pooled) @ (p - q))
    family = kf.families.Categorical(6)
    found = family.separation(family.natural(p[None]), family.natural(q[None]))
    np.testing.assert_allclose(found, [expected], rtol=1e-8)
    topics = kf.families.Dirichlet(6)
    found = topics.separation(1e9 * p[None], 1e9 * q[None])
    np.testing.assert_allclose(found, [expected], rtol=1e-6)
    share = kf.families.Beta(2)
    two = share.separation(
        1e9 * np.array([[0.2, 0.5, 0.8, 0.5]]), 1e9 * np.array([[0.7, 0.1, 0.3, 0.9]])
    )
    apart = [(0.2 - 0.7) ** 2 / (0.5 * (0.16 + 0.21)), (0.5 - 0.1) ** 2 / (0.5 * (0.25 + 0.09))]
    np.testing.assert_allclose(two, [np.sqrt(sum(apart))], rtol=1e-6)
