"""What a table of patients discloses of the numbers that are left out of it."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from klfusion.report.suppression import suppressed
from tests.helpers.loops import for_each

MIN_CELL = 5


def largest(cells, totals, hidden, hidden_totals):
    """The largest value that each number may have, given all that is shown: (n, k + 1), (k,)."""
    n, k = len(cells), len(totals)
    shown = (cells > 0) & ~hidden
    known = shown[:, :k].any(axis=1)  # a number and its share give the hospital's patients
    bounds = [
        (v, v) if seen else (0, None)
        for v, seen in zip(cells[:, :k].flat, shown[:, :k].flat, strict=True)
    ]
    bounds += [(0, None if own else 0) for own in cells[:, k] > 0]
    bounds += [(0, None) if hide else (v, v) for v, hide in zip(totals, hidden_totals, strict=True)]
    bounds += [
        (v, v) if seen else (0, None) for v, seen in zip(cells.sum(axis=1), known, strict=True)
    ]
    none, eye = np.zeros, np.eye
    equal = np.vstack(
        [
            np.hstack([np.kron(eye(n), np.ones(k)), eye(n), none((n, k)), -eye(n)]),
            np.hstack([np.kron(np.ones(n), eye(k)), none((k, n)), -eye(k), none((k, n))]),
            np.hstack([none(n * k + n), np.ones(k), none(n)]),
        ]
    )
    right = np.append(np.zeros(n + k), totals.sum())
    found = np.full(n * k + n + k, np.nan)
    for place in range(len(found)):
        cost = -(np.arange(equal.shape[1]) == place).astype(float)
        result = linprog(cost, A_eq=equal, b_eq=right, bounds=bounds)
        found[place] = np.inf if result.status == 3 else -result.fun
    return np.hstack([found[: n * k].reshape(n, k), found[n * k :][:n, None]]), found[n * k + n :]


@for_each("seed", range(12))
def test_a_small_number_may_be_no_small_one(seed):
    rng = np.random.default_rng(seed)
    n, k = rng.integers(1, 5), rng.integers(2, 4)
    cells = np.zeros((n, k + 1))
    cells[:, :k] = rng.integers(0, 60, (n, k)) * (rng.random((n, k)) < 0.8)
    small = rng.random((n, k)) < 0.25
    cells[:, :k][small] = rng.integers(1, 5, small.sum())
    cells[:, k] = rng.integers(0, 12, n) * (rng.random(n) < 0.3)
    totals = cells[:, :k].sum(axis=0)
    found = suppressed(cells, totals, MIN_CELL)
    of_cells, of_totals = largest(cells, totals, *found)
    if totals.sum() >= MIN_CELL:
        assert of_cells[(cells > 0) & (cells < MIN_CELL)].min(initial=np.inf) >= MIN_CELL - 1e-6
        assert of_totals[(totals > 0) & (totals < MIN_CELL)].min(initial=np.inf) >= MIN_CELL - 1e-6


@for_each(
    "cells, hidden",
    [
        ([10, 20, 0], [False, False, False]),
        ([3, 20, 30], [True, True, False]),
        ([3, 4, 30], [True, True, False]),
        ([3, 0, 0], [True, False, False]),
        ([1, 1, 30], [True, True, True]),
    ],
)
def test_a_hospital_alone(cells, hidden):
    """Its numbers are the totals, too."""
    own = np.array(cells, dtype=float)
    found, of_totals = suppressed(np.append(own, 0.0)[None], own, MIN_CELL)
    assert found[0, :3].tolist() == hidden
    assert of_totals.tolist() == [a or b == 0 for a, b in zip(hidden, cells, strict=True)]


@for_each(
    "rows, hidden",
    [
        # The smallest of the hospital, and of another hospital the smaller of both phenotypes.
        ([[3, 20, 30], [90, 50, 80], [70, 60, 90]], [[1, 1, 0], [0, 0, 0], [1, 1, 0]]),
        # Each of two small numbers makes up for the other.
        ([[3, 20, 30], [90, 3, 80]], [[1, 1, 0], [1, 1, 0]]),
        # All patients of one hospital: so all numbers of another, which has fewest, are left out.
        ([[3, 0, 0], [9, 20, 30], [100, 80, 90]], [[1, 0, 0], [1, 1, 1], [0, 0, 0]]),
        ([[30, 20], [50, 60]], [[0, 0], [0, 0]]),
    ],
)
def test_the_fewest_patients_are_left_out(rows, hidden):
    cells = np.array(rows, dtype=float)
    found, of_totals = suppressed(
        np.hstack([cells, np.zeros((len(cells), 1))]), cells.sum(0), MIN_CELL
    )
    assert found[:, :-1].astype(int).tolist() == hidden
    assert not of_totals.any()


def test_a_total_of_few_takes_another_with_it():
    cells = np.array([[2.0, 50, 60, 0], [2, 70, 40, 0]])
    found, of_totals = suppressed(cells, cells[:, :3].sum(axis=0), MIN_CELL)
    assert of_totals[0] and of_totals.sum() == 2
    assert found[:, 0].all()


def test_patients_of_no_phenotype_are_what_is_left_of_a_hospital():
    cells = np.array([[40.0, 60, 3], [50, 70, 0]])
    found, _ = suppressed(cells, cells[:, :2].sum(axis=0), MIN_CELL)
    assert found[0, :2].any()
    few = cells - [[0, 0, -9], [0, 0, 0]]
    assert not suppressed(few, few[:, :2].sum(axis=0), MIN_CELL)[0].any()


def test_nothing_is_left_out_of_large_numbers():
    cells = np.full((3, 4), 20.0)
    assert not any(found.any() for found in suppressed(cells, np.full(3, 60.0), 0))
    assert not any(found.any() for found in suppressed(cells, np.full(3, 60.0), MIN_CELL))
