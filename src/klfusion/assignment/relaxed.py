"""Convex relaxation of the regularised assignment, with a certified duality gap.

The relaxation is a second-order cone programme (`klfusion.assignment.cone_program`),

    min  <C, P> + penalty * sum_g t_g
    s.t. P >= 0, P 1 = 1, silo-column sums of P <= 1, ||P_{:,g}||_2 <= t_g,

solved by Mehrotra's predictor-corrector method. Iterates stay strictly feasible for the primal and
the dual, so each has an upper and a lower bound. It takes 8 to 15 iterations.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray
from klfusion.assignment.binary import solve_hungarian
from klfusion.assignment.cone_program import (
    Newton,
    Point,
    Problem,
    Silos,
    dot,
    inner,
    penalised_objective,
)

_NEGLIGIBLE = 1e-9  # penalty over costs below which the unpenalised plan is tried first
_MAX_OPERATIONS = 5e9  # of a certificate, an iteration taking n G max(n, G): about 5 s on one core


class RelaxedDual(NamedTuple):
    """Multipliers that prove the lower bound.

    ``pull``, (n, G), of the column norms: every column norm is at most the penalty. ``price``,
    (J, G), of the silo-column sums, not negative.
    """

    pull: FloatArray
    price: FloatArray


@dataclass(frozen=True)
class RelaxedPlan:
    """Solution of the relaxed assignment.

    The plan is feasible: rows sum to one, silo-column sums are at most one. In silos with as many
    rows as columns rounding accumulates to about 1e-11.
    """

    plan: FloatArray  # (n, G)
    objective: float  # of the plan, an upper bound of the optimum
    lower_bound: float  # of the optimum, certified
    dual: RelaxedDual | None  # None if the penalty was negligible
    iterations: int  # of the interior-point method
    converged: bool  # whether `gap` is within the requested tolerance

    @property
    def gap(self) -> float:
        """Relative gap between the two bounds."""
        return relative_gap(self.objective, self.lower_bound)


def solve_relaxed(
    costs: ArrayLike,
    silo: ArrayLike,
    penalty: float,
    *,
    start: ArrayLike | None = None,
    tol: float = 1e-4,
    max_iter: int = 60,
) -> RelaxedPlan:
    """Solve the convex relaxation of the regularised assignment.

    Parameters
    ----------
    costs : (n, G) array
        Finite cost of giving a row to a column.
    silo : (n,) integer array
        Silo of each row, sorted; no silo may have more than G rows.
    penalty : float
        Weight of the sum of the column norms, not negative.
    start : (n,) labels or (n, G) plan, optional
        Feasible incumbent: returned as it is if the lower bound reaches it first.
    tol, max_iter
        Relative gap at which to stop, and most interior-point iterations.

    Examples
    --------
    >>> result = solve_relaxed([[0.0, 1.0], [1.0, 0.0], [0.1, 1.0]], [0, 0, 1], 0.1)
    >>> result.plan.round(2)
    array([[1., 0.], [0., 1.], [1., 0.]])
    >>> result.converged, result.lower_bound <= result.objective
    (True, True)
    """
    costs, silos = _validated(costs, silo, penalty)
    incumbent = None if start is None else _as_plan(start, silos, costs.shape)
    lowest = costs.min(axis=1)
    scale = max(float((costs - lowest[:, None]).max()), penalty)
    if penalty * np.sqrt(costs.size) <= _NEGLIGIBLE * scale or scale == 0.0:
        simple = _solve_unpenalised(costs, silos, penalty, tol)
        if simple.converged:
            return simple
    problem = Problem(
        (costs - lowest[:, None]) / scale, penalty / scale, silos, float(lowest.sum()) / scale
    )
    with np.errstate(all="ignore"):  # at the limit of precision an iterate may leave its cones
        found = iterate(problem, cold_start(problem), incumbent, tol, max_iter)
    pull, price = found.best.pull * scale, found.best.price * scale
    # In a full silo a common shift of the prices changes nothing; make them non-negative.
    price = price - np.where(silos.full, price.min(axis=1, keepdims=True), 0.0)
    objective = penalised_objective(costs, found.plan, penalty)
    lower = min(found.lower * scale, objective)
    converged = relative_gap(objective, lower) <= tol
    dual = RelaxedDual(pull, price)
    return RelaxedPlan(found.plan, objective, lower, dual, found.iterations, converged)


def certified_bound(
    costs: ArrayLike,
    silo: ArrayLike,
    penalty: float,
    labels: ArrayLike,
    *,
    tol: float = 1e-3,
    max_iter: int = 30,
) -> float:
    """Lower bound of the penalised assignment problem, to certify binary labels, (n,).

    Other arguments are those of `solve_relaxed`. The bound is valid for any number of iterations,
    which is lower for large problems, and never more than the objective of the labels.
    """
    costs, silos = _validated(costs, silo, penalty)
    plan = _as_plan(labels, silos, costs.shape)
    binary = penalised_objective(costs, plan, penalty)
    bound = _assignment_bound(costs, silos, penalty, plan)
    max_iter = min(max_iter, int(_MAX_OPERATIONS / (costs.size * max(costs.shape))))
    if penalty > 0.0 and max_iter > 0 and relative_gap(binary, bound) > 0.1 * tol:
        relaxed = solve_relaxed(costs, silo, penalty, start=labels, tol=tol, max_iter=max_iter)
        bound = max(bound, relaxed.lower_bound)
        if relaxed.dual is not None:
            pull = np.maximum(relaxed.dual.pull, 0.0)
            bound = max(bound, _assignment_bound(costs, silos, penalty, pull))
    return min(bound, binary)


def _validated(costs: ArrayLike, silo: ArrayLike, penalty: float) -> tuple[FloatArray, Silos]:
    """Check the arguments of a problem."""
    costs = np.asarray(costs, dtype=np.float64)
    silo = np.asarray(silo)
    if costs.ndim != 2 or costs.size == 0 or not np.isfinite(costs).all():
        raise ValueError("costs must be a non-empty matrix of finite numbers")
    if silo.shape != costs.shape[:1] or (np.diff(silo) < 0).any():
        raise ValueError("silo must be sorted and have one entry for each row of costs")
    if not (np.isfinite(penalty) and penalty >= 0.0):
        raise ValueError("penalty must be finite and not negative")
    return costs, Silos(silo, costs.shape[1])


def _as_plan(start: ArrayLike, silos: Silos, shape: tuple[int, ...]) -> FloatArray:
    """Plan (n, G) of labels or of a plan, checked to be feasible."""
    plan = np.asarray(start)
    if plan.shape == shape[:1]:
        labels, plan = plan, np.zeros(shape)
        plan[np.arange(shape[0]), labels] = 1.0
    plan = plan.astype(np.float64)
    if plan.shape != shape:
        raise ValueError(f"start has shape {plan.shape} but costs have {shape}")
    off = max(abs(plan.sum(axis=1) - 1.0).max(), silos.sum(plan).max() - 1.0, -plan.min())
    if off > FEASIBILITY:
        raise ValueError("start is not feasible: rows sum to one, silo columns to at most one")
    return plan


def _assignment_bound(costs: FloatArray, silos: Silos, penalty: float, pull: FloatArray) -> float:
    """Lower bound with the norms replaced by their linear minorant along `pull` (n, G).

    What remains is one assignment problem per silo, whose optimum is the best over all prices.
    """
    norm = np.sqrt(dot(pull, pull))
    costs = costs + penalty * (pull / np.where(norm > 0.0, norm, 1.0))
    return float(costs[np.arange(costs.shape[0]), solve_hungarian(costs, silos.rows)].sum())


def _solve_unpenalised(costs: FloatArray, silos: Silos, penalty: float, tol: float) -> RelaxedPlan:
    """Optimal plan without the penalty, which is binary, with bounds that do count it."""
    plan = _as_plan(solve_hungarian(costs, silos.rows), silos, costs.shape)
    objective = penalised_objective(costs, plan, penalty)
    bound = min(_assignment_bound(costs, silos, penalty, plan), objective)
    converged = relative_gap(objective, bound) <= tol
    return RelaxedPlan(plan, objective, bound, None, 0, converged)


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
