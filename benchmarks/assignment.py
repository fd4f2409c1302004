"""Assignment at fixed costs, binary and relaxed, against cvxpy with Clarabel and SCS."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Row, compare, has, measure
from klfusion.assignment.binary import binary_objective, solve_binary
from klfusion.assignment.relaxed import certified_bound, solve_relaxed

FloatArray = NDArray[np.float64]
# Silos, true components, components of the largest silo, candidates.
SHAPES = [(50, 5, 5, 15), (50, 20, 10, 60), (200, 20, 10, 60)]


def simulated_costs(
    n_silos: int, n_true: int, largest: int, n_candidates: int, seed: int = 0
) -> tuple[FloatArray, NDArray[np.intp], list[slice]]:
    """Squared distances of noisy local points to candidates, scaled to standard deviation 1."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(n_true, 10))
    sizes = rng.integers(2, largest + 1, size=n_silos)
    points = np.concatenate(
        [true[rng.permutation(n_true)[:n]] + 0.5 * rng.normal(size=(n, 10)) for n in sizes]
    )
    chosen = [int(rng.integers(len(points)))]
    nearest = np.square(points - points[chosen[0]]).sum(axis=1)
    while len(chosen) < n_candidates:
        chosen.append(int(rng.choice(len(points), p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, np.square(points - points[chosen[-1]]).sum(axis=1))
    costs = np.square(points[:, None] - points[chosen][None]).sum(axis=2)
    edges = np.concatenate([[0], np.cumsum(sizes)])
    silos = [slice(int(a), int(b)) for a, b in pairwise(edges)]
    return costs / costs.std(), np.repeat(np.arange(n_silos), sizes), silos


def _binary_and_relaxed(shape: tuple[int, int, int, int], penalty: float) -> list[Row]:
    from benchmarks.conic import solve_conic

    costs, silo, silos = simulated_costs(*shape)
    name = f"{shape[0]} silos x {shape[3]} candidates, penalty {penalty}"
    exact = measure(lambda: solve_binary(costs, silos, penalty), repeats=5)
    relaxed = measure(lambda: solve_relaxed(costs, silo, penalty), repeats=5)
    bound = certified_bound(costs, silo, penalty, exact.result.labels, tol=1e-5)
    value = binary_objective(costs, exact.result.labels, penalty)
    rows = []
    for solver in ("CLARABEL", "SCS"):
        peer = measure(partial(solve_conic, costs, silo, penalty, solver))
        theirs = peer.result[1]
        rows += [
            compare(
                f"exact: {name}", f"cvxpy + {solver}", exact, peer,
                objective=value, peer_objective=theirs, lower_bound=bound,
                note=f"{value / bound - 1:.2%} above the bound",
            ),
            compare(
                f"relaxed: {name}", f"cvxpy + {solver}", relaxed, peer,
                objective=relaxed.result.objective, peer_objective=theirs,
                lower_bound=relaxed.result.lower_bound,
                note=f"gap {relaxed.result.gap:.1e}, "
                f"objective {relaxed.result.objective / theirs - 1:+.1e} of the peer's",
            ),
        ]  # fmt: skip
    return rows


def run(quick: bool = False) -> list[Row]:
    """All rows; ``quick`` keeps the smallest problem."""
    if not has("cvxpy"):
        return []
    return [
        row
        for shape in SHAPES[: 1 if quick else None]
        for penalty in (0.1, 0.5)
        for row in _binary_and_relaxed(shape, penalty)
    ]
