"""The blocked KL matrix, whatever its shape, is the one of pairs."""

import numpy as np
import pytest

from klfusion.families import Gamma, NormalWishart
from tests.families.cases import case_for, every_case


@every_case
def test_is_the_transpose_of_kl(case):
    family, rng = case.family, np.random.default_rng(0)
    centres, local = case.draw(rng, 3), case.draw(rng, 50)
    local[7] = centres[1]
    matrix = family.kl_from(centres, local)
    assert matrix.shape == (50, 3)
    np.testing.assert_array_equal(matrix, family.kl(centres, local).T)
    assert matrix[7, 1] == 0.0


@every_case
def test_each_entry_is_that_of_its_pair_alone(case):
    family, rng = case.family, np.random.default_rng(1)
    centres, local = case.draw(rng, 4), case.draw(rng, 6)
    matrix = family.kl_from(centres, local)
    for i in range(6):
        for g in range(4):
            alone = family.kl(centres[g : g + 1], local[i : i + 1])[0, 0]
            assert matrix[i, g] == pytest.approx(alone, rel=1e-9, abs=1e-12)


@every_case
def test_known_log_partition(case):
    family, rng = case.family, np.random.default_rng(2)
    centres, local = case.draw(rng, 5), case.draw(rng, 30)
    known = family.kl_from(centres, local, family.log_partition(local))
    np.testing.assert_array_equal(known, family.kl_from(centres, local))


@every_case
def test_more_rows_than_a_block(case):
    """70,000 x 3, the last block not full, with copies of the centres among the rows."""
    family, rng = case.family, np.random.default_rng(3)
    few, centres = case.draw(rng, 700), case.draw(rng, 3)
    few[[5, 699]] = centres[[0, 2]]
    matrix = family.kl_from(centres, np.tile(few, (100, 1)))
    assert matrix.shape == (70_000, 3)
    expected = family.kl_from(centres, few)
    assert expected[5, 0] == 0.0 and expected[699, 2] == 0.0
    for part in matrix.reshape(100, 700, 3):
        np.testing.assert_allclose(part, expected, rtol=1e-9, atol=1e-12)


def test_more_near_pairs_than_a_batch():
    """4,900 pairs of 232 natural parameters, all of them so near that they are computed again."""
    case, rng = case_for(NormalWishart(20)), np.random.default_rng(4)
    family, one = case.family, case.draw(rng, 1)
    near = one * (1 + 1e-9 * np.arange(70)[:, None])
    matrix = family.kl_from(near, near)
    for row, local in zip(matrix, near, strict=True):
        alone = family.kl_from(near, local[None])[0]
        np.testing.assert_allclose(row, alone, rtol=1e-9, atol=1e-13)
    np.testing.assert_array_equal(np.diag(matrix), np.zeros(70))


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_compare(n, m):
    family = case_for(NormalWishart(2))
    rng = np.random.default_rng(5)
    centres, local = family.draw(rng, 3)[:m], family.draw(rng, 3)[:n]
    assert family.family.kl_from(centres, local).shape == (n, m)


def test_strided_and_integer_inputs():
    family = Gamma(2)
    natural = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [2, 2, 2, 2]])
    expected = family.kl(natural.astype(float), natural.astype(float))
    np.testing.assert_allclose(family.kl(natural, natural), expected)
    fortran = np.asfortranarray(natural.astype(float))
    np.testing.assert_allclose(family.kl(fortran, fortran[::-1]), expected[:, ::-1])
