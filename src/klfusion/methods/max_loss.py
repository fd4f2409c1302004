"""`MaxLoss`: the smallest model that, by an estimate, predicts nearly as well."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from klfusion._utils.checks import check_flag, is_number
from klfusion.errors import KLFusionError
from klfusion.merging.agglomeration import penalty_path
from klfusion.merging.local_search import refine
from klfusion.merging.loss_path import least_loss_path, path_losses
from klfusion.methods.method import PathMethod, no_size
from klfusion.methods.search import cut, without_penalty
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search


@final
@dataclass(frozen=True)
class MaxLoss(PathMethod):
    """Smallest model whose estimated predictive loss is at most this many nats per observation.

    ``fusion.path.losses`` has the estimate for every size.

    Parameters
    ----------
    max_loss : float
        Nats per observation.
    within_silos : bool
        Whether components of one silo may become one, which a small model needs where silos hardly
        overlap. With ``n_components`` given to `klfusion.fuse`, that is the size.
    max_iter, tol, divergence
        As for `Method`.

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10]), name=n)
    ...          for n, s in {"a": [30, 900], "b": [910, 32]}.items()}
    >>> kf.fuse(silos, method=kf.MaxLoss(0.02)).n_components
    2
    """

    name: ClassVar[str] = "max-loss"
    samples: ClassVar[bool] = False  # losses are those of the path of all components
    max_loss: float = 0.02
    within_silos: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag("within_silos", self.within_silos)
        if not (is_number(self.max_loss) and 0 <= self.max_loss < math.inf):
            raise KLFusionError(
                f"expected max_loss to be a finite number >= 0, nats per observation, "
                f"got {self.max_loss!r}"
            )

    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Merge what loses least, within silos or between them only."""
        if self.within_silos:
            return self._within_silos(problem, search)
        no_size(self, search.n_components, "for the loss sets the size")
        return super().run(problem, search)

    def _within_silos(self, problem: FusionProblem, search: Search) -> Matching:
        """Merge the clusters that lose least, of any silo; then move single components."""
        observed = problem.per_observation()
        if observed is None:
            raise KLFusionError(
                "within_silos: expected posteriors that say how many observations they are "
                f"worth, got {problem.family}, which does not"
            )
        path = least_loss_path(problem, observed, search.report, within_silos=True)
        size = search.n_components
        steps = path.steps_within(self.max_loss) if size is None else problem.n - size
        free = replace(observed, silo=np.arange(problem.n))  # no two exclude each other
        found = refine(free, path.labels(steps), 0.0, search, fixed_size=True)
        return without_penalty(problem, found.state, path)

    def on_path(self, problem: FusionProblem, search: Search) -> Matching:
        """Cut the path where the loss is reached."""
        observed = problem.per_observation() if self.topics else None
        if observed is not None:
            path = least_loss_path(problem, observed, search.report, within_silos=False)
        else:
            path = penalty_path(problem, search.report)
            path = replace(path, losses=path_losses(problem, path))
        return cut(problem, path, path.steps_within(self.max_loss))

    def on_sample(self, sample: FusionProblem, search: Search) -> Matching:
        """Refuse: see `samples`."""
        raise KLFusionError("method 'max-loss': expected silos in memory, got files or a cluster")
