"""Dirichlet-process clustering of the components' point estimates."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from klfusion.baselines.baseline import Baseline
from klfusion.families import Located, require
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, Status


@final
@dataclass(frozen=True, kw_only=True)
class DPClustering(Baseline):
    """At most ``truncation`` spherical clusters; components of one silo may share a cluster."""

    name: ClassVar[str] = "dp-clustering"
    n_init: int = 3
    max_iter: int = 500
    truncation: int = 20

    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Fit scikit-learn's variational Dirichlet-process mixture."""
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 (slow to import)
        from sklearn.mixture import BayesianGaussianMixture  # noqa: PLC0415

        search.report("clustering", 0, 1)
        points = require(problem.family, Located, self.name).location(problem.natural)
        mixture = BayesianGaussianMixture(
            n_components=min(self.truncation, problem.n),
            covariance_type="spherical",
            weight_concentration_prior_type="dirichlet_process",
            mean_precision_prior=0.01,  # the default, 1, shrinks small clusters to the mean
            n_init=self.n_init,
            max_iter=self.max_iter,
            random_state=int(search.rng.integers(2**31)),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = mixture.fit(points).predict(points)
        used, labels = np.unique(found, return_inverse=True)
        status = Status.CONVERGED if mixture.converged_ else Status.MAX_ITER
        return self.matching(problem, labels.astype(np.intp), status, mixture.means_[used])
