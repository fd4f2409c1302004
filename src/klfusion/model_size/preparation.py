"""From silos to a problem: which components are matched, and in which order."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, numbering
from klfusion.model_size.cleaning import (
    merge_splits,
    merged,
    split_silos,
    with_data,
)
from klfusion.objective.problem import FusionProblem
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.structure import is_tied

_DIGEST = 8  # bytes
_Values = TypeVar("_Values", FloatArray, IntArray, BoolArray)
# Of a silo: natural parameters of its components (L, p), and which of these each row is; -1: none.
_Units = tuple[FloatArray, IntArray]


@dataclass(frozen=True, eq=False)
class Prepared:
    """The components to match, and their rows among those given."""

    problem: FusionProblem  # in an order that depends on the contents of silos alone
    unit: IntArray  # component of the problem that each row as given is in; -1: left out
    offsets: IntArray  # first row of each silo among those given, (J + 1,)

    @property
    def silo(self) -> IntArray:
        """Number of the silo of each component of the problem, in the order given, (n,)."""
        sizes = np.diff(self.offsets)
        return np.repeat(np.arange(len(sizes)), sizes)[self.first]

    @property
    def first(self) -> IntArray:
        """The first row behind each component of the problem, (n,)."""
        first = np.empty(self.problem.n, dtype=np.intp)
        rows = np.flatnonzero(self.is_member)[::-1]  # the first is written last
        first[self.unit[rows]] = rows
        return first

    @property
    def is_member(self) -> BoolArray:
        """Whether each component as given is part of the problem, (number of components,)."""
        return self.unit >= 0

    def spread(self, labels: IntArray) -> IntArray:
        """Labels of all components from those of the problem; -1 for those left out."""
        return np.append(labels, -1)[self.unit]

    def spread_values(self, values: FloatArray) -> FloatArray:
        """Values of all components from those of the problem; NaN for those left out."""
        return np.append(values, np.nan)[self.unit]

    def with_parts(self, part_of: IntArray) -> "Prepared":
        """Some components as parts of others of their silo, ``part_of`` (n,); -1 for others."""
        parts, alone = np.flatnonzero(part_of >= 0), np.flatnonzero(part_of < 0)
        number = numbering(alone, len(part_of))
        number[parts] = number[part_of[parts]]
        problem = self.problem.with_parts(parts, part_of[parts]).some(alone)
        return replace(self, problem=problem, unit=number[self.unit])

    def by_silo(self, values: _Values) -> tuple[_Values, ...]:
        """Split an array over all components into one per silo."""
        return tuple(values[a:b] for a, b in pairwise(self.offsets))


def stack_silos(posteriors: Sequence[Posterior], silo_weights: FloatArray) -> FusionProblem:
    """All components of all silos as given."""
    sizes = [p.n_components for p in posteriors]
    return FusionProblem(
        posteriors[0].family,
        np.concatenate([p.natural for p in posteriors]),
        np.repeat(np.arange(len(sizes)), sizes),
        np.repeat(silo_weights, sizes),
    )


def prepare(posteriors: Sequence[Posterior], silo_weights: FloatArray, *, clean: bool) -> Prepared:
    """Stack the silos; if ``clean``, leave out empty components and merge split ones."""
    offsets = np.concatenate([[0], np.cumsum([p.n_components for p in posteriors])])
    if clean:
        units = _clean_units(posteriors)
    else:
        units = [(p.natural, np.arange(p.n_components)) for p in posteriors]
    sizes = np.array([len(natural) for natural, _ in units])
    order = _canonical([natural for natural, _ in units], sizes, silo_weights)
    number = numbering(order, len(order))
    natural = np.empty((len(order), posteriors[0].family.size))
    for start, (rows, _) in zip(np.cumsum(sizes) - sizes, units, strict=True):
        natural[number[start : start + len(rows)]] = rows
    first = np.repeat(np.cumsum(sizes) - sizes, np.diff(offsets))
    own = np.concatenate([own for _, own in units])
    unit = number[np.where(own >= 0, first + own, -1)]
    silo = np.repeat(np.arange(len(sizes)), sizes)[order]
    number_of_silo = np.cumsum(np.diff(silo, prepend=silo[0]) != 0)
    problem = FusionProblem(posteriors[0].family, natural, number_of_silo, silo_weights[silo])
    counts = [p.counts for p in posteriors]
    if not any(c is None for c in counts):
        counted, members = np.concatenate([np.asarray(c) for c in counts]), unit >= 0
        behind = np.bincount(unit[members], counted[members])
        problem = replace(problem, counts=np.asarray(behind, dtype=np.float64))
    priors = [p.prior for p in posteriors if p.prior is not None]
    if len(priors) == len(posteriors):
        tied = np.array([is_tied(p.structure) for p in posteriors])
        problem = replace(problem, prior=np.stack(priors)[silo], tied=tied[silo])
    return Prepared(problem, unit, offsets)


def _clean_units(posteriors: Sequence[Posterior]) -> list[_Units]:
    """Without empty components, splits merged."""
    rows, found = [with_data(p) for p in posteriors], list[_Units]()
    for posterior, own, some in zip(posteriors, rows, split_silos(posteriors, rows), strict=True):
        if not some:
            found.append(_units(posterior, own))
            continue
        groups = merge_splits(posterior, own)
        unit = np.full(posterior.n_components, -1, dtype=np.intp)
        unit[np.concatenate(groups)] = np.repeat(np.arange(len(groups)), [*map(len, groups)])
        found.append((merged(posterior, groups), unit))
    return found


def _units(posterior: Posterior, rows: IntArray) -> _Units:
    """Some rows of a silo, each by itself."""
    if len(rows) == posterior.n_components:
        return posterior.natural, rows
    return posterior.natural[rows], numbering(rows, posterior.n_components)[:-1]


def _canonical(
    naturals: Sequence[FloatArray], sizes: IntArray, silo_weights: FloatArray
) -> IntArray:
    """Rows sorted by content, silos by content and each silo's components, (n,).

    The silos have ``sizes`` (J,). So results do not depend on the order of silos, or of components
    in a silo.
    """
    every = (eta for natural in naturals for eta in natural)
    digests = b"".join([hashlib.blake2b(eta, digest_size=_DIGEST).digest() for eta in every])
    silo = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort([np.frombuffer(digests, dtype=f">u{_DIGEST}"), silo])
    ordered = np.frombuffer(digests, dtype=f"V{_DIGEST}")[order].tobytes()
    ends = np.cumsum(sizes)
    edges = [(int(a), int(b)) for a, b in zip(ends - sizes, ends, strict=True)]
    keys = [
        (ordered[_DIGEST * a : _DIGEST * b], weight)
        for (a, b), weight in zip(edges, silo_weights.tolist(), strict=True)
    ]
    silos = sorted(range(len(keys)), key=keys.__getitem__)
    return np.concatenate([order[slice(*edges[j])] for j in silos])
