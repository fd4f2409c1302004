"""The rows of one silo take distinct columns, or open new ones, at least cost."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from klfusion.assignment.binary import assign_silo


def brute_force(costs, new, forbidden):
    n_rows, n_columns = costs.shape
    best = np.inf
    for labels in product(range(-1, n_columns), repeat=n_rows):
        used = [g for g in labels if g >= 0]
        if len(set(used)) == len(used) and not forbidden[used].any():
            best = min(best, cost(costs, np.array(labels), new))
    return best


def cost(costs, labels, new):
    opened = labels < 0
    return costs[~opened, labels[~opened]].sum() + (new * opened.sum() if opened.any() else 0.0)


@pytest.mark.parametrize("new", [0.2, 0.8, np.inf])
@pytest.mark.parametrize("seed", range(10))
def test_no_assignment_costs_less(seed, new):
    rng = np.random.default_rng(seed)
    costs = rng.uniform(size=(3, 5))
    forbidden = np.zeros(5, dtype=bool)
    forbidden[rng.integers(5)] = True
    labels = assign_silo(costs, new, forbidden)
    used = labels[labels >= 0]
    assert len(set(used)) == len(used)
    assert not forbidden[used].any()
    assert cost(costs, labels, new) == pytest.approx(brute_force(costs, new, forbidden))


def test_a_silo_larger_than_the_model_opens_components():
    assert (assign_silo(np.ones((3, 2)), new=5.0) < 0).sum() == 1


def test_the_costs_are_left_as_they_are():
    costs = np.ones((2, 3))
    assign_silo(costs, 0.5, np.array([True, False, False]))
    assert (costs == 1.0).all()
