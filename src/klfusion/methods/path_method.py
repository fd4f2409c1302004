"""What the methods share that walk the merge path: how they compare, and very many silos."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from klfusion._utils.arrays import FloatArray
from klfusion.many_silos.sample import fuse_many
from klfusion.merging.local_search import refine
from klfusion.methods.method import Method
from klfusion.methods.search import certified
from klfusion.model_size.silo_variation import estimate_variation
from klfusion.objective.batches import InMemory, SiloStore
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search

_MOST_ON_PATH = 1_200  # components whose path takes a few seconds; more are sampled first
_MOST_ENTRIES = 1_000_000_000  # natural parameters of all pairs on the path
_MOST_MOVES = 50_000_000  # natural parameters of the moves that a sweep of local search tries


@dataclass(frozen=True, kw_only=True)
class PathMethod(Method):
    """A method that walks the merge path of all components, or of a sample of the silos."""

    cleans: ClassVar[bool] = True
    samples: ClassVar[bool] = True  # whether very many silos are sampled
    n_init: int = 1
    topics: bool = field(default=False, repr=False)  # set by `klfusion.methods.method_for`

    def compared(
        self, problem: FusionProblem, *like: FloatArray, variation: FloatArray | None = None
    ) -> FusionProblem:
        """Posteriors of comparable certainty, less certain by a ``variation`` between silos."""
        return problem.centred(*like).comparable(*like).with_variation(variation)

    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Estimate the variation between silos; walk the path of all components or a sample."""
        variation = estimate_variation(problem, search.rng, search.report, search.n_components)
        varied = problem.with_variation(variation)
        most = self.most_on_path(problem)
        # A sample must have more components than it is to find.
        if self.samples and problem.n > most >= 2 * (search.n_components or 0):
            found = self._sampled(varied, search)
        else:
            found = self.on_path(varied, search)
        return replace(found, variation=variation)

    def most_on_path(self, problem: FusionProblem) -> int:
        """Components above which silos are sampled."""
        return most_on_path(problem.family.size)

    @abstractmethod
    def on_path(self, problem: FusionProblem, search: Search) -> Matching:
        """Walk the path of all components and choose from it."""

    @abstractmethod
    def on_sample(self, sample: FusionProblem, search: Search) -> Matching:
        """Labels and penalty of a sample of the silos; sweeps over all silos refine them."""

    def _sampled(self, problem: FusionProblem, search: Search) -> Matching:
        """The path of a sample of silos, then assignments of all."""
        found = self.stream(SiloStore.of(InMemory(problem)), search)
        moves = problem.n * int(found.labels.max()) * problem.family.size
        if (found.labels < 0).any() or moves > _MOST_MOVES:
            return found
        refined = refine(problem, found.labels, found.penalty, search, fixed_size=True)
        refined = refined._replace(trace=found.trace[:-1] + refined.trace)
        return certified(problem, refined, found.penalty, found.path)

    def stream(self, store: SiloStore, search: Search) -> Matching:
        """The path of a sample of silos that lie in parts, then assignments of all."""
        most, revise = most_on_path(store.batches.family.size), self.given_penalty is None
        on_sample = partial(self.on_sample, search=search)
        return fuse_many(store, on_sample, search, most=most, revise=revise)


def most_on_path(size: int) -> int:
    """Components of so many natural parameters whose path can be walked in a few seconds."""
    return min(_MOST_ON_PATH, int(math.sqrt(_MOST_ENTRIES / size)))
