"""The prior over partitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klfusion.model_size.partitions import PartitionPrior


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_joining_is_the_ratio_of_two_partitions(sizes):
    prior, sizes = PartitionPrior(7), np.array(sizes)
    alone = prior.of_sizes(np.append(sizes, 1))
    for g in range(len(sizes)):
        joined = sizes + (np.arange(len(sizes)) == g)
        expected = prior.of_sizes(joined) - alone
        assert prior.joining(sizes)[g] == pytest.approx(expected)


def test_along_a_path_it_is_that_of_each_partition():
    prior = PartitionPrior(3)
    merged = np.array([[1, 1], [1, 1], [2, 1]])  # of six: two pairs, then three in one
    partitions = [[1] * 6, [2, 1, 1, 1, 1], [2, 2, 1, 1], [3, 2, 1]]
    expected = [prior.of_sizes(np.array(one)) for one in partitions]
    np.testing.assert_allclose(prior.along(6, merged), expected)


def test_two_silos_of_one_component_are_equally_likely_to_share_it():
    prior = PartitionPrior(2)
    shared, private = prior.of_sizes(np.array([2])), prior.of_sizes(np.array([1, 1]))
    assert abs(shared - private) < 3.0


def test_joining_of_several_partitions_is_that_of_each():
    prior, sizes = PartitionPrior(5), np.array([[3, 1, 2], [0, 1, 5], [1, 1, 1]])
    np.testing.assert_array_equal(prior.joining(sizes), [prior.joining(one) for one in sizes])
