"""From silos to a problem: which components are matched, and in which order."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.model_size.cleaning import (
    Sample,
    may_have_splits,
    merge_splits,
    near_pairs,
    with_data,
)
from klfusion.objective.problem import FusionProblem
from klfusion.posteriors.posterior import Posterior

_Values = TypeVar("_Values", FloatArray, IntArray, BoolArray)
_Unit = tuple[IntArray, FloatArray]  # rows of local components, and their natural parameters (p,)


@dataclass(frozen=True, eq=False)
class Prepared:
    """The components to match, and their rows among those given."""

    problem: FusionProblem  # in an order that depends on the contents of silos alone
    members: list[IntArray]  # rows of `stacked` behind each component of the problem
    stacked: FusionProblem  # all components of all silos as given
    offsets: IntArray  # first row of each silo in `stacked`, (J + 1,)

    @property
    def silo(self) -> IntArray:
        """Number of the silo of each component of the problem, in the order given, (n,)."""
        return self.stacked.silo[self.first]

    @property
    def first(self) -> IntArray:
        """The first row behind each component of the problem, (n,)."""
        return np.array([rows.min() for rows in self.members])

    @property
    def is_member(self) -> BoolArray:
        """Whether each component as given is part of the problem, (number of components,)."""
        return self.spread(np.zeros(self.problem.n, dtype=np.intp)) >= 0

    def spread(self, labels: IntArray) -> IntArray:
        """Labels of all components from those of the problem; -1 for those left out."""
        out = np.full(self.stacked.n, -1, dtype=np.intp)
        for rows, label in zip(self.members, labels, strict=True):
            out[rows] = label
        return out

    def spread_values(self, values: FloatArray) -> FloatArray:
        """Values of all components from those of the problem; NaN for those left out."""
        rows = self.spread(np.arange(self.problem.n))
        return np.where(rows >= 0, values[rows], np.nan)

    def with_parts(self, part_of: IntArray) -> "Prepared":
        """Some components as parts of others of their silo, ``part_of`` (n,); -1 for others."""
        parts, alone = np.flatnonzero(part_of >= 0), np.flatnonzero(part_of < 0)
        members = list(self.members)
        for part in parts:
            whole = part_of[part]
            members[whole] = np.concatenate([members[whole], members[part]])
        problem = self.problem.with_parts(parts, part_of[parts]).some(alone)
        return replace(self, problem=problem, members=[members[i] for i in alone])

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


def prepare(
    posteriors: Sequence[Posterior],
    silo_weights: FloatArray,
    *,
    separation: float | None,
    sample: Sample | None = None,
) -> Prepared:
    """Stack the silos; leave out empty components and merge split ones.

    Those farther apart than a ``separation`` are no splits; None keeps all components. For a batch
    of silos, ``sample`` has the statistics of all.
    """
    stacked = stack_silos(posteriors, silo_weights)
    offsets = np.concatenate([[0], np.cumsum([p.n_components for p in posteriors])])
    if separation is None:
        units = [[(np.array([k]), eta) for k, eta in enumerate(p.natural)] for p in posteriors]
    else:
        units = _clean_units(posteriors, separation, sample)
    order = _canonical(units, silo_weights)
    problem = FusionProblem(
        stacked.family,
        np.stack([eta for j in order for _, eta in units[j]]),
        np.repeat(np.arange(len(order)), [len(units[j]) for j in order]),
        np.repeat(silo_weights[order], [len(units[j]) for j in order]),
    )
    members = [rows + offsets[j] for j in order for rows, _ in units[j]]
    counts = [p.counts for p in posteriors]
    if not any(c is None for c in counts):
        counted = np.concatenate([np.asarray(c) for c in counts])
        behind = np.array([counted[rows].sum() for rows in members])
        problem = replace(problem, counts=behind)
    prepared = Prepared(problem, members, stacked, offsets)
    priors = [p.prior for p in posteriors if p.prior is not None]
    if len(priors) == len(posteriors):
        problem = replace(problem, prior=np.stack(priors)[prepared.silo])
    return replace(prepared, problem=problem)


def _clean_units(
    posteriors: Sequence[Posterior], separation: float, sample: Sample | None
) -> list[list[_Unit]]:
    """Without empty components, splits merged."""
    rows = [with_data(p) for p in posteriors]
    kept = [p.natural[own] for p, own in zip(posteriors, rows, strict=True)]
    if any(may_have_splits(p) for p in posteriors):
        near = near_pairs(posteriors[0].family, kept, sample)
    else:  # no pair can be merged
        near = [np.zeros((len(own), len(own)), dtype=bool) for own in rows]
    return [merge_splits(*one, separation) for one in zip(posteriors, rows, near, strict=True)]


def _canonical(units: list[list[_Unit]], silo_weights: FloatArray) -> IntArray:
    """Sort each silo's components by content, in place; give the order of silos by content.

    So results do not depend on the order of silos, or of components in a silo.
    """
    keys = []
    for own, weight in zip(units, silo_weights, strict=True):
        digests = [hashlib.blake2b(eta.tobytes(), digest_size=8).digest() for _, eta in own]
        order = sorted(range(len(own)), key=digests.__getitem__)
        own[:] = [own[i] for i in order]
        keys.append((sorted(digests), float(weight)))
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)
