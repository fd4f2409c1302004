"""Descents stop where the objective hardly falls, and keep the last step that was worth it."""

from __future__ import annotations

import numpy as np

from klfusion._utils.running import descend, settle


def halving(state):
    return state + 1, 0.5 ** (state + 1)


def test_the_step_that_hardly_lowers_the_objective_is_not_kept():
    values = iter([5.0, 4.99])
    found = descend(lambda state: (state + 1, next(values)), 0, 10.0, tol=0.01, max_iter=9)
    assert found == (1, [10.0, 5.0], True)


def test_a_rise_ends_a_descent_without_tolerance():
    values = iter([5.0, 6.0])
    found = descend(lambda state: (state + 1, next(values)), 0, 10.0, max_iter=9)
    assert found == (1, [10.0, 5.0], True)


def test_a_descent_that_is_not_finished_says_so():
    assert descend(halving, 0, 1.0, max_iter=2) == (2, [1.0, 0.5, 0.25], False)
    assert descend(halving, 0, 1.0, max_iter=0) == (0, [1.0], False)


def test_each_step_is_reported():
    seen = []
    descend(halving, 0, 1.0, max_iter=2, stage="halving", report=lambda *all_: seen.append(all_))
    assert seen == [("halving", 1, None), ("halving", 2, None)]


def test_labels_settle_where_a_step_changes_none():
    calls = []

    def step(labels):
        calls.append(1)
        return np.minimum(labels + 1, 2)

    assert settle(step, np.array([0, 2]), max_iter=9).tolist() == [2, 2]
    assert len(calls) == 3
    assert settle(step, np.array([0, 2]), max_iter=1).tolist() == [1, 2]
