"""The paper's algorithm: alternate assignment and averaging, which both lower the objective.

``min over centres and plans of  sum_jlg P^j_lg KL(centre_g || local_jl) + penalty * ||P||_{2,2,1}``

What differs between the paper's three problems is the assignment step alone. Homogeneous (section
3) and known size (section 4.1): one Hungarian assignment per silo. Nonparametric (sections 4.2 and
4.3): the convex relaxation with the L2,2,1 norm, or the binary problem itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from klfusion._utils.arrays import FloatArray, relabel
from klfusion._utils.iterate import descend
from klfusion.assignment.binary import solve_binary
from klfusion.assignment.hungarian import solve_hungarian
from klfusion.assignment.relaxed import solve_relaxed
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Plan, Search, objective

_DUALITY_GAP = 1e-4  # relative gap at which a relaxed assignment stops
_NOTHING = 1e-8  # total weight of a column below which it is empty: rounding of the relaxation

# One assignment step: costs (n, G), problem, penalty and the previous plan in, the new plan out,
# which is no worse than the previous one at these costs.
Assign = Callable[[FloatArray, FusionProblem, float, Plan | None], Plan]


class Alternation(NamedTuple):
    """Where the alternation stopped."""

    plan: Plan
    centres: FloatArray
    trace: list[float]
    converged: bool


def alternate(
    problem: FusionProblem, centres: FloatArray, assign: Assign, penalty: float, search: Search
) -> Alternation:
    """Alternate assignments and averages until the objective falls by at most the tolerance."""

    def step(centres: FloatArray, previous: Plan | None) -> tuple[tuple[FloatArray, Plan], float]:
        plan, size = _without_unused(assign(problem.costs(centres), problem, penalty, previous))
        return (problem.average(plan, size), plan), objective(problem, plan, size, penalty)

    (centres, plan), trace, converged = descend(
        lambda state: step(*state), *step(centres, None),
        tol=search.tol, max_iter=search.max_iter - 1, stage="alternating", report=search.report
    )  # fmt: skip
    return Alternation(plan, centres, trace, converged)


def assign_hungarian(
    costs: FloatArray, problem: FusionProblem, penalty: float, previous: Plan | None
) -> Plan:
    """Homogeneous, or of known size: each silo by itself."""
    del penalty, previous
    return solve_hungarian(costs, problem.silos)


def assign_binary(
    costs: FloatArray, problem: FusionProblem, penalty: float, previous: Plan | None
) -> Plan:
    """The binary problem: improve the previous labels."""
    start = None if previous is None else previous.astype(np.intp)
    return solve_binary(costs, problem.silos, penalty, start=start).labels


def assign_relaxed(
    costs: FloatArray, problem: FusionProblem, penalty: float, previous: Plan | None
) -> Plan:
    """The convex relaxation, with the previous plan as incumbent."""
    return solve_relaxed(costs, problem.silo, penalty, start=previous, tol=_DUALITY_GAP).plan


def _without_unused(plan: Plan) -> tuple[Plan, int]:
    """Drop empty global components; also the number that is left."""
    if plan.ndim == 2:
        used = plan.sum(axis=0) > _NOTHING
        plan = plan[:, used] / plan[:, used].sum(axis=1, keepdims=True)
        return plan, plan.shape[1]
    labels = relabel(plan.astype(np.intp))
    return labels, int(labels.max()) + 1
