"""Pivots tell which matrices of a batch are positive definite, each by itself."""

from __future__ import annotations

import numpy as np
import pytest

from klfusion.families.positive_definite import inverse_and_log_det, smallest_pivot


def alone(matrix):
    """The least pivot, else an eigenvalue that is not positive, else NaN."""
    try:
        return np.diag(np.linalg.cholesky(matrix)).min() ** 2
    except np.linalg.LinAlgError:
        if not np.isfinite(matrix).all():
            return np.nan
        return min(np.linalg.eigvalsh(matrix)[0], 0.0)


@pytest.mark.parametrize("dim", [1, 2, 5, 12])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_batch_is_judged_as_each_matrix_by_itself(dim, share):
    rng = np.random.default_rng(dim)
    factor = rng.normal(size=(60, dim, dim + 2))
    symmetric = factor @ factor.transpose(0, 2, 1)
    symmetric[rng.random(60) < share] *= -1.0
    # A matrix on another scale is judged by itself, and so is one that is only just positive.
    scales = 10.0 ** rng.uniform(-140, 140, size=60)
    symmetric *= scales[:, None, None]
    expected = [alone(matrix) for matrix in symmetric]
    np.testing.assert_allclose(smallest_pivot(symmetric), expected, rtol=1e-9)


def test_borders_of_the_domain():
    singular, negative, unknown = np.diag([1.0, 0.0]), np.diag([1.0, -2.0]), np.full((2, 2), np.nan)
    tiny = np.diag([1e-300, 1e-300])
    found = smallest_pivot(np.array([np.eye(2), singular, tiny, unknown, negative]))
    np.testing.assert_allclose(found, [1.0, 0.0, 1e-300, np.nan, -2.0])
    assert smallest_pivot(np.empty((0, 3, 3))).shape == (0,)


def test_a_matrix_with_a_negative_diagonal_after_elimination():
    indefinite = np.array([[1.0, 2.0], [2.0, 1.0]])
    found = smallest_pivot(np.stack([indefinite, np.eye(2)]))
    np.testing.assert_allclose(found, [-1.0, 1.0])


@pytest.mark.parametrize("dim", [1, 2, 3, 10, 40])
def test_inverses_and_log_determinants_are_those_of_each_matrix(dim):
    rng = np.random.default_rng(dim)
    factor = rng.normal(size=(30_000 // dim**2 + 2, dim, dim + 2))
    matrices = factor @ factor.transpose(0, 2, 1)
    matrices *= 10.0 ** rng.uniform(-100, 100, size=(len(matrices), 1, 1))
    found, log_det = inverse_and_log_det(matrices)
    expected = np.linalg.inv(matrices)
    scale = np.abs(expected).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(found / scale, expected / scale, atol=1e-7)
    np.testing.assert_array_equal(found, found.transpose(0, 2, 1))
    np.testing.assert_allclose(log_det, np.linalg.slogdet(matrices)[1], rtol=1e-9)


def test_a_matrix_that_is_not_positive_definite_spoils_no_other():
    found, log_det = inverse_and_log_det(np.stack([np.diag([1.0, -2.0]), 2.0 * np.eye(2)]))
    np.testing.assert_allclose(found, [np.diag([1.0, -0.5]), 0.5 * np.eye(2)])
    np.testing.assert_allclose(log_det, [np.nan, 2.0 * np.log(2.0)])
