"""The base class of the baselines, AMPS, and Dirichlet-process clustering.

AMPS is approximate merging of posteriors with symmetry, for silos of equal size. Permutations
maximise ``sum_k A(eta_0 + sum_j (eta_{j, P_j(k)} - eta_0))``: given all silos but one, a linear
assignment.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._fuse import fuse
from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import IncompatibleSilosError
from klfusion.families import Located, require
from klfusion.fusion.result import Fusion
from klfusion.methods import Method
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, Status

Models = Sequence[Any] | Mapping[str, Any]


class Baseline(Method):
    """A method that compares components as they were sent."""

    def compared(
        self, problem: FusionProblem, *like: FloatArray, variation: FloatArray | None = None
    ) -> FusionProblem:
        """The components, unchanged."""
        del like, variation
        return problem

    @staticmethod
    def matching(
        problem: FusionProblem, labels: IntArray, status: Status, location: FloatArray | None = None
    ) -> Matching:
        """A matching without penalty and with the trivial lower bound 0."""
        value = problem.divergence(labels, int(labels.max()) + 1)
        return Matching(labels, value, 0.0, [value], 0.0, status, location=location)


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


def dp_clustering(models: Models, *, random_state: int = 0, **settings: Any) -> Fusion:
    """Cluster the components' point estimates with a Dirichlet-process mixture.

    Arguments are those of `spahm`; settings are fields of `DPClustering`, such as ``truncation``.

    Examples
    --------
    >>> import klfusion as kf
    >>> normal = kf.families.DiagonalNormal(1)
    >>> site = kf.Posterior(normal, normal.natural([[0.0], [9.0]], [[1.0], [1.0]]))
    >>> kf.baselines.dp_clustering({"a": site, "b": site, "c": site}).n_components
    2
    """
    return fuse(models, method=DPClustering(**settings), random_state=random_state)


def amps(models: Models, *, random_state: int = 0, **settings: Any) -> Fusion:
    """Merge posteriors of equal size with symmetry (Campbell and How, UAI 2014).

    Arguments are those of `spahm`; settings are fields of `Amps`, such as ``n_init``.

    Examples
    --------
    >>> from klfusion import Posterior, baselines, families
    >>> rates = families.Gamma()
    >>> a = Posterior(rates, rates.natural(shape=[30, 900], rate=[10, 10]), name="a")
    >>> b = Posterior(rates, rates.natural(shape=[910, 32], rate=[10, 10]), name="b")
    >>> [labels.tolist() for labels in baselines.amps([a, b]).labels]
    [[0, 1], [1, 0]]
    """
    return fuse(models, method=Amps(**settings), random_state=random_state)
