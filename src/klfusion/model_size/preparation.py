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

_Values = TypeVar("_Values", FloatArray, IntArray, BoolArray)
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
        """Labels of the problem's components as labels of all; -1 for those left out."""
        out = np.full(self.stacked.n, -1, dtype=np.intp)
        for rows, label in zip(self.members, labels, strict=True):
            out[rows] = label
        return out

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
    )
    members = [rows + offsets[j] for j in turns for rows, _ in units[j]]
    counts = [p.counts for p in posteriors]
    if not any(c is None for c in counts):
        counted = np.concatenate([np.asarray(c) for c in counts])
        behind = np.array([counted[rows].sum() for rows in members])
        problem = replace(problem, counts=behind)
    return Prepared(problem, members, stacked, offsets)


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
