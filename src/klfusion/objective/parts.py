"""All silos in parts: in memory, in files, on other machines. No part holds half a silo."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np

from klfusion._utils.arrays import IntArray, relabel
from klfusion.families import Family
from klfusion.objective.problem import FusionProblem

_T = TypeVar("_T")
_PART_ENTRIES = 4_000_000  # divergences in one part: 32 MB


class Parts(Protocol):
    """All silos, some in each part; a silo is never divided, and has a number of its own."""

    @property
    def family(self) -> Family:
        """Of every component."""

    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterable[_T]:
        """What the task gives for each part and its arguments, in the order of parts."""

    def reduce(
        self,
        task: Callable[..., _T],
        combine: Callable[[_T, _T], _T],
        *arguments: Sequence[Any],
    ) -> _T:
        """What the task gives for all parts, neighbours combined."""


@dataclass(frozen=True, eq=False)
class InMemory:
    """A problem in parts small enough for their divergences to stay small, too."""

    problem: FusionProblem
    columns: int = 1_000  # global components expected

    @property
    def family(self) -> Family:
        """Of every component."""
        return self.problem.family

    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterable[_T]:
        """One part after the other: the matrix products in it use all cores."""
        return map(task, self.parts, *arguments)

    def reduce(
        self,
        task: Callable[..., _T],
        combine: Callable[[_T, _T], _T],
        *arguments: Sequence[Any],
    ) -> _T:
        """The parts' results combined as they come."""
        return reduce(combine, self.map(task, *arguments))

    @cached_property
    def parts(self) -> list[FusionProblem]:
        """Views of runs of silos."""
        problem, step = self.problem, max(1, _PART_ENTRIES // self.columns)
        if problem.n <= step:
            return [problem]
        stops = np.array([rows.stop for rows in problem.silos])
        last = np.searchsorted(stops, np.arange(step, problem.n + step, step))
        edges = np.unique([0, *stops[np.minimum(last, len(stops) - 1)], problem.n])
        return [problem.some(slice(a, b)) for a, b in pairwise(edges.tolist())]


@dataclass(frozen=True, eq=False)
class Without:
    """Parts less some components of each."""

    parts: Parts
    kept: Sequence[IntArray]  # rows of each part

    @property
    def family(self) -> Family:
        """Of every component."""
        return self.parts.family

    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterable[_T]:
        """The task on what is kept of each part."""
        return self.parts.map(partial(_on_rows, task), self.kept, *arguments)

    def reduce(
        self,
        task: Callable[..., _T],
        combine: Callable[[_T, _T], _T],
        *arguments: Sequence[Any],
    ) -> _T:
        """The parts' results combined."""
        return self.parts.reduce(partial(_on_rows, task), combine, self.kept, *arguments)


def _on_rows(task: Callable[..., _T], part: FusionProblem, rows: IntArray, *arguments: Any) -> _T:
    return task(part if len(rows) == part.n else part.some(rows), *arguments)


@dataclass(frozen=True, eq=False)
class Stock:
    """Parts, and how many components there are in each silo of each."""

    parts: Parts
    sizes: Sequence[IntArray]

    @classmethod
    def of(cls, parts: Parts) -> Stock:
        """Ask the parts."""
        return cls(parts, list(parts.map(_silo_sizes)))

    @cached_property
    def silo(self) -> IntArray:
        """The silo of each component, (n,)."""
        sizes = np.concatenate(self.sizes)
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def starts(self) -> IntArray:
        """Where each silo begins, (J,)."""
        return np.concatenate([[0], np.cumsum(np.concatenate(self.sizes))[:-1]])

    @property
    def n(self) -> int:
        """Number of components."""
        return len(self.silo)

    @property
    def n_silos(self) -> int:
        """Number of silos."""
        return len(self.starts)

    def by_part(self, values: Any) -> list[Any]:
        """An array over all components, as one a part."""
        return np.split(values, np.cumsum([own.sum() for own in self.sizes])[:-1])

    def take(self, rows: IntArray) -> FusionProblem:
        """Some components, in rising order, as a problem of their own."""
        chosen = np.zeros(self.n, dtype=bool)
        chosen[rows] = True
        kept = [np.flatnonzero(own) for own in self.by_part(chosen)]
        return joined(list(Without(self.parts, kept).map(_itself)))

    def first_silos(self, order: IntArray, most: int) -> IntArray:
        """The components of the first silos of an order, ``most`` in all but two silos at least."""
        sizes = np.concatenate(self.sizes)[order]
        enough = max(2, int(np.searchsorted(np.cumsum(sizes), most, side="right")))
        return np.flatnonzero(np.isin(self.silo, order[:enough]))


def _silo_sizes(part: FusionProblem) -> IntArray:
    return np.array([rows.stop - rows.start for rows in part.silos], dtype=np.intp)


def _itself(part: FusionProblem) -> FusionProblem:
    return part


def joined(problems: Sequence[FusionProblem]) -> FusionProblem:
    """One problem of several; silos keep their order and are numbered from 0 on."""

    def together(name: str) -> Any:
        values = [getattr(one, name) for one in problems]
        return None if any(v is None for v in values) else np.concatenate(values)

    silo = relabel(together("silo"))
    some = replace(
        problems[0], silo=silo,
        **{name: together(name) for name in ("natural", "weights", "counts", "given")},
    )  # fmt: skip
    vars(some)["log_partition"] = together("log_partition")
    return some
