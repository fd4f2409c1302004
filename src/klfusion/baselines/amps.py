"""AMPS: approximate merging of posteriors with symmetry, for silos of equal size.

Permutations maximise ``sum_k A(eta_0 + sum_j (eta_{j, P_j(k)} - eta_0))``: given all silos but one,
a linear assignment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._utils.arrays import IntArray
from klfusion.baselines.baseline import Baseline
from klfusion.errors import IncompatibleSilosError
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, Status


@final
@dataclass(frozen=True, kw_only=True)
class Amps(Baseline):
    """Settings: ``n_init`` random orders of the silos, ``prior`` natural parameters (p,), or 0."""

    name: ClassVar[str] = "amps"
    prior: tuple[float, ...] | None = None

    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Sweep over the silos until no permutation changes; keep the best of several starts."""
        sizes = {rows.stop - rows.start for rows in problem.silos}
        if len(sizes) > 1:
            message = f"method 'amps': expected silos of one size, got sizes {sorted(sizes)}"
            raise IncompatibleSilosError(message)
        runs = []
        for number in range(self.n_init):
            search.report("matching", number + 1, self.n_init)
            runs.append(self._one(problem, search.rng.permutation(len(problem.silos))))
        labels, converged, _ = max(runs, key=lambda run: run[2])
        status = Status.CONVERGED if converged else Status.MAX_ITER
        return self.matching(problem, labels, status)

    def _one(self, problem: FusionProblem, order: IntArray) -> tuple[IntArray, bool, float]:
        """Labels of one start, whether it converged, and the log-partition."""
        family, size = problem.family, problem.largest_silo
        prior = np.zeros(family.size) if self.prior is None else np.array(self.prior)
        excess = problem.natural - prior
        labels = np.empty(problem.n, dtype=np.intp)
        labels[problem.silos[order[0]]] = np.arange(size)
        total = prior + excess[problem.silos[order[0]]]

        def place(rows: slice) -> None:
            """Give a silo the permutation with the largest log-partition."""
            trial = excess[rows][:, None, :] + total[None]
            gain = family.log_partition(trial.reshape(-1, family.size)).reshape(-1, size)
            gain = gain - family.log_partition(total)
            labels[rows] = linear_sum_assignment(gain, maximize=True)[1]
            total[labels[rows]] += excess[rows]

        for j in order[1:]:
            place(problem.silos[j])
        for _ in range(self.max_iter):
            before = labels.copy()
            for rows in problem.silos if len(problem.silos) > 1 else []:
                total[labels[rows]] -= excess[rows]
                place(rows)
            if converged := bool((labels == before).all()):
                break
        return labels, converged, float(family.log_partition(total).sum())
