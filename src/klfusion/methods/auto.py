"""`Auto`: the default. The whole merge path, a size chosen by evidence, and local search."""

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from klfusion._utils.arrays import BoolArray, IntArray
from klfusion._utils.running import Descent
from klfusion.errors import KLFusionError
from klfusion.merging.agglomeration import penalty_path
from klfusion.merging.local_search import refine
from klfusion.merging.loss_path import least_loss_path, path_losses, path_of
from klfusion.methods.method import PathMethod, most_on_path
from klfusion.methods.search import certified, cut, known_size_on_path, penalised_starts
from klfusion.methods.topics import OUTCOMES, best_reconstruction
from klfusion.model_size.revision import find_mixed, merge_singletons, split_clusters
from klfusion.model_size.selection import choose
from klfusion.model_size.silo_variation import Walk
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, objective

_MIXED_ROUNDS = 3  # of leaving out mixed components and matching the rest anew
_DOUBTFUL_LOSS = 0.04  # nats per observation that doubtful merges of topics may lose
_STARTS = 5  # where the path does not reach the size asked for
_TOPIC_STARTS = 20  # the same, of topics


@final
@dataclass(frozen=True, kw_only=True)
class Auto(PathMethod):
    """The default: the size is chosen from the silos alone.

    Posteriors of silos of different size are brought to comparable certainty, and the variation
    between silos is estimated. The whole merge path is walked, and its size is chosen by how near
    different components of one silo lie. Local search refines the plan. Components in which a
    local fit mixed two others are left out.

    Parameters
    ----------
    n_init : int
        Starts beyond the first are KL k-means++ seeds. For topics they count only where the path
        does not reach ``n_components``.
    max_iter, tol, divergence
        As for `Method`.

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10]), name=n)
    ...          for n, s in {"a": [30, 900], "b": [910, 32]}.items()}
    >>> kf.fuse(silos, method=kf.Auto(n_init=3)).n_components
    2
    """

    name: ClassVar[str] = "auto"

    def match(self, problem: FusionProblem, search: Search) -> Matching:
        """Match; where mixed components are found, leave them out and match the rest anew."""
        kept = np.arange(problem.n)
        found = super().match(problem, search)
        for _ in range(_MIXED_ROUNDS):
            if found.mixed is None:
                break
            kept = kept[~found.mixed]
            found = super().match(problem.some(kept), search)
        return found.of_rows(kept, problem.n)

    def most_on_path(self, problem: FusionProblem) -> int:
        """Components above which silos are sampled; many topics are compared over fewer words."""
        size = problem.family.size
        return most_on_path(min(size, OUTCOMES + problem.n) if self.topics else size)

    def on_path(self, problem: FusionProblem, search: Search, walk: Walk | None = None) -> Matching:
        """Walk the path, choose its size by evidence unless it is given, refine."""
        observed = problem.per_observation() if self.topics else None
        if observed is not None:
            return self._topics(problem, observed, search, walk)
        path, distances = walk or penalty_path(problem, search.report)
        path = replace(path, losses=path_losses(problem, path))
        if search.n_components is not None:
            n_init = max(self.n_init, _STARTS)
            return known_size_on_path(problem, path, search.n_components, search, n_init)
        choice = choose(problem, path, distances)
        start = path.labels(choice.steps)
        given = problem, choice.penalty, path, [start], self.n_init - 1, search
        found = penalised_starts(*given)
        mixed = _mixed(problem, found.labels)
        if mixed is not None:
            return replace(found, mixed=mixed)
        if found.labels.max() > start.max():  # evidence chose the size, the penalty sums it up
            found = penalised_starts(*given, opens=False)
        return self._with_outliers(problem, found, search)

    def on_sample(self, sample: FusionProblem, search: Search) -> Matching:
        """The path of the sample, cut where evidence says."""
        size = search.n_components
        if size is not None and size > sample.n:
            raise KLFusionError(
                f"expected n_components <= {sample.n}, the components of a sample of silos, "
                f"got {size}: fuse them in memory"
            )
        if size is not None or self.topics:
            return self.on_path(sample, search)
        path, distances = penalty_path(sample, search.report)
        choice = choose(sample, path, distances)
        return replace(cut(sample, path, choice.steps), penalty=choice.penalty)

    def _topics(
        self, problem: FusionProblem, observed: FusionProblem, search: Search, walk: Walk | None
    ) -> Matching:
        """The plan of least loss at the size that evidence chooses; doubtful merges if cheap."""
        compared, seen = problem, observed
        if problem.n > most_on_path(problem.family.size):  # pairs are compared over fewer words
            compared, seen = problem.coarser(OUTCOMES), observed.coarser(OUTCOMES)
        least = least_loss_path(problem, seen, search.report, within_silos=False)
        if seen is not observed:  # fewer words lose less: losses are those over all
            least = replace(least, losses=path_losses(problem, least))
        if search.n_components is not None:
            steps = problem.n - search.n_components
            if steps <= len(least.merges):
                return cut(problem, least, steps)
            starts = max(self.n_init, _TOPIC_STARTS)
            labels = best_reconstruction(observed, search.n_components, search, n_init=starts)
            return certified(problem, _unrefined(problem, labels, 0.0), 0.0, least)
        path, distances = walk or penalty_path(compared, search.report)
        if compared is not problem:  # the penalty is that over all words
            path = path_of(problem, path)
        choice = choose(problem, path, distances, topics=True)
        labels = path.labels(choice.steps)
        mixed = _mixed(compared, labels)
        if mixed is None:
            labels = merge_singletons(compared, labels)
        steps = problem.n - int(labels.max()) - 1
        steps = max(steps, min(choice.possible, least.steps_within(_DOUBTFUL_LOSS)))
        if steps <= len(least.merges):
            labels = least.labels(steps)
        found = _unrefined(problem, labels, choice.penalty)
        return replace(certified(problem, found, choice.penalty, least), mixed=mixed)

    def _with_outliers(self, problem: FusionProblem, found: Matching, search: Search) -> Matching:
        """Components that one silo alone has, moved to a cluster that is near enough."""
        gathered = merge_singletons(problem, found.labels)
        if (gathered == found.labels).all():
            return found
        refined = refine(problem, gathered, found.penalty, search, fixed_size=True)
        return certified(problem, refined, found.penalty, found.path)


def _unrefined(problem: FusionProblem, labels: IntArray, penalty: float) -> Descent[IntArray]:
    """A plan without local search."""
    value = objective(problem, labels, int(labels.max()) + 1, penalty)
    return Descent(labels, [value], converged=True)


def _mixed(problem: FusionProblem, labels: IntArray) -> BoolArray | None:
    """Which components, parts of clusters included, are mixtures of two others, if any is."""
    mixed = find_mixed(problem, split_clusters(problem, labels))
    return mixed if mixed.any() else None
