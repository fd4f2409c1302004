"""The relaxed solver against Clarabel, its own certificate, and awkward inputs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from klfusion.assignment.relaxed import certified_bound, penalised_objective, solve_relaxed
from tests.helpers.loops import for_each


def clustered_problem(rng, n_silos, n_columns, max_size, *, spread=1.0, n_true=20):
    """Squared distances of simulated local components to candidates chosen by k-means++."""
    centres = rng.normal(0.0, spread, (n_true, 10))
    sizes = rng.integers(min(2, max_size), max_size + 1, size=n_silos)
    picks = [rng.choice(n_true, size, replace=False) for size in sizes]
    points = centres[np.concatenate(picks)] + 0.5 * rng.normal(size=(sizes.sum(), 10))
    chosen = [int(rng.integers(len(points)))]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < n_columns:
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        mass = nearest.sum()
        chosen.append(int(rng.choice(len(points), p=nearest / mass if mass > 0 else None)))
    costs = 50.0 * ((points[:, None] - points[chosen]) ** 2).sum(axis=2)
    return costs / costs.std(), np.repeat(np.arange(n_silos), sizes)


def uniform_problem(rng, n_silos, n_columns, min_size, max_size):
    silo = np.repeat(np.arange(n_silos), rng.integers(min_size, max_size + 1, size=n_silos))
    return rng.random((silo.size, n_columns)), silo


def random_problem(seed):
    """One of fifty problems: clustered, uniform, integer (ties) or tight, at any penalty."""
    rng = np.random.default_rng(seed)
    n_columns = int(rng.integers(2, 21))
    n_silos = 1 if seed % 10 == 0 else int(rng.integers(2, 51))
    kind = seed % 4
    if kind == 0:
        spread = rng.choice([0.5, 1.0, 3.0])
        costs, silo = clustered_problem(rng, n_silos, n_columns, min(n_columns, 8), spread=spread)
    elif kind == 1:
        costs, silo = uniform_problem(rng, n_silos, n_columns, 1, n_columns)
    elif kind == 2:
        costs, silo = uniform_problem(rng, min(n_silos, 15), n_columns, n_columns, n_columns)
    else:
        costs, silo = uniform_problem(rng, n_silos, n_columns, 1, n_columns)
        costs = np.floor(4.0 * costs)
    return costs, silo, float(10.0 ** rng.uniform(-2.5, 1.5))


def clarabel_objective(costs, silo, penalty):
    cp = pytest.importorskip("cvxpy")
    plan = cp.Variable(costs.shape, nonneg=True)
    member = (silo == np.arange(silo[-1] + 1)[:, None]).astype(float)
    objective = cp.sum(cp.multiply(costs, plan)) + penalty * cp.sum(cp.norm(plan, 2, axis=0))
    problem = cp.Problem(cp.Minimize(objective), [cp.sum(plan, axis=1) == 1, member @ plan <= 1])
    return float(problem.solve(solver=cp.CLARABEL))


def assert_sound(result, costs, silo, penalty):
    """Feasible plan, honest objective, ordered bounds."""
    load = np.zeros((silo[-1] + 1, costs.shape[1]))
    np.add.at(load, silo, result.plan)
    assert result.plan.min() >= 0.0
    np.testing.assert_allclose(result.plan.sum(axis=1), 1.0, atol=1e-12)
    assert load.max() <= 1.0 + 1e-10
    assert result.objective == penalised_objective(costs, result.plan, penalty)
    assert result.lower_bound <= result.objective


def assert_solved(result, costs, silo, penalty, tol=1e-4):
    assert_sound(result, costs, silo, penalty)
    assert result.converged
    assert result.gap <= tol


def independent_labels(costs, silo):
    return np.concatenate([linear_sum_assignment(costs[silo == j])[1] for j in np.unique(silo)])


@for_each("seed", range(50))
def test_agrees_with_clarabel(seed):
    costs, silo, penalty = random_problem(seed)
    result = solve_relaxed(costs, silo, penalty)
    assert_solved(result, costs, silo, penalty)
    expected = clarabel_objective(costs, silo, penalty)
    assert result.objective == pytest.approx(expected, rel=1e-4)
    assert result.lower_bound <= expected * (1.0 + 1e-6)


@pytest.mark.parametrize("penalty", [0.1, 0.5])
def test_large_problem_converges_in_few_iterations(penalty):
    costs, silo = clustered_problem(np.random.default_rng(0), 200, 60, 10)
    result = solve_relaxed(costs, silo, penalty)
    assert_solved(result, costs, silo, penalty)
    assert result.iterations <= 15


@for_each("seed", range(12))
def test_dual_proves_the_lower_bound(seed):
    costs, silo, penalty = random_problem(seed)
    result = solve_relaxed(costs, silo, penalty)
    pull, price = result.dual.pull, result.dual.price
    assert np.linalg.norm(pull, axis=0).max() <= penalty * (1.0 + 1e-12)
    assert price.min() >= 0.0
    bound = (costs + pull + price[silo]).min(axis=1).sum() - price.sum()
    assert bound == pytest.approx(result.lower_bound, rel=1e-9)


@for_each("penalty", [0.0, 1e-6, 0.05, 0.5, 5.0])
@for_each("seed", range(6))
def test_certified_bound(seed, penalty):
    costs, silo, _ = random_problem(seed)
    labels = independent_labels(costs, silo)
    binary = penalised_objective(costs, np.eye(costs.shape[1])[labels], penalty)
    relaxed = solve_relaxed(costs, silo, penalty, tol=1e-6)
    bound = certified_bound(costs, silo, penalty, labels)
    assert bound <= binary
    assert bound <= relaxed.objective * (1.0 + 1e-12)
    assert bound >= relaxed.lower_bound - 1e-3 * relaxed.objective
    assert certified_bound(costs, silo, penalty, labels, max_iter=0) <= binary
    if penalty == 0.0:
        assert bound == pytest.approx(binary, rel=1e-12)


@pytest.mark.parametrize("penalty", [0.1, 1.0])
def test_duplicate_columns_do_not_hurt(penalty):
    costs, silo = clustered_problem(np.random.default_rng(1), 20, 10, 8)
    doubled = np.hstack([costs, costs])
    result = solve_relaxed(doubled, silo, penalty)
    assert_solved(result, doubled, silo, penalty)
    assert result.objective <= solve_relaxed(costs, silo, penalty).objective * (1.0 + 1e-4)
    equal = np.repeat(costs[:, :1], 10, axis=1)
    assert_solved(solve_relaxed(equal, silo, penalty), equal, silo, penalty)


@for_each("penalty", [1e-12, 1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9])
@for_each("factor", [1.0, 1e6])
def test_extreme_scales(penalty, factor):
    costs, silo = clustered_problem(np.random.default_rng(2), 15, 12, 8)
    assert_solved(solve_relaxed(factor * costs, silo, penalty), factor * costs, silo, penalty)


def test_extreme_dynamic_range():
    rng = np.random.default_rng(3)
    _, silo = uniform_problem(rng, 15, 12, 2, 12)
    heavy = np.exp(rng.normal(0.0, 5.0, (silo.size, 12)))
    binary = np.where(rng.random(heavy.shape) < 0.3, 0.0, 1e6)
    for costs in (heavy, heavy**2, binary, np.zeros_like(heavy), heavy + 1e6):
        for penalty in (0.5, 1e3):
            assert_solved(solve_relaxed(costs, silo, penalty), costs, silo, penalty)


@for_each("shape", [(1, 1), (1, 5), (7, 1), (6, 2)])
@for_each("penalty", [0.0, 0.3, 1e5])
def test_tiny_problems(shape, penalty):
    costs = np.random.default_rng(4).random(shape)
    silo = np.arange(shape[0]) // min(2, shape[1])
    result = solve_relaxed(costs, silo, penalty)
    assert_solved(result, costs, silo, penalty)
    if shape[0] == 1:
        assert result.objective == pytest.approx(costs.min() + penalty, rel=1e-4)


def test_start_is_returned_when_it_is_optimal():
    costs, silo = clustered_problem(np.random.default_rng(5), 20, 12, 6, spread=5.0)
    labels = independent_labels(costs, silo)
    plan = np.eye(12)[labels]
    for start in (labels, plan):
        result = solve_relaxed(costs, silo, 1e-4, start=start)
        assert_solved(result, costs, silo, 1e-4)
        np.testing.assert_array_equal(result.plan, plan)


def test_is_deterministic_and_leaves_inputs_alone():
    costs, silo, penalty = random_problem(8)
    before = costs.copy()
    first, second = (solve_relaxed(costs, silo, penalty) for _ in range(2))
    np.testing.assert_array_equal(first.plan, second.plan)
    assert (first.objective, first.lower_bound) == (second.objective, second.lower_bound)
    np.testing.assert_array_equal(costs, before)


def test_out_of_precision_and_out_of_budget_are_reported():
    costs, silo, penalty = random_problem(8)
    exact = solve_relaxed(costs, silo, penalty, tol=0.0)
    assert_sound(exact, costs, silo, penalty)
    assert exact.gap < 1e-8
    short = solve_relaxed(costs, silo, penalty, max_iter=2)
    assert_sound(short, costs, silo, penalty)
    assert short.iterations == 2
    assert not short.converged


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    extra=st.integers(0, 3),
    penalty=st.floats(1e-4, 1e4),
    digits=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
def test_always_sound(sizes, extra, penalty, digits, seed):
    silo = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(seed)
    costs = np.round(rng.gamma(0.3, size=(silo.size, max(sizes) + extra)), digits)
    assert_solved(solve_relaxed(costs, silo, penalty), costs, silo, penalty)
    labels = independent_labels(costs, silo)
    binary = penalised_objective(costs, np.eye(costs.shape[1])[labels], penalty)
    assert certified_bound(costs, silo, penalty, labels) <= binary


@for_each(
    "costs, silo, penalty, start",
    [
        (np.ones((3, 2)), [0, 0, 0], 1.0, None),
        (np.ones((3, 2)), [0, 1, 0], 1.0, None),
        (np.ones((3, 2)), [0, 1], 1.0, None),
        (np.ones((2, 2)), [0, 1], -1.0, None),
        (np.ones((2, 2)), [0, 1], np.nan, None),
        (np.ones((0, 2)), [], 1.0, None),
        (np.full((2, 2), np.inf), [0, 1], 1.0, None),
        (np.ones((2, 2)), [0, 0], 1.0, [0, 0]),
        (np.ones((2, 2)), [0, 0], 1.0, np.ones((2, 3))),
    ],
)
def test_bad_input_is_refused(costs, silo, penalty, start):
    with pytest.raises(ValueError, match=r"silo|penalty|costs|start"):
        solve_relaxed(costs, silo, penalty, start=start)
