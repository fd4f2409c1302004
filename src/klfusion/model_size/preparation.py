"""From silos to a problem: which components are matched, and in which order they are worked on."""

from __future__ import annotations

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

_Values = TypeVar("_Values", FloatArray, IntArray)
_Unit = tuple[IntArray, FloatArray]  # rows of local components, and their natural parameters (p,)


@dataclass(frozen=True, eq=False)
class Prepared:
    """What is matched, and how it goes back to the components as they were given.

    Parameters
    ----------
    problem : FusionProblem
        What is matched, in an order that depends on the silos' contents alone.
    members : list of int arrays
        The rows of ``stacked`` behind each component of ``problem``.
    stacked : FusionProblem
        All components of all silos as given.
    offsets : int array of shape (J + 1,)
        Where each silo begins in ``stacked``.
    """

    problem: FusionProblem
    members: list[IntArray]
    stacked: FusionProblem
    offsets: IntArray

    def matched(self, labels: IntArray, posteriors: Sequence[Posterior]) -> Matched:
        """The problem with its labels, and the prior of each component's silo."""
        return Matched(self.problem, labels, priors_of(posteriors, self.stacked.silo[self.first]))

    @property
    def first(self) -> IntArray:
        """The first row behind each component of the problem, (n,)."""
        return np.array([rows.min() for rows in self.members])

    def spread(self, labels: IntArray) -> IntArray:
        """Labels of the problem's components as labels of all; -1 for those left out."""
        out = np.full(self.stacked.n, -1, dtype=np.intp)
        for rows, label in zip(self.members, labels, strict=True):
            out[rows] = label
        return out

    def without(self, some: BoolArray) -> Prepared:
        """Some of the problem's components left out; each silo must keep one."""
        kept = np.flatnonzero(~some)
        members = [self.members[i] for i in kept]
        return replace(self, problem=self.problem.some(kept), members=members)

    def by_silo(self, values: _Values) -> tuple[_Values, ...]:
        """Split an array over all components into one a silo."""
        return tuple(values[a:b] for a, b in pairwise(self.offsets))


def stack_silos(posteriors: Sequence[Posterior], silo_weights: FloatArray) -> FusionProblem:
    """All components of all silos as they were given."""
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
    clean: bool,
    sample: Sample | None = None,
) -> Prepared:
    """Stack the silos; with ``clean``, without empty and split components.

    If these are some silos of many, ``sample`` tells what all are like.
    """
    stacked = stack_silos(posteriors, silo_weights)
    offsets = np.concatenate([[0], np.cumsum([p.n_components for p in posteriors])])
    units = _clean_units(posteriors, sample) if clean else [_single_units(p) for p in posteriors]
    turns = _canonical(units, silo_weights)
    problem = FusionProblem(
        stacked.family,
        np.stack([eta for j in turns for _, eta in units[j]]),
        np.repeat(np.arange(len(turns)), [len(units[j]) for j in turns]),
        np.repeat(silo_weights[turns], [len(units[j]) for j in turns]),
        kind=_kind(posteriors),
    )
    members = [rows + offsets[j] for j in turns for rows, _ in units[j]]
    counts = [p.counts for p in posteriors]
    if not any(c is None for c in counts):
        counted = np.concatenate([np.asarray(c) for c in counts])
        behind = np.array([counted[rows].sum() for rows in members])
        problem = replace(problem, counts=behind)
    return Prepared(problem, members, stacked, offsets)


def _kind(posteriors: Sequence[Posterior]) -> str | None:
    """The kind of the silos' models; None if some have no structure."""
    kinds = {None if p.structure is None else p.structure.kind for p in posteriors}
    return kinds.pop() if len(kinds) == 1 else None


def _single_units(posterior: Posterior) -> list[_Unit]:
    return [(np.array([row]), eta) for row, eta in enumerate(posterior.natural)]


def _clean_units(posteriors: Sequence[Posterior], sample: Sample | None) -> list[list[_Unit]]:
    """Without empty components, and with splits put together."""
    rows = [with_data(p) for p in posteriors]
    kept = [p.natural[own] for p, own in zip(posteriors, rows, strict=True)]
    if any(may_have_splits(p) for p in posteriors):
        near = near_pairs(posteriors[0].family, kept, sample)
    else:  # comparing all pairs would be for nothing
        near = [np.zeros((len(own), len(own)), dtype=bool) for own in rows]
    return [merge_splits(*one) for one in zip(posteriors, rows, near, strict=True)]


def _canonical(units: list[list[_Unit]], silo_weights: FloatArray) -> IntArray:
    """Sort each silo's components by content, in place, and say in which order silos come.

    Algorithms that visit silos in turn, or draw at random, then give the same answer whatever the
    order of silos, or of components in a silo.
    """
    keys = []
    for own, weight in zip(units, silo_weights, strict=True):
        digests = [hashlib.blake2b(eta.tobytes(), digest_size=8).digest() for _, eta in own]
        order = sorted(range(len(own)), key=digests.__getitem__)
        own[:] = [own[i] for i in order]
        keys.append((sorted(digests), float(weight)))
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Matched:
    """What was matched, as silos and labels tell it.

    Parameters
    ----------
    problem : FusionProblem
        Components of one silo that share a label are one: what the silo had split.
    labels : int array of shape (n,)
    priors : array of shape (n, p), optional
        The prior of each one's silo, where all silos told it.
    """

    problem: FusionProblem
    labels: IntArray
    priors: FloatArray | None


def matched(
    posteriors: Sequence[Posterior], labels: Sequence[IntArray], silo_weights: FloatArray
) -> Matched:
    """Put together what each silo's labels put together; leave out what has none."""
    silo = np.repeat(np.arange(len(labels)), [len(own) for own in labels])
    found = np.concatenate(labels)
    rows = np.flatnonzero(found >= 0)
    key = silo[rows] * (int(found.max()) + 1) + found[rows]
    _, first, group, times = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    stacked = np.concatenate([p.natural for p in posteriors])
    natural, which = stacked[rows[first]], silo[rows[first]]
    for unit in np.flatnonzero(times > 1):
        parts, prior = stacked[rows[group == unit]], posteriors[which[unit]].prior
        # Without a prior nobody put them together on evidence: they are averaged.
        natural[unit] = parts.mean(axis=0)
        if prior is not None:
            natural[unit] = parts.sum(axis=0) - (len(parts) - 1) * prior
    order = np.argsort(first)  # as the silos have them
    natural, which, labels_of_units = natural[order], which[order], found[rows[first[order]]]
    problem = FusionProblem(posteriors[0].family, natural, which, silo_weights[which])
    return Matched(problem, labels_of_units, priors_of(posteriors, which))


def priors_of(posteriors: Sequence[Posterior], silo: IntArray) -> FloatArray | None:
    """The prior of each component's silo, (n, p); None unless every silo told it."""
    given = [p.prior for p in posteriors if p.prior is not None]
    return np.stack(given)[silo] if len(given) == len(posteriors) else None
