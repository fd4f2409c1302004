"""`Relaxed`: the paper to the letter, by the convex relaxation of the assignment problem."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from klfusion._utils.checks import check_integer, check_number
from klfusion.assignment.binary import solve_hungarian
from klfusion.assignment.relaxed import solve_relaxed
from klfusion.methods.method import PenalisedMethod
from klfusion.methods.search import (
    alternate,
    assign_relaxed,
    best_of,
    known_size_starts,
    seed_centres,
)
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, Status


@final
@dataclass(frozen=True, kw_only=True)
class Relaxed(PenalisedMethod):
    """The paper to the letter (sections 4.2 and 4.3).

    The start is KL k-means++. Plans are those of the convex relaxation with the L2,2,1 norm, and
    global components are weighted averages. With a known size it is the problem of section 4.1.

    Parameters
    ----------
    scale : float
        Penalty in standard deviations of the divergences.
    penalty : float or "auto"
        Penalty in nats; ``"auto"`` uses the ``scale``.
    n_candidates : int, optional
        Global components that are offered; default: twice the largest silo.
    n_init, max_iter, tol, divergence
        As for `Method`.

    Examples
    --------
    >>> import klfusion as kf
    >>> kf.Relaxed(scale=0.2)
    Relaxed(n_init=1, max_iter=100, tol=1e-05, divergence='kl', penalty='auto', scale=0.2, ...)
    """

    name: ClassVar[str] = "relaxed"
    scale: float = 0.1
    n_candidates: int | None = None
    n_init: int = 1
    tol: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("scale", self.scale)
        if self.n_candidates is not None:
            check_integer("n_candidates", self.n_candidates)

    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Alternate the relaxation and weighted averages; keep the best of ``n_init`` starts."""
        size = search.n_components
        if size is not None:
            return best_of(known_size_starts(problem, size, search, refined=False))
        return best_of([self._one(problem, search) for _ in range(self.n_init)])

    def _one(self, problem: FusionProblem, search: Search) -> Matching:
        least = problem.largest_silo
        n_candidates = self.n_candidates or 2 * least
        centres = seed_centres(problem, max(n_candidates, least), search.rng, least)
        penalty = self.given_penalty
        if penalty is None:
            penalty = self.scale * float(problem.costs(centres).std()) or 1.0
        found = alternate(problem, centres, assign_relaxed, penalty, search)
        plan = np.asarray(found.plan, dtype=np.float64)
        costs = problem.costs(found.centres)
        certificate = solve_relaxed(costs, problem.silo, penalty, start=found.plan)
        # The components of a silo stay apart when fractions are rounded, too.
        labels, trace = solve_hungarian(-plan, problem.silos), found.trace
        bound, status = min(certificate.lower_bound, trace[-1]), Status.of(found.converged)
        return Matching(labels, trace[-1], bound, trace, penalty, status, plan=plan)
