"""Dirichlet-process clustering of the components' point estimates."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.progress import Report
from klfusion.families import Located, require
from klfusion.methods import Method
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Status


@final
@dataclass(frozen=True, kw_only=True)
class DPClustering(Method):
    """Settings: at most ``truncation`` clusters, of spherical shape (full ones overfit).

    Components of one silo may fall into one cluster: the method does not know of silos.
    """

    name: ClassVar[str] = "dp-clustering"
    n_init: int = 3
    max_iter: int = 500
    truncation: int = 20

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
        """Fit scikit-learn's variational Dirichlet-process mixture."""
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 (slow to import)
        from sklearn.mixture import BayesianGaussianMixture  # noqa: PLC0415

        report("clustering", 0, 1)
        points = require(problem.family, Located, self.name).location(problem.natural)
        mixture = BayesianGaussianMixture(
            n_components=min(self.truncation, problem.n),
            covariance_type="spherical",
            weight_concentration_prior_type="dirichlet_process",
            mean_precision_prior=0.01,  # the default, 1, draws small clusters to the middle
            n_init=self.n_init,
            max_iter=self.max_iter,
            random_state=int(rng.integers(2**31)),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = mixture.fit(points).predict(points)
        used, labels = np.unique(found, return_inverse=True)
        labels = labels.astype(np.intp)
        value = problem.divergence(labels, len(used))
        status = Status.CONVERGED if mixture.converged_ else Status.MAX_ITER
        return Matching(labels, value, 0.0, [value], 0.0, status, location=mixture.means_[used])
