"""The penalty's marginals are differences of the penalty itself."""

from __future__ import annotations

import numpy as np
import pytest

from klfusion._utils.arrays import joining, merge_saving, penalties, tangents, total_penalty

COUNTS = np.array([0, 1, 2, 7, 100])


def test_the_total_is_the_sum_over_clusters():
    assert total_penalty(COUNTS, 3.0) == pytest.approx(penalties(COUNTS, 3.0).sum())


def test_joining_costs_the_difference_of_two_penalties():
    expected = penalties(COUNTS + 1, 3.0) - penalties(COUNTS, 3.0)
    np.testing.assert_allclose(joining(COUNTS, 3.0), expected)
    assert joining(COUNTS, 3.0)[0] == 3.0


def test_a_merge_saves_the_difference_of_two_totals():
    a, b = np.array([1, 1, 5]), np.array([1, 4, 9])
    before, after = np.sqrt(a) + np.sqrt(b), np.sqrt(a + b)
    np.testing.assert_allclose(merge_saving(a, b), before - after)


def test_tangents_lie_above_the_penalty():
    counts, others = COUNTS[1:, None], np.arange(1.0, 200.0)
    line = penalties(counts, 3.0) + tangents(counts, 3.0) * (others - counts)
    assert (line >= penalties(others, 3.0) - 1e-12).all()
