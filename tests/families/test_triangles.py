"""Elimination in many matrices at once agrees with LAPACK, matrix by matrix."""

import numpy as np
import pytest

from klfusion.families import NormalWishart
from klfusion.families.triangles import (
    congruence,
    invert,
    log_det_of,
    pack,
    products_with,
    squares,
    unpack,
)


def random_matrices(rng, n, dim):
    factor = rng.normal(size=(n, dim, dim + 3))
    return factor @ factor.transpose(0, 2, 1) * 10.0 ** rng.uniform(-9, 9, size=(n, 1, 1))


def columns_of(matrices):
    row, column = np.triu_indices(matrices.shape[1])
    return np.ascontiguousarray(matrices[:, row, column].T)


@pytest.mark.parametrize("dim", [1, 2, 5, 11])
def test_log_determinants_and_inverses_are_those_of_lapack(dim):
    matrices = random_matrices(np.random.default_rng(dim), 60, dim)
    expected = np.linalg.slogdet(matrices)[1]
    np.testing.assert_allclose(log_det_of(columns_of(matrices), dim), expected, atol=1e-9)
    inverses = columns_of(matrices)
    np.testing.assert_allclose(invert(inverses, dim), expected, atol=1e-9)
    scale = np.abs(np.linalg.inv(matrices)).max(axis=(1, 2))
    off = np.abs(inverses - columns_of(np.linalg.inv(matrices))).max(axis=0)
    assert (off < 1e-9 * scale).all()


def test_what_is_not_positive_definite_spoils_no_other():
    matrices = np.stack([np.eye(2), np.diag([1.0, -1.0]), np.zeros((2, 2)), 2.0 * np.eye(2)])
    for function in (log_det_of, invert):
        found = function(columns_of(matrices), 2)
        assert found[[0, 3]] == pytest.approx([0.0, 2.0 * np.log(2.0)])
        assert not np.isfinite(found[[1, 2]]).any()


def test_packed_products():
    rng = np.random.default_rng(0)
    x, v, m = rng.normal(size=(4, 3)), rng.normal(size=3), rng.normal(size=(3, 3))
    matrices = random_matrices(rng, 4, 3)
    np.testing.assert_allclose(unpack(squares(x), 3), x[:, :, None] * x[:, None, :])
    both = x[:, :, None] * v + v[:, None] * x[:, None, :]
    np.testing.assert_allclose(unpack(x @ products_with(v), 3), both)
    np.testing.assert_allclose(pack(matrices) @ congruence(m), pack(m @ matrices @ m.T))


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_many_posteriors_are_computed_as_few(dim):
    rng, n = np.random.default_rng(dim), 40 * (dim + 1)
    family = NormalWishart(dim)
    scale_inv = random_matrices(rng, n, dim)
    spread = np.sqrt(np.einsum("nii->ni", scale_inv))
    dof = dim + rng.uniform(0.0, 50.0, size=n)
    kappa = rng.uniform(0.5, 80.0, size=n)
    natural = family.natural(rng.normal(size=(n, dim)) * spread, kappa, scale_inv, dof)
    many = family.log_partition(natural), family.mean(natural)
    mass = rng.uniform(0.5, 4.0, size=n)
    average = family.log_partition_of_average(natural * mass[:, None], mass)
    np.testing.assert_allclose(average, many[0], rtol=1e-9, atol=1e-9)
    parts = np.array_split(natural, 40)
    few = [np.concatenate([f(part) for part in parts]) for f in (family.log_partition, family.mean)]
    np.testing.assert_allclose(many[0], few[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(many[1] / few[1], 1.0, atol=1e-6)
