"""What every method is: a frozen configuration that matches the components of a problem.

A `PathMethod` walks the merge path of all components, or of a sample of very many silos.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import check_integer, is_number
from klfusion._utils.running import Report
from klfusion._utils.text import brief
from klfusion.errors import KLFusionError
from klfusion.many_silos.sample import fuse_many
from klfusion.merging.local_search import refine
from klfusion.methods.search import certified
from klfusion.model_size.silo_variation import estimate_variation
from klfusion.objective.batches import InMemory, SiloStore
from klfusion.objective.divergences import KL, chosen_divergence
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search

Penalty = float | Literal["auto"]

_REGISTRY: dict[str, type[Method]] = {}


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Settings that all methods share.

    Parameters
    ----------
    n_init : int
        Number of starts; the best result is kept.
    max_iter : int
        Most sweeps of one start.
    tol : float
        Stop when a sweep lowers the objective by less than this share of it.
    divergence : str
        What is minimised. ``"kl"`` is ``KL(global || local)``, the paper's. The others are
        ``"kl-reverse"``, ``"jeffreys"``, ``"euclidean-natural"``, ``"euclidean-mean"`` and, for
        Gaussians, ``"wasserstein"``. They start from the matching of ``"kl"`` and keep its size;
        with a penalty, which is in the divergence's own units, they start from random seeds.
    """

    name: ClassVar[str]
    cleans: ClassVar[bool] = False  # whether empty and split components are found first
    n_init: int = 5
    max_iter: int = 100
    tol: float = 1e-9
    divergence: str = KL.name

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register the method under its name, so that files can refer to it."""
        super().__init_subclass__(**kwargs)
        if isinstance(cls.__dict__.get("name"), str):
            _REGISTRY[cls.name] = cls

    def __post_init__(self) -> None:
        check_integer("n_init", self.n_init)
        check_integer("max_iter", self.max_iter)
        if not (is_number(self.tol) and self.tol >= 0):
            raise KLFusionError(f"expected tol to be a number >= 0, got {self.tol!r}")
        chosen_divergence(self.divergence)

    @property
    def given_penalty(self) -> float | None:
        """The penalty that was asked for, in nats; None where the method chooses."""
        return None

    @property
    def within_silos(self) -> bool:
        """Whether components of one silo may become one."""
        return False

    def search(self, n_components: int | None, rng: np.random.Generator, report: Report) -> Search:
        """A search with this method's limits."""
        return Search(n_components, rng, report, self.n_init, self.max_iter, self.tol)

    def match(self, problem: FusionProblem, search: Search) -> Matching:
        """Match components as they were sent, in all as many as the search asks for."""
        return self.run(self.compared(problem), search)

    @abstractmethod
    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Match components as this method compares them."""

    def compared(
        self, problem: FusionProblem, *like: FloatArray, variation: FloatArray | None = None
    ) -> FusionProblem:
        """The problem as this method compares components: as ``like`` are, if given."""
        del variation
        return problem.centred(*like)

    def to_config(self) -> dict[str, Any]:
        """JSON-able description, understood by `method_from_config`."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class PenalisedMethod(Method):
    """A method with a penalty that is given, in nats, or chosen."""

    penalty: Penalty = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_penalty(self.penalty, auto=True)

    @property
    def given_penalty(self) -> float | None:
        """The penalty, unless it is chosen."""
        return None if self.penalty == "auto" else float(self.penalty)


@dataclass(frozen=True, kw_only=True)
class UnknownMethod(Method):
    """A method of a file that this process does not know: it can be shown, not run."""

    config: Mapping[str, Any] = field(default_factory=dict)

    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Refuse."""
        raise KLFusionError(
            f"expected a method of {sorted(_REGISTRY)}, got {self.config.get('name')!r}: "
            "fuse(fusion.silos, method=...) matches anew with any"
        )

    def to_config(self) -> dict[str, Any]:
        """As the file had it."""
        return dict(self.config)


def method_from_config(config: Mapping[str, Any]) -> Method:
    """The method that `Method.to_config` described; an `UnknownMethod` if that is impossible."""
    kind = _REGISTRY.get(str(config.get("name")))
    settings = {key: value for key, value in config.items() if key != "name"}
    if kind is None or not set(settings) <= {one.name for one in fields(kind)}:
        return UnknownMethod(config=config)
    try:
        return kind(**settings)
    except (KLFusionError, TypeError, ValueError):
        return UnknownMethod(config=config)


def check_penalty(penalty: object, *, auto: bool = False) -> None:
    """Refuse all but positive numbers, and ``"auto"`` where it is allowed."""
    if auto and isinstance(penalty, str) and penalty == "auto":
        return
    if not (is_number(penalty) and 0 < penalty < np.inf):  # type: ignore[operator]
        or_auto = " or 'auto'" if auto else ""
        raise KLFusionError(f"expected penalty to be a number > 0{or_auto}, got {brief(penalty)}")


def no_size(method: Method, n_components: int | None, why: str) -> None:
    """Refuse a size for a method that has its own way to it."""
    if n_components is not None:
        expected = f"expected no n_components, {why}, got {n_components}"
        raise KLFusionError(f"method {method.name!r}: {expected}")


_MOST_ON_PATH = 1_200  # components whose path takes a few seconds; more are sampled first
_MOST_ENTRIES = 1_000_000_000  # natural parameters of all pairs on the path
_MOST_MOVES = 50_000_000  # natural parameters of the moves that a sweep of local search tries


@dataclass(frozen=True, kw_only=True)
class PathMethod(Method):
    """A method that walks the merge path of all components, or of a sample of the silos."""

    cleans: ClassVar[bool] = True
    samples: ClassVar[bool] = True  # whether very many silos are sampled
    one_prior: ClassVar[bool] = False  # whether components are compared as if under one prior
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
        problem = problem.with_variation(variation)  # without it, not kept: it may be large
        most = self.most_on_path(problem)
        # A sample must have more components than it is to find.
        if self.samples and problem.n > most >= 2 * (search.n_components or 0):
            found = self._sampled(problem, search, variation)
        else:
            found = self.on_path(problem, search)
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

    def _sampled(
        self, problem: FusionProblem, search: Search, variation: FloatArray | None
    ) -> Matching:
        """The path of a sample of silos, then assignments of all; they vary between silos."""
        store = SiloStore.of(InMemory(problem), problem.as_given, variation)
        found = self.stream(store, search)
        moves = problem.n * int(found.labels.max()) * problem.family.size
        chosen = search.n_components is None and self.given_penalty is None  # by the method
        if chosen or moves > _MOST_MOVES:
            return found
        refined = refine(problem, found.labels, found.penalty, search, fixed_size=True)
        refined = refined._replace(trace=found.trace[:-1] + refined.trace)
        return certified(problem, refined, found.penalty, found.path)

    def stream(self, store: SiloStore, search: Search) -> Matching:
        """The path of a sample of silos that lie in parts, then assignments of all."""
        most = most_on_path(store.batches.family.size)
        return fuse_many(store, partial(self.on_sample, search=search), search, most=most)


def most_on_path(size: int) -> int:
    """Components of so many natural parameters whose path can be walked in a few seconds."""
    return min(_MOST_ON_PATH, int(math.sqrt(_MOST_ENTRIES / size)))
