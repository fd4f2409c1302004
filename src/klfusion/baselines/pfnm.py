"""PFNM: probabilistic federated neural matching (Yurochkin et al., ICML 2019).

A Beta-Bernoulli process of global units; a silo's units are noisy copies of some of them. In
natural parameters (shift ``w p`` and precision ``p`` of each weight) a global unit is the sum of
its copies and of the prior, and silos are matched in turn by one assignment that maximises the
posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.progress import Report
from klfusion.methods import Method
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Status

_MOST_POPULAR = 10  # counts above this weigh no more


@final
@dataclass(frozen=True, kw_only=True)
class Pfnm(Method):
    """Settings: ``gamma``, the mass of the Beta process, and the atoms' prior variance.

    The components are Normals whose precisions say how much each weight of a silo counts.
    """

    name: ClassVar[str] = "pfnm"
    gamma: float = 1.0
    prior_variance: float = 1.0
    n_passes: int = 3

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
        """Match the largest silo first, then all again in random order."""
        sizes = np.array([rows.stop - rows.start for rows in problem.silos])
        labels = np.full(problem.n, -1, dtype=np.intp)
        for j in np.argsort(-sizes, kind="stable"):
            self._place(problem, labels, problem.silos[int(j)])
        for number in range(self.n_passes):
            report("matching", number + 1, self.n_passes)
            for j in rng.permutation(len(sizes)):
                labels[problem.silos[int(j)]] = -1
                self._place(problem, labels, problem.silos[int(j)])
        labels = np.unique(labels, return_inverse=True)[1].astype(np.intp)
        shift, precision, _ = self._atoms(problem, labels)
        value = problem.divergence(labels, len(shift))
        return Matching(
            labels, value, 0.0, [value], 0.0, Status.CONVERGED, location=shift / precision
        )

    def _atoms(
        self, problem: FusionProblem, labels: IntArray
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        """Shift, precision (with the prior's) and count of each global unit."""
        used = labels >= 0
        size = int(labels.max()) + 1
        count = np.bincount(labels[used], minlength=size)
        total = np.zeros((size, problem.natural.shape[1]))
        np.add.at(total, labels[used], problem.natural[used])
        shift, precision = np.split(total, 2, axis=1)
        return shift, precision + 1.0 / self.prior_variance, count

    def _place(self, problem: FusionProblem, labels: IntArray, rows: slice) -> None:
        """Match a silo's units to global ones, or let them found new ones; in place."""
        shift, precision = np.split(problem.natural[rows], 2, axis=1)
        prior, n_silos = 1.0 / self.prior_variance, len(problem.silos)
        k = np.arange(1.0, len(shift) + 1.0)
        alone = (shift**2 / (prior + precision)).sum(axis=1)
        gain = alone[:, None] + 2.0 * np.log(self.gamma / n_silos) - 2.0 * np.log(k)
        offset, n_used = int(labels.max()) + 1, 0
        if offset > 0:
            at_shift, at_precision, count = self._atoms(problem, labels)
            used = np.flatnonzero(count)
            n_used = len(used)
            popular = np.minimum(count[used], _MOST_POPULAR)
            match = np.stack(
                [
                    ((s + at_shift[used]) ** 2 / (p + at_precision[used])).sum(axis=1)
                    for s, p in zip(shift, precision, strict=True)
                ]
            )
            match -= (at_shift[used] ** 2 / at_precision[used]).sum(axis=1)
            match += np.log(popular / np.maximum(n_silos - popular, 1e-3))
            gain = np.concatenate([match, gain], axis=1)
        column = linear_sum_assignment(gain, maximize=True)[1]
        new = column >= n_used
        at = np.empty(len(shift), dtype=np.intp)
        at[new] = offset + np.arange(int(new.sum()))
        if n_used:
            at[~new] = used[column[~new]]
        labels[rows] = at
