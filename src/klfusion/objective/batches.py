"""The components of all silos in batches: in memory, in files, on other machines.

A silo is never divided between batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, relabel
from klfusion.families import Family
from klfusion.objective.problem import ARRAYS, FusionProblem

_T = TypeVar("_T")
_BATCH_ENTRIES = 4_000_000  # divergences of one batch: 32 MB


class ProblemBatches(ABC):
    """All silos, some in each batch; every silo has a number of its own."""

    family: Family

    @abstractmethod
    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterable[_T]:
        """Results of the task for each batch and its arguments, in the order of batches."""

    def reduce(
        self, task: Callable[..., _T], combine: Callable[[_T, _T], _T], *arguments: Sequence[Any]
    ) -> _T:
        """Results of the task for all batches, neighbours combined."""
        return reduce(combine, self.map(task, *arguments))


class InMemory(ProblemBatches):
    """A problem in batches so small that the matrix of their divergences is small, too.

    About ``columns`` global components are expected.
    """

    def __init__(self, problem: FusionProblem, columns: int = 1_000) -> None:
        self.problem, self.columns, self.family = problem, columns, problem.family

    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterable[_T]:
        """One batch after the other: the matrix products in it use all cores."""
        return map(task, self.batches, *arguments)

    @cached_property
    def batches(self) -> list[FusionProblem]:
        """Views of consecutive silos."""
        problem, step = self.problem, max(1, _BATCH_ENTRIES // self.columns)
        if problem.n <= step:
            return [problem]
        stops = np.array([rows.stop for rows in problem.silos])
        last = np.searchsorted(stops, np.arange(step, problem.n + step, step))
        edges = np.unique([0, *stops[np.minimum(last, len(stops) - 1)], problem.n])
        return [problem.some(slice(a, b)) for a, b in pairwise(edges.tolist())]


class SelectedRows(ProblemBatches):
    """Some components, ``rows``, of each batch."""

    def __init__(self, batches: ProblemBatches, rows: Sequence[IntArray]) -> None:
        self.batches, self.rows, self.family = batches, rows, batches.family

    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterable[_T]:
        """Results of the task on the selected rows of each batch."""
        return self.batches.map(partial(_on_rows, task), self.rows, *arguments)

    def reduce(
        self, task: Callable[..., _T], combine: Callable[[_T, _T], _T], *arguments: Sequence[Any]
    ) -> _T:
        """Combined where the batches are."""
        return self.batches.reduce(partial(_on_rows, task), combine, self.rows, *arguments)


def _on_rows(task: Callable[..., _T], batch: FusionProblem, rows: IntArray, *arguments: Any) -> _T:
    return task(batch if len(rows) == batch.n else batch.some(rows), *arguments)


@dataclass(frozen=True, eq=False)
class SiloStore:
    """Batches, and the number of components in each silo of each batch.

    Components were made comparable ``like`` some others (m, p), and less certain by a
    ``variation`` between silos. Batches may lack the ``prior`` (p,) that all have.
    """

    batches: ProblemBatches
    sizes: Sequence[IntArray]
    like: FloatArray
    variation: FloatArray | None = None
    prior: FloatArray | None = None

    @classmethod
    def of(
        cls,
        batches: ProblemBatches,
        like: FloatArray,
        variation: FloatArray | None = None,
        prior: FloatArray | None = None,
    ) -> SiloStore:
        """Count the components of the batches."""
        return cls(batches, list(batches.map(_silo_sizes)), like, variation, prior)

    def given(self, problem: FusionProblem) -> FusionProblem:
        """Components of these silos as they were given."""
        prior = problem.prior
        if prior is None and self.prior is not None:
            prior = np.broadcast_to(self.prior, problem.natural.shape)
        return replace(problem, natural=problem.as_given, given=None, prior=prior)

    def compared(self, given: FusionProblem) -> FusionProblem:
        """Components as given made comparable, without variation between silos."""
        return given.centred().comparable(self.like)

    @cached_property
    def silo(self) -> IntArray:
        """The silo of each component, (n,)."""
        sizes = np.concatenate(self.sizes)
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def starts(self) -> IntArray:
        """First component of each silo, (J,)."""
        return np.concatenate([[0], np.cumsum(np.concatenate(self.sizes))[:-1]])

    @property
    def n(self) -> int:
        """Number of components."""
        return len(self.silo)

    @property
    def n_silos(self) -> int:
        """Number of silos."""
        return len(self.starts)

    def by_batch(self, values: Any) -> list[Any]:
        """Split an array over all components into one per batch."""
        return np.split(values, np.cumsum([own.sum() for own in self.sizes])[:-1])

    def take(self, rows: IntArray) -> FusionProblem:
        """Some components, in ascending order, as a problem of their own."""
        chosen = np.zeros(self.n, dtype=bool)
        chosen[rows] = True
        own = [np.flatnonzero(part) for part in self.by_batch(chosen)]
        return _gathered(SelectedRows(self.batches, own).map(_with_log_partition), len(rows))

    def first_silos(self, order: IntArray, most: int) -> IntArray:
        """Components of the first silos of an order: at most ``most``, of two silos at least."""
        sizes = np.concatenate(self.sizes)[order]
        enough = max(2, int(np.searchsorted(np.cumsum(sizes), most, side="right")))
        return np.flatnonzero(np.isin(self.silo, order[:enough]))


def _silo_sizes(batch: FusionProblem) -> IntArray:
    return np.array([rows.stop - rows.start for rows in batch.silos], dtype=np.intp)


def _with_log_partition(batch: FusionProblem) -> FusionProblem:
    _ = batch.log_partition  # computed where the batch is
    return batch


def _gathered(parts: Iterable[FusionProblem], n: int) -> FusionProblem:
    """One problem of ``n`` components in parts, each let go before the next.

    Optional fields are kept only if all parts have them.
    """
    arrays, low, names = dict[str, Any](), 0, {*ARRAYS, "log_partition"}
    for part in parts:
        family = part.family
        names -= {name for name in names if getattr(part, name) is None}
        for name in names:
            own = getattr(part, name)
            if name not in arrays:
                arrays[name] = np.empty((n, *own.shape[1:]), own.dtype)
            arrays[name][low : low + part.n] = own
        low += part.n
    arrays = {name: arrays[name] for name in names}
    log_partition = arrays.pop("log_partition")
    made = FusionProblem(family, **(arrays | {"silo": relabel(arrays["silo"])}))
    vars(made)["log_partition"] = log_partition
    return made
