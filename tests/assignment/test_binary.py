"""The binary assignment at fixed costs: feasible, monotone, near the certified optimum."""

from __future__ import annotations

from itertools import pairwise, permutations, product

import numpy as np
import pytest

from klfusion.assignment.binary import binary_objective, solve_binary, solve_hungarian
from klfusion.assignment.relaxed import certified_bound
from tests.helpers.loops import for_each


def random_problem(seed, n_silos=6, n_columns=8):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, size=n_silos)
    edges = np.concatenate([[0], np.cumsum(sizes)])
    silos = [slice(int(a), int(b)) for a, b in pairwise(edges)]
    points = rng.normal(size=(edges[-1], 2))
    centres = rng.normal(size=(n_columns, 2))
    costs = np.square(points[:, None] - centres[None]).sum(axis=2)
    return costs, silos, np.repeat(np.arange(n_silos), sizes)


def brute_force(costs, silos, penalty):
    choices = [list(permutations(range(costs.shape[1]), rows.stop - rows.start)) for rows in silos]
    return min(
        binary_objective(costs, np.concatenate([np.array(c) for c in plan]), penalty)
        for plan in product(*choices)
    )


@for_each("seed", range(20))
@for_each("penalty", [0.1, 1.0, 10.0])
def test_plan_is_feasible_and_above_its_bound(seed, penalty):
    costs, silos, silo = random_problem(seed)
    found = solve_binary(costs, silos, penalty)
    for rows in silos:
        assert len(set(found.labels[rows])) == rows.stop - rows.start
    assert found.objective == pytest.approx(binary_objective(costs, found.labels, penalty))
    bound = certified_bound(costs, silo, penalty, found.labels)
    assert bound <= found.objective


@for_each("seed", range(10))
def test_small_problems_are_solved_to_within_a_few_percent_of_the_optimum(seed):
    costs, silos, _ = random_problem(seed, n_silos=3, n_columns=4)
    for penalty in (0.3, 3.0):
        best = brute_force(costs, silos, penalty)
        assert best - 1e-9 <= solve_binary(costs, silos, penalty).objective <= 1.1 * best


@for_each("seed", range(10))
def test_a_start_is_never_made_worse(seed):
    costs, silos, _ = random_problem(seed)
    start = solve_hungarian(costs, silos)
    found = solve_binary(costs, silos, 1.0, start=start)
    assert found.objective <= binary_objective(costs, start, 1.0)


def test_without_penalty_each_silo_is_solved_exactly():
    costs, silos, _ = random_problem(3)
    labels = solve_hungarian(costs, silos)
    found = solve_binary(costs, silos, 0.0)
    assert found.objective == pytest.approx(binary_objective(costs, labels, 0.0))
