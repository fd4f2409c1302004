"""Mehrotra's predictor-corrector interior-point method for the relaxation.

Iterates stay strictly feasible for both the primal and the dual. So each has an upper and a lower
bound, and needs no repair. It takes 8 to 15 iterations.
"""

from dataclasses import dataclass

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.assignment.cone_program import (
    Newton,
    Point,
    Problem,
    dot,
    inner,
    penalised_objective,
)

FEASIBILITY = 1e-7  # how far a plan may be from its constraints
_CENTRING = 0.2  # first barrier weight against the mean cost; 0.1 to 0.3 measured best
_STEP_TO_BOUNDARY = 0.95  # share of the longest step within the cones


def relative_gap(upper: float, lower: float) -> float:
    """How far apart two bounds are, as a share of the upper one."""
    return max(upper - lower, 0.0) / max(abs(upper), np.finfo(float).tiny)


def cold_start(problem: Problem) -> Point:
    """Point near the central path: P = mu / reduced costs, pulled inside the silo constraints."""
    costs, penalty, silos = problem.costs, problem.penalty, problem.silos
    n, n_columns = costs.shape
    # A mean of roots: a few huge costs, of pairs that never match, must not set the scale.
    barrier = _CENTRING * (np.sqrt(costs).mean() ** 2 + penalty / np.sqrt(n)) / n_columns
    load = (silos.sizes / n_columns)[:, None]
    plan = np.full((n, n_columns), 1.0 / n_columns)
    pull = plan * (penalty / _central_radius(plan, penalty, barrier))
    price = np.where(silos.full, 0.0, barrier / np.where(silos.full, 1.0, 1.0 - load))
    price = np.broadcast_to(price, (silos.sizes.size, n_columns))
    shifted = costs + pull + silos.spread(price)
    # Newton on 1 / sum_g(mu / reduced): the reciprocal is nearly linear in the row's value.
    ceiling = shifted.min(axis=1) - barrier
    value = ceiling - barrier * (n_columns - 1)
    for _ in range(6):
        central = barrier / (shifted - value[:, None])
        total = central.sum(axis=1)
        value += barrier * total * (1.0 - total) / np.einsum("ig,ig->i", central, central)
        value = np.minimum(value, ceiling)
    central = barrier / (shifted - value[:, None])
    central /= central.sum(axis=1, keepdims=True)
    excess = silos.sum(central).max(axis=1, keepdims=True) - load
    share = np.where(
        silos.full, 0.0, np.minimum(1.0, 0.9 * (1.0 - load) / np.maximum(excess, 1e-9))
    )
    plan += silos.spread(share) * (central - plan)
    return Point(plan, _central_radius(plan, penalty, barrier), pull, price.copy(), value)


def _central_radius(plan: FloatArray, penalty: float, barrier: float) -> FloatArray:
    """Radius (G,) at which a column's cone has barrier weight `barrier`."""
    ratio = barrier / (2.0 * penalty)
    return ratio + np.sqrt(ratio**2 + dot(plan, plan))


def _advance(newton: Newton) -> Point:
    """One predictor-corrector iteration."""
    problem, at = newton.problem, newton.at
    affine = newton.predictor()
    primal, dual = (min(1.0, step) for step in newton.steps(affine))
    # Both sides are feasible, so the gap is the difference of two linear objectives.
    change = affine.point
    fall = primal * (inner(problem.costs, change.plan) + problem.penalty * change.radius.sum())
    fall -= dual * (change.value.sum() - change.price.sum())
    centring = max(1.0 + fall / newton.gap, 0.0) ** 3
    move = newton.corrector(affine, max(centring, 1e-6) * newton.barrier)
    primal, dual = (min(1.0, _STEP_TO_BOUNDARY * step) for step in newton.steps(move))
    change = move.point
    plan = at.plan + primal * change.plan
    return Point(
        plan / plan.sum(axis=1, keepdims=True),
        at.radius + primal * change.radius,
        at.pull + dual * change.pull,
        at.price + dual * change.price,
        at.value + dual * change.value,
    )


@dataclass(frozen=True)
class Search:
    """Outcome of the iterations, in scaled units."""

    plan: FloatArray
    lower: float
    best: Point  # gives `lower`
    iterations: int


def iterate(
    problem: Problem, at: Point, incumbent: FloatArray | None, tol: float, max_iter: int
) -> Search:
    """Iterate to the tolerance, or as far as floating-point precision allows."""
    plan, upper, lower = at.plan, np.inf, -np.inf
    if incumbent is not None:
        plan = incumbent
        upper = penalised_objective(problem.costs, plan, problem.penalty) + problem.offset
    best, iteration = at, 0
    while True:
        upper_here, lower_here = problem.bounds(at)
        if upper_here < upper:
            upper, plan = upper_here, at.plan
        if lower_here > lower:
            lower, best = lower_here, at
        if relative_gap(upper, lower) <= tol or iteration == max_iter:
            break
        try:
            newton = Newton(problem, at)
        except np.linalg.LinAlgError:  # out of precision; the bounds found so far hold
            break
        at = _advance(newton)
        iteration += 1
    return Search(plan, lower, best, iteration)
