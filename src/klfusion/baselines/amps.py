"""AMPS: approximate merging of posteriors with symmetry.

For silos of equal size: permutations are chosen to maximise the log-partition of the merged
posterior, ``sum_k A(eta_0 + sum_j (eta_{j, P_j(k)} - eta_0))``; with all silos but one fixed that
is one linear assignment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.progress import Report
from klfusion.errors import IncompatibleSilosError
from klfusion.methods import Method
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Status


@final
@dataclass(frozen=True, kw_only=True)
class Amps(Method):
    """Settings: ``n_init`` random orders of the silos, ``prior`` natural parameters (p,).

    Without a prior its share of the merged posterior is left out, which changes no matching where
    all silos have the same prior and much data. The fused components are averages, as ever.
    """

    name: ClassVar[str] = "amps"
    prior: tuple[float, ...] | None = None

    def compared(
        self, problem: FusionProblem, *like: FloatArray, variation: FloatArray | None = None
    ) -> FusionProblem:
        """The components as they are."""
        del like, variation
        return problem

    def run(
        self,
        problem: FusionProblem,
        n_components: int | None,
        rng: np.random.Generator,
        report: Report,
    ) -> Matching:
        """Sweep over the silos until no permutation changes; keep the best of several starts."""
        sizes = {rows.stop - rows.start for rows in problem.silos}
        if len(sizes) > 1:
            raise IncompatibleSilosError(
                f"method 'amps': expected silos of one size, got sizes {sorted(sizes)}"
            )
        runs = []
        for number in range(self.n_init):
            report("matching", number + 1, self.n_init)
            runs.append(self._one(problem, rng.permutation(len(problem.silos))))
        labels, converged, _ = max(runs, key=lambda run: run[2])
        value = problem.divergence(labels, problem.largest_silo)
        status = Status.CONVERGED if converged else Status.MAX_ITER
        return Matching(labels, value, 0.0, [value], 0.0, status)

    def _one(self, problem: FusionProblem, order: IntArray) -> tuple[IntArray, bool, float]:
        family, size = problem.family, problem.largest_silo
        prior = np.zeros(family.size) if self.prior is None else np.array(self.prior)
        excess = problem.natural - prior
        labels = np.empty(problem.n, dtype=np.intp)
        labels[problem.silos[order[0]]] = np.arange(size)
        total = prior + excess[problem.silos[order[0]]]
        for j in order[1:]:
            self._place(problem, excess, problem.silos[j], total, labels)
        for _ in range(self.max_iter):
            changed = False
            for rows in problem.silos:
                old = labels[rows].copy()
                if len(problem.silos) > 1:
                    total[old] -= excess[rows]
                    self._place(problem, excess, rows, total, labels)
                changed |= bool((labels[rows] != old).any())
            if not changed:
                break
        return labels, not changed, float(family.log_partition(total).sum())

    @staticmethod
    def _place(
        problem: FusionProblem,
        excess: FloatArray,
        rows: slice,
        total: FloatArray,
        labels: IntArray,
    ) -> None:
        """Give a silo the permutation that raises the log-partition most, in place."""
        local = excess[rows]
        trial = local[:, None, :] + total[None]
        gain = problem.family.log_partition(trial.reshape(-1, total.shape[1]))
        gain = gain.reshape(len(local), len(total)) - problem.family.log_partition(total)
        labels[rows] = linear_sum_assignment(gain, maximize=True)[1]
        total[labels[rows]] += local
