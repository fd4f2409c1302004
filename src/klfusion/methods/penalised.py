"""`Penalised`: the price of a global component is given, in nats."""

from dataclasses import dataclass, replace
from typing import ClassVar, final

from klfusion.merging.agglomeration import penalty_path
from klfusion.merging.loss_path import path_losses
from klfusion.methods.method import PathMethod, check_penalty, no_size
from klfusion.methods.search import cut, penalised_starts
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search


@final
@dataclass(frozen=True)
class Penalised(PathMethod):
    """The merge path cut at a penalty, then local search at that penalty.

    Components are compared as `Auto` compares them.

    Parameters
    ----------
    penalty : float
        Weight of ``sum_g sqrt(n_g)``, in nats: a larger one gives fewer components.
    n_init, max_iter, tol, divergence
        As for `Method`.

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10]), name=n)
    ...          for n, s in {"a": [30, 900], "b": [910, 250]}.items()}
    >>> [kf.fuse(silos, method=kf.Penalised(p)).n_components for p in (1.0, 1000.0)]
    [3, 2]
    """

    name: ClassVar[str] = "penalised"
    penalty: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_penalty(self.penalty)

    @property
    def given_penalty(self) -> float:
        """The penalty."""
        return float(self.penalty)

    def on_path(self, problem: FusionProblem, search: Search) -> Matching:
        """Cut the path at the penalty and refine."""
        no_size(self, search.n_components, "for the penalty sets the size")
        path = penalty_path(problem, search.report)
        path = replace(path, losses=path_losses(problem, path))
        penalty = self.given_penalty
        start = path.labels(path.steps_at(penalty))
        return penalised_starts(problem, penalty, path, [start], self.n_init - 1, search)

    def on_sample(self, sample: FusionProblem, search: Search) -> Matching:
        """Cut the sample's path at the penalty."""
        no_size(self, search.n_components, "for the penalty sets the size")
        path = penalty_path(sample, search.report)
        found = cut(sample, path, path.steps_at(self.given_penalty))
        return replace(found, penalty=self.given_penalty)
