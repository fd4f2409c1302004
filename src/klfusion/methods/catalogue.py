"""The algorithms by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from klfusion._utils.progress import Report
from klfusion.assignment.hungarian import solve_hungarian
from klfusion.assignment.relaxed import solve_relaxed
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.merging.penalty_path import penalty_path
from klfusion.methods.alternation import AssignRelaxed, alternate
from klfusion.methods.auto import Auto
from klfusion.methods.method import Method, Penalty
from klfusion.methods.search import (
    best_of,
    known_size,
    known_size_starts,
    penalised_starts,
    seed_centres,
)
from klfusion.model_size.selection import choose
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Solution, Status

__all__ = ["METHODS", "Auto", "Exact", "Homogeneous", "Method", "Penalty", "Relaxed"]


@final
@dataclass(frozen=True)
class Homogeneous(Method):
    """All silos have the same components (paper, section 3): permutations and averages.

    ``leave_one_out`` goes on, after the paper's alternation, with moves that take a silo out of the
    averages before they assign it anew, which reach lower objectives.
    """

    name: ClassVar[str] = "homogeneous"
    leave_one_out: bool = True

    def run(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        """Alternate from the components of several silos in turn; keep the best."""
        sizes = {rows.stop - rows.start for rows in problem.silos}
        if len(sizes) > 1:
            raise IncompatibleSilosError(
                f"method 'homogeneous': expected silos of one size, got sizes {sorted(sizes)}; "
                "method 'auto' allows them to differ"
            )
        if self.n_components not in (None, problem.largest_silo):
            raise IncompatibleSilosError(
                f"method 'homogeneous': expected n_components to be the silos' size "
                f"{problem.largest_silo}, got {self.n_components}"
            )
        if self.penalty != "auto":
            raise KLFusionError("method 'homogeneous' has no penalty: its size is the silos' own")
        order = rng.permutation(len(problem.silos))[: self.n_init]
        starts = [problem.natural[problem.silos[j]] for j in order]
        runs = [known_size(self, problem, s, report, refined=self.leave_one_out) for s in starts]
        return min(runs, key=lambda s: s.objective)


@final
@dataclass(frozen=True)
class Exact(Method):
    """The binary objective at a given penalty or size: alternate, then local search."""

    name: ClassVar[str] = "exact"

    def run(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        """Start from KL k-means++ seeds, several times."""
        if self.n_components is not None:
            return best_of(
                known_size_starts(self, problem, self.n_components, rng, report, refined=True)
            )
        path = None
        if self.penalty == "auto":
            path, distances = penalty_path(problem, report)
            penalty = choose(problem, path, distances).penalty
        else:
            penalty = float(self.penalty)
        return penalised_starts(self, problem, penalty, path, [], self.n_init, rng, report)


@final
@dataclass(frozen=True)
class Relaxed(Method):
    """The paper to the letter (sections 4.2 and 4.3).

    KL k-means++ start, divergences scaled by their standard deviation, penalty ``scale`` = 0.1 on
    that scale, the convex relaxation with the L2,2,1 norm, weighted averages. ``n_candidates``
    global components are offered (default: twice the largest silo). With ``n_components`` it is
    the problem of section 4.1.
    """

    name: ClassVar[str] = "relaxed"
    n_init: int = 1
    tol: float = 1e-5
    scale: float = 0.1
    n_candidates: int | None = None

    def run(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        """Alternate the relaxation and weighted averages; keep the best of ``n_init`` starts."""
        if self.n_components is not None:
            return best_of(
                known_size_starts(self, problem, self.n_components, rng, report, refined=False)
            )
        runs = [self._one(problem, rng, report) for _ in range(self.n_init)]
        return min(runs, key=lambda s: s.objective)

    def _one(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        n_candidates = self.n_candidates or 2 * problem.largest_silo
        least = problem.largest_silo
        centres = seed_centres(problem, max(n_candidates, least), rng, least)
        if self.penalty == "auto":
            penalty = self.scale * float(problem.costs(centres).std()) or 1.0
        else:
            penalty = float(self.penalty)
        found = alternate(
            problem, centres, AssignRelaxed(penalty), penalty,
            max_iter=self.max_iter, tol=self.tol, report=report,
        )  # fmt: skip
        certificate = solve_relaxed(
            problem.costs(found.centres), problem.silo, penalty, start=found.plan
        )
        value = found.trace[-1]
        return Solution(
            plan=found.plan,
            # The components of a silo stay apart when fractions are rounded, too.
            labels=solve_hungarian(-np.asarray(found.plan, dtype=np.float64), problem.silos),
            objective=value,
            lower_bound=min(certificate.lower_bound, value),
            trace=found.trace,
            penalty=penalty,
            status=Status.CONVERGED if found.converged else Status.MAX_ITER,
        )


METHODS: dict[str, type[Method]] = {m.name: m for m in (Auto, Exact, Relaxed, Homogeneous)}
