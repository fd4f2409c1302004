"""The default algorithm: the whole path, a choice on it, and what puts it right."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.checks import is_number
from klfusion._utils.progress import Report
from klfusion.errors import KLFusionError
from klfusion.many_silos.sample import fuse_many
from klfusion.merging.local_search import refine
from klfusion.merging.loss_path import least_loss_path, path_losses, path_of
from klfusion.merging.penalty_path import Distances, penalty_path
from klfusion.methods.method import Method
from klfusion.methods.search import (
    best_of,
    certified,
    cut,
    known_size,
    known_size_starts,
    penalised_starts,
    without_penalty,
)
from klfusion.methods.topics import OUTCOMES, best_reconstruction
from klfusion.model_size.revision import find_mixed, merge_singletons, split_clusters
from klfusion.model_size.selection import Choice, choose
from klfusion.model_size.silo_variation import Walk, estimate_variation
from klfusion.objective.batches import InMemory, SiloStore
from klfusion.objective.merge_path import MergePath
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Solution, objective

_MOST_ON_PATH = 1_200  # components; more are sketched first
_MOST_ENTRIES = 1_000_000_000  # natural parameters of all pairs on the path
_MOST_MOVES = 50_000_000  # natural parameters of the moves that a sweep of local search tries
_MAX_LOSS = 0.02  # nats an observation, where silos' own components may merge and no size is given
_NEXT_TO_NOTHING = 0.04  # nats an observation: what doubtful merges may lose
_STARTS = 5  # where the path does not reach the size asked for
_STARTS_TOGETHER = 20  # the same, of components merged by loss


@final
@dataclass(frozen=True)
class Auto(Method):
    """The best we know, and the default.

    Posteriors of silos of different size are made comparable, and how much silos vary is taken into
    account; the whole penalty path is walked; the penalty is chosen from it; local search refines
    the plan; what failed local fits left is put right. ``n_init > 1`` adds starts from KL k-means++
    seeds (topics: only where the path does not reach the size asked for, 20 at least).

    ``max_loss`` asks for the smallest size on the path whose estimated predictive loss is at most
    so many nats an observation. ``within_silo_merging`` lets components of one silo merge, too:
    those first that lose least. Its size is that of ``n_components``, else ``max_loss`` (0.02).
    """

    name: ClassVar[str] = "auto"
    n_init: int = 1
    max_loss: float | None = None
    within_silo_merging: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_loss is not None:
            if not (is_number(self.max_loss) and self.max_loss >= 0):
                raise KLFusionError(
                    f"expected max_loss to be a number >= 0, nats an observation, "
                    f"got {self.max_loss!r}"
                )
            if self.n_components is not None or self.penalty != "auto":
                raise KLFusionError("expected one of max_loss, n_components and penalty, got two")
        if self.within_silo_merging and self.penalty != "auto":
            raise KLFusionError(
                "expected within_silo_merging with n_components or max_loss, got a penalty"
            )

    def matching(
        self,
        problem: FusionProblem,
        *like: FloatArray,
        variation: FloatArray | None = None,
    ) -> FusionProblem:
        """Posteriors brought to comparable certainty (to that of others, if given).

        With a ``variation`` between silos, as `run` finds it, as they were compared there.
        """
        return problem.centred(*like).comparable(*like).with_variation(variation)

    def run(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        """Walk the path, choose, refine."""
        if self.within_silo_merging:
            return self._within_silos(problem, report)
        varying = estimate_variation(problem, rng, report, self.n_components)
        most = self._most_on_path(problem)
        known = self.n_components or 0  # a sketch must be larger than what it is to find
        if self.max_loss is None and problem.n > most >= 2 * known:
            found = self._on_sketch(varying.problem, rng, report)
        else:
            found = self.on_path(varying.problem, rng, report, varying.walk)
        return replace(found, variation=varying.variation)

    def _within_silos(self, problem: FusionProblem, report: Report) -> Solution:
        """The merges that lose least, whosever they are; then each component where it belongs."""
        observed = problem.per_observation()
        if observed is None:
            raise KLFusionError(
                "within_silo_merging: expected posteriors that tell how many observations "
                f"they are worth, got {problem.family}, which does not"
            )
        path = least_loss_path(problem, observed, report, within_silos=True)
        if self.n_components is not None:
            steps = problem.n - self.n_components
        else:
            steps = path.steps_within(_MAX_LOSS if self.max_loss is None else self.max_loss)
        labels, _, _ = refine(
            replace(observed, silo=np.arange(problem.n)), path.labels(steps), 0.0,
            fixed_size=True, max_iter=self.max_iter, tol=self.tol, report=report,
        )  # fmt: skip
        return without_penalty(problem, labels, path)

    def on_path(
        self,
        problem: FusionProblem,
        rng: np.random.Generator,
        report: Report,
        walk: Walk | None = None,
    ) -> Solution:
        """Walk the path of all components (unless it has been), choose, refine."""
        if problem.family.merged_by_loss and self.penalty == "auto":
            observed = problem.per_observation()
            if observed is not None:
                return self._by_loss(problem, observed, rng, report, walk)
        path, distances = walk or penalty_path(problem, report)
        path = replace(path, losses=path_losses(problem, path))
        if self.max_loss is not None:
            return cut(problem, path, path.steps_within(self.max_loss))
        if self.n_components is not None:
            return self._of_known_size(problem, path, self.n_components, rng, report)
        choice = self._choice(problem, path, distances)
        return self._by_evidence(problem, path, choice, rng, report)

    def _by_evidence(
        self,
        problem: FusionProblem,
        path: MergePath,
        choice: Choice,
        rng: np.random.Generator,
        report: Report,
    ) -> Solution:
        """The size and the plan that the silos tell, or the penalty given."""
        start = path.labels(choice.steps)
        found = self._refined(problem, choice, path, start, rng, report)
        if self.penalty != "auto":
            return found
        blends = _blends(problem, found.labels)
        if blends is not None:
            return replace(found, mixed=blends)
        if found.labels.max() > start.max():  # evidence chose the size, the penalty sums it up
            found = self._refined(problem, choice, path, start, rng, report, opens=False)
        return self._gathered(problem, found, report)

    def _by_loss(
        self,
        problem: FusionProblem,
        observed: FusionProblem,
        rng: np.random.Generator,
        report: Report,
        walk: Walk | None,
    ) -> Solution:
        """Of all plans of a size, that which loses least; the size is told by evidence.

        Merges that are doubtful are made where they lose next to nothing.
        """
        compared, seen = problem, observed
        if problem.n > _most_on_path(
            problem.family.size
        ):  # all pairs are compared over fewer words
            compared, seen = problem.coarser(OUTCOMES), observed.coarser(OUTCOMES)
        least = least_loss_path(problem, seen, report, within_silos=False)
        if seen is not observed:  # fewer words lose less: losses are those over all
            least = replace(least, losses=path_losses(problem, least))
        if self.max_loss is not None:
            return cut(problem, least, least.steps_within(self.max_loss))
        if self.n_components is not None:
            if problem.n - self.n_components <= len(least.merges):
                return cut(problem, least, problem.n - self.n_components)
            labels = best_reconstruction(
                self, observed, self.n_components, rng, report,
                n_init=max(self.n_init, _STARTS_TOGETHER),
            )  # fmt: skip
            value = objective(problem, labels, int(labels.max()) + 1, 0.0)
            return certified(problem, labels, [value], True, 0.0, least)
        path, distances = walk or penalty_path(compared, report)
        if compared is not problem:
            path = path_of(problem, path)
        choice = self._choice(problem, path, distances)
        labels = path.labels(choice.steps)
        blends = _blends(compared, labels)
        if blends is None:
            labels = merge_singletons(compared, labels)
        steps = problem.n - int(labels.max()) - 1
        steps = max(steps, min(choice.possible, least.steps_within(_NEXT_TO_NOTHING)))
        if steps <= len(least.merges):
            labels = least.labels(steps)
        value = objective(problem, labels, int(labels.max()) + 1, choice.penalty)
        found = certified(problem, labels, [value], True, choice.penalty, least)
        return replace(found, mixed=blends)

    def _refined(
        self,
        problem: FusionProblem,
        choice: Choice,
        path: MergePath,
        start: IntArray,
        rng: np.random.Generator,
        report: Report,
        *,
        opens: bool = True,
    ) -> Solution:
        """Local search at the penalty chosen, from the path's cut (and from seeds)."""
        return penalised_starts(
            self, problem, choice.penalty, path, [start], self.n_init - 1, rng, report, opens=opens
        )

    def _on_sketch(
        self, problem: FusionProblem, rng: np.random.Generator, report: Report
    ) -> Solution:
        """The path of a sample of silos, and assignments of all."""
        found = self.stream(SiloStore.of(InMemory(problem)), rng, report)
        moves = problem.n * int(found.labels.max()) * problem.family.size
        if found.left_out is not None or moves > _MOST_MOVES:
            return found
        labels, trace, converged = refine(
            problem, found.labels, found.penalty,
            fixed_size=True, max_iter=self.max_iter, tol=self.tol, report=report,
        )  # fmt: skip
        trace = [*found.trace[:-1], *trace]
        return certified(problem, labels, trace, converged, found.penalty, found.path)

    def stream(self, store: SiloStore, rng: np.random.Generator, report: Report) -> Solution:
        """The path of a sketch of silos that lie in parts, and assignments of all."""
        return fuse_many(
            store,
            lambda sketch: self._sketched(sketch, rng, report),
            self,
            most=_most_on_path(store.batches.family.size),
            grows=self.n_components is None,
            revise=self.penalty == "auto",
            rng=rng,
            report=report,
        )

    def _sketched(
        self, sketch: FusionProblem, rng: np.random.Generator, report: Report
    ) -> Solution:
        """Labels and penalty of a sketch, as the path has them: sweeps over all will refine."""
        if self.n_components is not None:
            if self.n_components > sketch.n:
                raise KLFusionError(
                    f"expected n_components <= {sketch.n}, what a sketch of so many silos can "
                    f"tell, got {self.n_components}: fuse them in memory"
                )
            return self.on_path(sketch, rng, report)
        if sketch.family.merged_by_loss and self.penalty == "auto":
            return self.on_path(sketch, rng, report)
        path, distances = penalty_path(sketch, report)
        choice = self._choice(sketch, path, distances)
        return replace(cut(sketch, path, choice.steps), penalty=choice.penalty)

    def _most_on_path(self, problem: FusionProblem) -> int:
        """Components that need no sample; many topics are compared over fewer words."""
        size = problem.family.size
        if problem.family.merged_by_loss and self.penalty == "auto":
            size = min(size, OUTCOMES + problem.n)  # at most so many words of a coarser problem
        return _most_on_path(size)

    def _choice(self, problem: FusionProblem, path: MergePath, distances: Distances) -> Choice:
        """Where to cut the path: as the silos tell, or as the penalty given does."""
        if self.penalty == "auto":
            return choose(problem, path, distances)
        penalty = float(self.penalty)
        steps = path.steps_at(penalty)
        return Choice(steps, penalty, steps)

    def _gathered(self, problem: FusionProblem, found: Solution, report: Report) -> Solution:
        """With stragglers where they belong."""
        gathered = merge_singletons(problem, found.labels)
        if (gathered == found.labels).all():
            return found
        labels, trace, converged = refine(
            problem, gathered, found.penalty,
            fixed_size=True, max_iter=self.max_iter, tol=self.tol, report=report,
        )  # fmt: skip
        return certified(problem, labels, trace, converged, found.penalty, found.path)

    def _of_known_size(
        self,
        problem: FusionProblem,
        path: MergePath,
        size: int,
        rng: np.random.Generator,
        report: Report,
    ) -> Solution:
        steps = problem.n - size
        if steps > len(path.merges):  # the path ended in clusters that exclude each other
            n_init = max(self.n_init, _STARTS)
            return best_of(
                known_size_starts(self, problem, size, rng, report, n_init=n_init, path=path)
            )
        centres = problem.average(path.labels(steps), size)
        return known_size(self, problem, centres, report, path=path)


def _blends(problem: FusionProblem, labels: IntArray) -> BoolArray | None:
    """Which components are blends of two, if any is."""
    # Blends that were taken for members of a component are looked for as its double.
    blends = find_mixed(problem, split_clusters(problem, labels))
    return blends if blends.any() else None


def _most_on_path(size: int) -> int:
    """Components of so many natural parameters the path can be walked on in a few seconds."""
    return min(_MOST_ON_PATH, int(math.sqrt(_MOST_ENTRIES / size)))
