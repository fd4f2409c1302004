"""The peer: the paper's convex relaxation through cvxpy and a conic solver."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from klfusion._utils.running import silent
from klfusion.assignment.binary import solve_hungarian
from klfusion.methods import Relaxed
from klfusion.methods.search import alternate, kl_plus_plus
from klfusion.objective.problem import FusionProblem

FloatArray = NDArray[np.float64]


def solve_conic(
    costs: FloatArray, silo: NDArray[np.intp], penalty: float, solver: str
) -> tuple[FloatArray, float]:
    """Plan (n, G) and objective of the relaxation."""
    plan = cp.Variable(costs.shape, nonneg=True)
    membership = (silo[None, :] == np.arange(silo.max() + 1)[:, None]).astype(float)
    problem = cp.Problem(
        cp.Minimize(cp.sum(cp.multiply(costs, plan)) + penalty * cp.sum(cp.norm(plan, 2, axis=0))),
        [cp.sum(plan, axis=1) == 1, membership @ plan <= 1],
    )
    problem.solve(solver=solver)
    return np.asarray(plan.value), float(problem.value)


def fuse_conic(problem: FusionProblem, n_candidates: int, solver: str, seed: int = 0) -> FloatArray:
    """Centres (G, p) with members, by the paper's alternation with a conic solver."""
    centres = problem.natural[kl_plus_plus(problem, n_candidates, np.random.default_rng(seed))]
    scale = float(problem.costs(centres).std())
    penalty = Relaxed.scale * scale

    def assign(costs: FloatArray, problem: FusionProblem, _: float, previous: Any) -> FloatArray:
        del previous
        plan, _ = solve_conic(costs / scale, problem.silo, Relaxed.scale, solver)
        plan = np.maximum(plan, 0.0)
        return np.asarray(plan / plan.sum(axis=1, keepdims=True))

    search = Relaxed(max_iter=50).search(None, np.random.default_rng(0), silent)
    found = alternate(problem, centres, assign, penalty, search)
    labels = solve_hungarian(-np.asarray(found.plan, dtype=np.float64), problem.silos)
    return found.centres[np.unique(labels)]
