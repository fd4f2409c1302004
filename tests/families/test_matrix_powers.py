"""Powers of many matrices at once are those of their eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest

from klfusion.families.matrix_powers import power
from klfusion.families.wishart import NormalWishart
from tests.families.cases import covariances
from tests.helpers.loops import for_each


def by_eigenvalues(matrices, exponent):
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * values[:, None] ** exponent) @ vectors.mT


@for_each("dim", [2, 3, 10, 17])
def test_powers_are_those_of_eigenvalues(dim):
    rng = np.random.default_rng(dim)
    root = rng.normal(size=(50, dim, 2 * dim)) * np.exp(rng.normal(size=(50, 1, 1)))
    matrices = root @ root.mT
    matrices[0], matrices[1] = np.eye(dim), np.diag(np.arange(1.0, dim + 1.0))
    for exponent in (0.0, 0.03, 0.5, 0.9, 1.0):
        found = power(matrices.transpose(1, 2, 0).copy(), exponent).transpose(2, 0, 1)
        expected = by_eigenvalues(matrices, exponent)
        largest = np.abs(expected).max(axis=(1, 2), keepdims=True)
        np.testing.assert_allclose(found / largest, expected / largest, rtol=0.0, atol=1e-13)


def test_wide_spectra():
    rng = np.random.default_rng(0)
    values = np.exp(np.log(1e6) * rng.random(size=(30, 8)))
    vectors = np.linalg.qr(rng.normal(size=(30, 8, 8)))[0]
    matrices = (vectors * values[:, None]) @ vectors.mT
    found = power(matrices.transpose(1, 2, 0).copy(), 0.7).transpose(2, 0, 1)
    expected = by_eigenvalues(matrices, 0.7)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12 * np.abs(expected).max())


@for_each("last", [0.0, -1.0, 1e-30, np.nan, np.inf])
def test_a_singular_matrix_is_refused(last):
    matrices = np.stack([np.eye(4)] * 9, axis=-1)
    matrices[3, 3, 5] = last
    with pytest.raises(np.linalg.LinAlgError):
        power(matrices, 0.5)


@for_each("narrow", [False, True])
def test_many_components_vary_as_few(narrow):
    """Also where one is so narrow that the powers are those of eigenvalues."""
    family, rng = NormalWishart(3), np.random.default_rng(1)
    mean, scatter = rng.normal(size=(300, 3)), 20.0 * covariances(rng, 300, 3)
    if narrow:
        mean[7], scatter[7] = 0.0, 1e-30 * scatter[7]
    kappa, dof = rng.uniform(9.0, 50.0, size=(2, 300))
    natural = family.natural(mean, kappa, scatter, dof)
    variation = family.variation(np.delete(natural, 7, axis=0), np.arange(299) % 5)
    few = [family.varied(natural[some : some + 50], variation) for some in range(0, 300, 50)]
    np.testing.assert_allclose(family.varied(natural, variation), np.concatenate(few), rtol=1e-10)
