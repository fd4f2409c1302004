"""Silos with the same components: linear assignment against POT's Sinkhorn, on equal costs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import klfusion as kf
from benchmarks.measure import Row, compare, has, measure
from benchmarks.silos import mixture_silos
from klfusion._utils.running import silent
from klfusion.assignment.binary import solve_hungarian
from klfusion.methods import Homogeneous
from klfusion.methods.search import Alternation, alternate, assign_hungarian
from klfusion.objective.problem import FusionProblem

FloatArray = NDArray[np.float64]
# Silos, components per silo.
SHAPES = [(20, 20), (50, 20), (50, 100)]
REGULARISATION = 0.05  # of the mean cost
TOLERANCE = 1e-4  # of the marginals; the default of POT is 1e-9


def sinkhorn(costs: FloatArray, silos: list[slice]) -> FloatArray:
    """Plan (n, G) of all silos, each with its own Sinkhorn iterations."""
    import ot

    ones = np.ones(costs.shape[1])
    plan = np.empty_like(costs)
    for rows in silos:
        block = costs[rows] - costs[rows].min(axis=1, keepdims=True)  # the same plan, no underflow
        plan[rows] = ot.sinkhorn(
            ones, ones, block / block.mean(), REGULARISATION, stopThr=TOLERANCE, warn=False
        )
    return plan


def _assign_sinkhorn(
    costs: FloatArray, problem: FusionProblem, penalty: float, previous: Any
) -> FloatArray:
    del penalty, previous
    return sinkhorn(costs, problem.silos)


def run(quick: bool = False) -> list[Row]:
    """Per shape, an assignment at fixed costs and the paper's alternation to convergence."""
    if not has("ot"):
        return []
    return [row for shape in SHAPES[: 1 if quick else None] for row in _of_shape(*shape)]


def _of_shape(n_silos: int, size: int) -> list[Row]:
    rng = np.random.default_rng(0)
    silos, truth = mixture_silos(n_silos, rng, n_true=size, size=size)
    natural = np.concatenate([s.natural for s in silos])
    silo = np.repeat(np.arange(n_silos), size)
    problem = FusionProblem(silos[0].family, natural, silo, np.ones(len(silo))).centred()
    start = problem.natural[problem.silos[0]]
    costs = problem.costs(start)
    shape = f"{n_silos} silos x {size} components"

    def along(assign: Any) -> Alternation:
        search = Homogeneous().search(None, np.random.default_rng(0), silent)
        return alternate(problem, start, assign, 0.0, search)

    def right(plan: FloatArray | NDArray[np.intp]) -> float:
        """Share of components in the cluster of the first silo's equal component."""
        labels = plan if plan.ndim == 1 else plan.argmax(axis=1)
        return float((truth[:size][labels.astype(np.intp)] == truth).mean())

    one = measure(lambda: solve_hungarian(costs, problem.silos), repeats=5)
    their_one = measure(lambda: sinkhorn(costs, problem.silos))
    best = costs[np.arange(problem.n), one.result].sum()
    excess = (costs * their_one.result).sum() / best - 1.0
    whole = measure(lambda: along(assign_hungarian), repeats=5)
    their_whole = measure(lambda: along(_assign_sinkhorn))
    fused = measure(lambda: kf.fuse(silos, method="homogeneous"), repeats=3)
    # Labels refer to clusters; map them to the first silo's components.
    first, labels = fused.result.labels[0], np.concatenate(fused.result.labels)
    matched = right(np.argsort(first)[labels])
    peer = f"POT, Sinkhorn, regularisation {REGULARISATION}"
    return [
        compare(
            f"homogeneous assignment, {shape}", peer, one, their_one,
            note=f"peer's plan costs {excess:.1%} more",
        ),
        compare(
            f"homogeneous alternation, {shape}", peer, whole, their_whole,
            note=f"{right(whole.result.plan):.1%} right, peer {right(their_whole.result.plan):.1%}",
        ),
        compare(
            f'fuse(method="homogeneous"), {shape}', peer, fused, their_whole,
            note=f"{matched:.1%} right with 5 starts and local search; peer 1 start",
        ),
    ]  # fmt: skip
