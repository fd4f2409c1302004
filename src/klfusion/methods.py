"""The algorithms by name, each a frozen configuration that can run itself on a problem."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import numpy as np

from klfusion._typing import FloatArray
from klfusion.algorithm import AssignRelaxed, Report, alternate
from klfusion.assignment.hungarian import solve_hungarian
from klfusion.assignment.relaxed import solve_relaxed
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.families import Family
from klfusion.fusion import PenaltyPath, Status
from klfusion.losses import least_loss_path, path_losses
from klfusion.parts import InMemory, Parts
from klfusion.path import penalty_path
from klfusion.problem import FusionProblem
from klfusion.refine import refine
from klfusion.revision import find_blends, gather_stragglers, part_doubles
from klfusion.scale import fuse_many
from klfusion.search import (
    Solution,
    certified,
    cut,
    known_size,
    known_size_starts,
    penalised_starts,
    seed_centres,
)
from klfusion.selection import choose

Penalty = float | Literal["auto"]
_MOST_ON_PATH = 1_200  # components; more are sketched first
_MOST_ENTRIES = 1_000_000_000  # natural parameters of all pairs on the path
_MOST_MOVES = 1_000_000  # of components to clusters, tried one by one in a sweep of local search
_MAX_LOSS = 0.02  # nats an observation, where silos' own components may merge and no size is given


@dataclass(frozen=True)
class Method(ABC):
    """Settings all methods share.

    Parameters
    ----------
    n_components : int, optional
        The size of the global model where it is known; then nothing is penalised.
    penalty : float or "auto"
        Weight of ``sum_g sqrt(n_g)``, in nats.
    n_init : int
        Number of starts; the best result is kept.
    max_iter : int
        Most sweeps of one start.
    tol : float
        Stop when a sweep lowers the objective by less than this share of it.
    """

    name: ClassVar[str]
    n_components: int | None = None
    penalty: Penalty = "auto"
    n_init: int = 5
    max_iter: int = 100
    tol: float = 1e-9

    def __post_init__(self) -> None:
        if self.penalty != "auto" and not (
            _is_number(self.penalty) and np.isfinite(self.penalty) and self.penalty > 0
        ):
            raise KLFusionError(
                f"expected penalty to be a number > 0 or 'auto', got {self.penalty!r}"
            )
        if self.n_components is not None and self.penalty != "auto":
            raise KLFusionError(
                "expected n_components or penalty, got both: a known size needs no penalty"
            )
        for field in ("n_components", "n_init", "max_iter"):
            value = getattr(self, field)
            if value is not None and (not _is_integer(value) or value < 1):
                raise KLFusionError(f"expected {field} to be an integer >= 1, got {value!r}")
        if not (_is_number(self.tol) and self.tol >= 0):
            raise KLFusionError(f"expected tol to be a number >= 0, got {self.tol!r}")

    @abstractmethod
    def run(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        """Solve; every choice at random is drawn from ``rng``."""

    def matching(self, problem: FusionProblem) -> FusionProblem:
        """The problem as this method compares components."""
        return problem.centred()


@final
@dataclass(frozen=True)
class Homogeneous(Method):
    """All silos have the same components (paper, section 3): permutations and averages.

    ``leave_one_out`` goes on, after the paper's alternation, with moves that take a silo out of the
    averages before they assign it anew, which reach lower objectives.
    """

    name: ClassVar[str] = "homogeneous"
    leave_one_out: bool = True

    def run(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        """Alternate from the components of several silos in turn; keep the best."""
        sizes = {rows.stop - rows.start for rows in problem.silos}
        if len(sizes) > 1:
            raise IncompatibleSilosError(
                f"method 'homogeneous': expected silos of one size, got sizes {sorted(sizes)}; "
                "method 'auto' allows them to differ"
            )
        if self.n_components not in (None, problem.largest_silo):
            raise IncompatibleSilosError(
                f"method 'homogeneous': expected n_components to be the silos' size "
                f"{problem.largest_silo}, got {self.n_components}"
            )
        if self.penalty != "auto":
            raise KLFusionError("method 'homogeneous' has no penalty: its size is the silos' own")
        order = rng.permutation(len(problem.silos))[: self.n_init]
        starts = [problem.natural[problem.silos[j]] for j in order]
        runs = [known_size(self, problem, s, report, refined=self.leave_one_out) for s in starts]
        return min(runs, key=lambda s: s.objective)


@final
@dataclass(frozen=True)
class Exact(Method):
    """The binary objective at a given penalty or size: alternate, then local search."""

    name: ClassVar[str] = "exact"

    def run(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        """Start from KL k-means++ seeds, several times."""
        if self.n_components is not None:
            return known_size_starts(self, problem, self.n_components, rng, report, refined=True)
        path = None
        if self.penalty == "auto":
            path, distances = penalty_path(problem, report)
            penalty = choose(problem, path, distances).penalty
        else:
            penalty = float(self.penalty)
        return penalised_starts(self, problem, penalty, path, [], self.n_init, rng, report)


@final
@dataclass(frozen=True)
class Auto(Method):
    """The best we know, and the default.

    Posteriors of silos of different size are made comparable; the whole penalty path is walked
    once; the penalty is chosen from it; local search refines the plan; what failed local fits left
    is put right. ``n_init > 1`` adds starts from KL k-means++ seeds.

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
            if not (_is_number(self.max_loss) and self.max_loss >= 0):
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

    def matching(self, problem: FusionProblem, *like: FloatArray) -> FusionProblem:
        """Posteriors brought to comparable certainty (to that of others, if given)."""
        return problem.centred(*like).comparable(*like)

    def run(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        """Walk the path, choose, refine."""
        if self.within_silo_merging:
            path = least_loss_path(problem, report)
            if self.n_components is not None:
                return cut(problem, path, problem.n - self.n_components)
            most = _MAX_LOSS if self.max_loss is None else self.max_loss
            return cut(problem, path, path.steps_within(most))
        if self.max_loss is None and problem.n > _most_on_path(problem.family):
            return self._on_sketch(problem, rng, report)
        return self.on_path(problem, rng, report)

    def on_path(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        """Walk the path of all components, choose, refine."""
        path, distances = penalty_path(problem, report)
        path = replace(path, losses=path_losses(problem, path))
        if self.max_loss is not None:
            return cut(problem, path, path.steps_within(self.max_loss))
        if self.n_components is not None:
            return self._of_known_size(problem, path, self.n_components, rng, report)
        if self.penalty == "auto":
            choice = choose(problem, path, distances)
            steps, penalty = choice.steps, choice.penalty
        else:
            penalty = float(self.penalty)
            steps = path.steps_at(penalty)
        start = path.labels(steps)
        found = penalised_starts(
            self, problem, penalty, path, [start], self.n_init - 1, rng, report
        )
        return self._second_look(problem, found, report) if self.penalty == "auto" else found

    def _on_sketch(
        self, problem: FusionProblem, rng: np.random.Generator, report: Report
    ) -> Solution:
        """The path of a sample of silos, and assignments of all."""
        found = self.stream(InMemory(problem), rng, report)
        if found.left_out is not None or problem.n * int(found.labels.max()) > _MOST_MOVES:
            return found
        labels, trace, converged = refine(
            problem, found.labels, found.penalty,
            fixed_size=True, max_iter=self.max_iter, tol=self.tol, report=report,
        )  # fmt: skip
        trace = [*found.trace[:-1], *trace]
        return certified(problem, labels, trace, converged, found.penalty, found.path)

    def stream(self, parts: Parts, rng: np.random.Generator, report: Report) -> Solution:
        """The path of a sketch of silos that lie in parts, and assignments of all."""
        return fuse_many(
            parts,
            lambda sketch: self.on_path(sketch, rng, report),
            self,
            most=_most_on_path(parts.family),
            grows=self.n_components is None,
            second_look=self.penalty == "auto",
            rng=rng,
            report=report,
        )

    def _second_look(self, problem: FusionProblem, found: Solution, report: Report) -> Solution:
        """Part doubles; point out blends or, where there are none, gather stragglers."""
        parted = part_doubles(problem, found.labels)
        blends = find_blends(problem, parted)
        if blends.any():
            return replace(found, blends=blends)
        gathered = gather_stragglers(problem, parted)
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
        path: PenaltyPath,
        size: int,
        rng: np.random.Generator,
        report: Report,
    ) -> Solution:
        steps = problem.n - size
        if steps > len(path.merges):  # the path ended in clusters that exclude each other
            n_init = max(self.n_init, Exact.n_init)
            return known_size_starts(self, problem, size, rng, report, n_init=n_init, path=path)
        centres = problem.average(path.labels(steps), size)
        return known_size(self, problem, centres, report, path=path)


@final
@dataclass(frozen=True)
class Relaxed(Method):
    """The paper to the letter (sections 4.2 and 4.3).

    KL k-means++ start, divergences scaled by their standard deviation, penalty ``scale`` = 0.1 on
    that scale, the convex relaxation with the L2,2,1 norm, weighted averages. ``n_candidates``
    global components are offered (default: twice the largest silo). With ``n_components`` it is
    the problem of section 4.1.
    """

    name: ClassVar[str] = "relaxed"
    n_init: int = 1
    tol: float = 1e-5
    scale: float = 0.1
    n_candidates: int | None = None

    def run(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        """Alternate the relaxation and weighted averages; keep the best of ``n_init`` starts."""
        if self.n_components is not None:
            return known_size_starts(self, problem, self.n_components, rng, report, refined=False)
        runs = [self._one(problem, rng, report) for _ in range(self.n_init)]
        return min(runs, key=lambda s: s.objective)

    def _one(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        n_candidates = self.n_candidates or 2 * problem.largest_silo
        least = problem.largest_silo
        centres = seed_centres(problem, max(n_candidates, least), rng, least)
        if self.penalty == "auto":
            penalty = self.scale * float(problem.costs(centres).std()) or 1.0
        else:
            penalty = float(self.penalty)
        found = alternate(
            problem, centres, AssignRelaxed(penalty), penalty,
            max_iter=self.max_iter, tol=self.tol, report=report,
        )  # fmt: skip
        certificate = solve_relaxed(
            problem.costs(found.centres), problem.silo, penalty, start=found.plan
        )
        value = found.trace[-1]
        return Solution(
            plan=found.plan,
            # The components of a silo stay apart when fractions are rounded, too.
            labels=solve_hungarian(-np.asarray(found.plan, dtype=np.float64), problem.silos),
            objective=value,
            lower_bound=min(certificate.lower_bound, value),
            trace=found.trace,
            penalty=penalty,
            status=Status.CONVERGED if found.converged else Status.MAX_ITER,
        )


METHODS: dict[str, type[Method]] = {m.name: m for m in (Auto, Exact, Relaxed, Homogeneous)}


def _most_on_path(family: Family) -> int:
    """Components the path can be walked on in a few seconds."""
    return min(_MOST_ON_PATH, int(math.sqrt(_MOST_ENTRIES / family.size)))


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
