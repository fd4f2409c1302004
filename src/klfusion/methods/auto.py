"""`Auto`: the default. Record linkage decides which components are the same."""

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from klfusion._utils.arrays import IntArray
from klfusion._utils.checks import check_number
from klfusion._utils.running import Descent
from klfusion.errors import KLFusionError
from klfusion.many_silos.linkage import link_many
from klfusion.merging.agglomeration import penalty_path
from klfusion.merging.loss_path import least_loss_path, path_losses, path_of
from klfusion.methods.method import PathMethod, most_on_path
from klfusion.methods.search import certified, cut, known_size_on_path
from klfusion.methods.topics import OUTCOMES, best_reconstruction
from klfusion.model_size.evidence import LinkageSettings
from klfusion.model_size.linked_rows import link_rows
from klfusion.model_size.probabilities import own_probabilities, undone
from klfusion.model_size.typical_prior import under_one_prior
from klfusion.objective.batches import SiloStore
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, objective

_STARTS = 5  # where the path does not reach the size asked for
_TOPIC_STARTS = 20  # the same, of topics


@final
@dataclass(frozen=True, kw_only=True)
class Auto(PathMethod):
    """The default: which components are the same follows from the silos alone.

    Posteriors of silos of different size are brought to comparable certainty, and the variation
    between silos is estimated. Components of one silo differ, so their distances show what
    different components look like. A matching has a probability: that of its distances under
    "same" and "different", and a prior over partitions. The most probable matching found is taken.
    Failed local fits are left out.

    Parameters
    ----------
    failed_fits : float
        Share of local components that are expected to describe no component of their own.
    separation : float
        Standard deviations of observations between different components, where every silo has one
        component: no silo shows what different ones look like.
    false_matches : float, optional
        Expected share of wrong matches: the least probable are undone until the rest has at most
        this share. Not where matches have no probabilities: with ``n_components``, or where silos
        are sampled.
    n_init : int
        Starts where a size is asked for that the merge path does not reach.
    max_iter, tol, divergence
        As for `Method`.

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10]), name=n)
    ...          for n, s in {"a": [30, 900], "b": [910, 32]}.items()}
    >>> kf.fuse(silos, method=kf.Auto(failed_fits=0.01)).n_components
    2
    """

    name: ClassVar[str] = "auto"
    one_prior: ClassVar[bool] = True
    failed_fits: float = LinkageSettings.failed_fits
    separation: float = LinkageSettings.separation
    false_matches: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("failed_fits", self.failed_fits, high=0.5)
        check_number("separation", self.separation)
        if self.false_matches is not None:
            check_number("false_matches", self.false_matches, high=1.0)

    @property
    def linkage(self) -> LinkageSettings:
        """The numbers of the model."""
        return LinkageSettings(self.failed_fits, self.separation)

    def match(self, problem: FusionProblem, search: Search) -> Matching:
        """Link the components; where the size is given or silos are sampled, use the path."""
        if search.n_components is not None:
            self._refuse_rate("with n_components")
            return super().match(problem, search)
        if problem.n > self.most_on_path(problem):
            return super().match(under_one_prior(problem), search)
        settings = self.linkage, search.report
        found = link_rows(problem, self.compared_for_linkage, *settings, alike=under_one_prior)
        linked, rows = found.linked, found.rows
        kept = self.compared(problem.with_parts(*_parts(found.part_of)).some(rows))
        kept = kept.with_variation(linked.variation)
        path, labels = linked.path, linked.labels
        if kept.family != linked.problem.family:  # penalties are those over all words
            path = replace(path_of(kept, path), evidence=path.evidence)
        path = replace(path, losses=path_losses(kept, path))
        probability = own_probabilities(linked)
        if self.false_matches is not None:
            labels, probability = undone(labels, probability, self.false_matches)
        value = objective(kept, labels, int(labels.max()) + 1, linked.penalty)
        stopped = Descent(labels, [value], converged=True)
        matching = certified(kept, stopped, linked.penalty, path)
        matching = replace(matching, probability=probability, variation=linked.variation)
        return replace(
            matching.of_rows(rows, problem.n), labels=found.spread(labels), part_of=found.part_of
        )

    def _refuse_rate(self, where: str) -> None:
        if self.false_matches is not None:
            raise KLFusionError(
                f"{where}: expected kf.Auto() without false_matches, got "
                f"{self.false_matches}: matches have no probabilities there"
            )

    def compared_for_linkage(self, problem: FusionProblem) -> FusionProblem:
        """Comparable; topics over their frequent words, for counts of rare ones are noise."""
        compared = self.compared(problem)
        return compared.coarser(OUTCOMES) if self.topics else compared

    def most_on_path(self, problem: FusionProblem) -> int:
        """Components above which silos are sampled; topics are compared over fewer words."""
        size = problem.family.size
        return most_on_path(min(size, OUTCOMES + problem.n) if self.topics else size)

    def on_path(self, problem: FusionProblem, search: Search) -> Matching:
        """A plan of the size asked for."""
        assert search.n_components is not None  # else `match` links the components
        observed = problem.per_observation() if self.topics else None
        if observed is not None:
            return self._topics(problem, observed, search, search.n_components)
        path = penalty_path(problem, search.report)
        path = replace(path, losses=path_losses(problem, path))
        n_init = max(self.n_init, _STARTS)
        return known_size_on_path(problem, path, search.n_components, search, n_init)

    def on_sample(self, sample: FusionProblem, search: Search) -> Matching:
        """A plan of the size asked for, of a sample of silos."""
        size = search.n_components
        if size is not None and size > sample.n:
            raise KLFusionError(
                f"expected n_components <= {sample.n}, the components of a sample of silos, "
                f"got {size}: fuse them in memory"
            )
        return self.on_path(sample, search)

    def stream(self, store: SiloStore, search: Search) -> Matching:
        """The model on samples of silos, and sweeps over all."""
        self._refuse_rate("from files, on Dask, or with so many components")
        if search.n_components is not None:
            return super().stream(store, search)
        size = store.batches.family.size
        outcomes = OUTCOMES if self.topics else size
        return link_many(store, self.linkage, search, most=most_on_path(size), outcomes=outcomes)

    def _topics(
        self, problem: FusionProblem, observed: FusionProblem, search: Search, size: int
    ) -> Matching:
        """The plan of least loss of that size."""
        seen = observed
        if problem.n > most_on_path(problem.family.size):  # pairs are compared over fewer words
            seen = observed.coarser(OUTCOMES)
        least = least_loss_path(problem, seen, search.report, within_silos=False)
        if seen is not observed:  # fewer words lose less: losses are those over all
            least = replace(least, losses=path_losses(problem, least))
        steps = problem.n - size
        if steps <= len(least.merges):
            return cut(problem, least, steps)
        starts = max(self.n_init, _TOPIC_STARTS)
        labels = best_reconstruction(observed, size, search, n_init=starts)
        value = objective(problem, labels, size, 0.0)
        return certified(problem, Descent(labels, [value], converged=True), 0.0, least)


def _parts(part_of: IntArray) -> tuple[IntArray, IntArray]:
    """Which components are parts of others, and of which."""
    parts = np.flatnonzero(part_of >= 0)
    return parts, part_of[parts]
