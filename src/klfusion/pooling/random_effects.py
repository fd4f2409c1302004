"""Locations that vary between silos, and how uncertain that makes the common one.

The model is ``m_j ~ N(m, V_j + T)``. Here ``V_j`` is the posterior covariance of the location at
silo ``j``. The diagonal matrix ``T`` is the variance between silos, the same for all components.
It is estimated from all of them, and zero where silos agree.

Two estimates of ``m`` are used. Generalised least squares weights locations by ``inv(V_j + T)``, so
that a large silo outweighs a small one little if silos vary. Means of Gaussian observations stay
those of the pooled data, in which every observation counts the same; ``T`` adds to their
covariance (Doi and others, 2015).

The estimate of ``T`` has ``f`` degrees of freedom, one per local component beyond the first of a
global one. So the estimate of ``m`` has a t distribution where ``T`` is not zero (Hartung and
Knapp, 2001). A Normal with the same 95 % interval stands for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from klfusion._utils.arrays import CACHED_ENTRIES, TINY, FloatArray, IntArray, blocks
from klfusion._utils.intervals import student_factor
from klfusion.families import NormalWishart, UncertainLocation

_SMALLEST = 1e-18  # variance, as a share of the largest there can be
_HALVINGS_OF_RANGE = 50  # of the logarithm: to one part in 1e12
_STEPS = 100  # at most, of Newton's method; a few suffice
_NEAR, _CLOSE = 1e-12, 1e-11  # relative: its last step, and what is decided without it


@dataclass(frozen=True, eq=False)
class Locations:
    """Locations of matched components; matrices are in blocks of the diagonal, ``(n, b, s, s)``.

    A full covariance is one block; a diagonal one has a block per dimension. Where observations
    spread as by the global components, the matrices are theirs, ``(G, b, s, s)``, and ``V_j`` is
    a ``scale`` times that of its label.
    """

    location: FloatArray  # (n, k), with k = b s
    own: FloatArray  # the covariance V_j of each
    weights: FloatArray  # of the silos, (n,)
    labels: IntArray
    scale: FloatArray | None = None  # (n,)

    @property
    def size(self) -> int:
        """Number of global components."""
        return int(self.labels.max()) + 1

    @classmethod
    def of(
        cls,
        family: UncertainLocation,
        natural: FloatArray,
        weights: FloatArray,
        labels: IntArray,
        like: FloatArray | None = None,
    ) -> "Locations":
        """Of rows ``(n, p)``, whose observations spread as by ``like`` (G, p), or as by them."""
        location = family.location(natural)
        if like is not None and isinstance(family, NormalWishart):  # a matrix over a number
            kappa, own = family.effective_size, _blocks(family.location_covariance(like))
            return cls(location, own, weights, labels, kappa(like)[labels] / kappa(natural))
        spread = [] if like is None else [like]
        own = np.concatenate(
            [
                _blocks(
                    family.location_covariance(natural[some], *(s[labels[some]] for s in spread))
                )
                for some in blocks(natural.shape)
            ]
        )
        return cls(location, own, weights, labels)

    @cached_property
    def between_silos(self) -> FloatArray:
        """The diagonal of ``T``, (k,), as Paule and Mandel estimate it.

        In each dimension, the weighted squares of the residuals add up to their degrees of freedom.
        """
        own = np.einsum("nbss->nbs", self.own).reshape(len(self.own), -1)
        if self.scale is not None:
            own = own[self.labels] * self.scale[:, None]
        freedom = len(self.location) - self.size

        weights, residual = np.empty((2, *own.shape))  # large: made once

        def squares(variance: FloatArray) -> tuple[FloatArray, FloatArray]:
            np.divide(1.0, np.add(own, variance, out=weights), out=weights)
            moment = np.multiply(weights, self.location, out=residual)
            mean = self._total(moment) / self._total(weights)
            np.take(mean, self.labels, axis=0, out=residual, mode="clip")
            np.subtract(self.location, residual, out=residual)
            weighted = np.multiply(weights, np.square(residual, out=residual), out=residual)
            return weighted.sum(axis=0), np.einsum("nk,nk->k", weights, weighted)

        near = zero = np.zeros(own.shape[1])
        total, slope = squares(zero)
        varies = (total - freedom > 0) & (freedom > 0)
        if not varies.any():
            return zero
        for _ in range(_STEPS):  # of Newton's method for 1 / squares, nearly linear in the variance
            step = total * (total - freedom) / (freedom * np.maximum(slope, TINY))
            before, near = near, np.maximum(near + step, 0.0)
            if not (np.abs(near - before) > _NEAR * near).any():
                break
            total, slope = squares(near)
        # At the squared range of the locations nothing is left to explain.
        range_ = np.ptp(self.location, axis=0)
        high = np.maximum(range_**2, own.min(axis=0)) * len(self.location)
        low = high * _SMALLEST
        for _ in range(_HALVINGS_OF_RANGE):
            middle = np.sqrt(low * high)
            above = middle < near
            if (np.abs(middle - near) < _CLOSE * near).any():  # where rounding decides
                above = squares(middle)[0] - freedom > 0
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.where(varies, high, zero)

    def least_squares(self) -> tuple[FloatArray, FloatArray]:
        """Estimates (G, k) of the global locations, and covariances ``inv(sum_j inv(V_j + T))``."""
        precision, moment = self._sums(self.between_silos)
        return self._located(precision, moment)

    def hierarchical(
        self, location: FloatArray | None = None, covariance: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """The same with a prior, and as uncertain as the estimate of ``T`` makes them.

        The posterior where silos agree has this ``location`` (G, k) and ``covariance``: by default,
        what the members have without a prior.
        """
        variance = self.between_silos
        precision, moment = self._sums(variance)
        if location is not None and covariance is not None:
            agreed = _inverse(_blocks(covariance))
            of_members, of_moment = self._sums(np.zeros_like(variance))
            # What the prior adds to the members.
            precision = precision + agreed - of_members
            moment = moment + agreed @ self._vectors(location) - of_moment
        location, found = self._located(precision, moment)
        more = variance * (self._ratio**2 - 1.0)
        return location, self._joined(_blocks(found) + self._due_to(more, variance, _blocks(found)))

    def widened(self, covariance: FloatArray | None = None) -> FloatArray:
        """The pooled data's ``covariance`` of the locations, plus what ``T`` adds.

        By default it is that of the members without a prior, ``inv(sum_j inv(V_j))``.
        """
        variance = self.between_silos
        precision, added = self._with_added(variance * self._ratio**2, np.zeros_like(variance))
        of_members = np.asarray(_inverse(precision), np.float64)
        pooled = of_members if covariance is None else _blocks(covariance)
        return self._joined(pooled + pooled @ added @ pooled)

    @property
    def _ratio(self) -> float:
        """Interval of the t distribution of ``T`` over that of a Normal."""
        freedom = float(max(len(self.location) - self.size, 1))
        return student_factor(freedom)

    def _due_to(
        self, added: FloatArray, variance: FloatArray, covariance: FloatArray
    ) -> FloatArray:
        """What variation ``added`` (k,) of the members adds to the covariance of their mean.

        The mean is ``covariance @ sum_j precision_j m_j``, with the precisions at ``variance``.
        """
        return np.asarray(covariance @ self._with_added(added, variance)[1] @ covariance)

    def _with_added(self, added: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sums of precisions at ``variance``, and of products with variation ``added`` between."""
        between = added.reshape(self.own.shape[1:3])[:, None]
        if self.scale is not None and not variance.any():
            precision, factor = _inverse(self.own), self.weights / self.scale
            once, twice = (self._total(f).reshape(-1, 1, 1, 1) for f in (factor, factor**2))
            return precision * once, _product(precision * between, precision) * twice

        def of(some: slice) -> FloatArray:
            precision = self._precision(variance, some)
            twice = _product(precision * between, precision)
            return np.concatenate([precision, twice], axis=-1)

        both = self._total_of(of)
        return both[..., : both.shape[-2]], both[..., both.shape[-2] :]

    def _sums(self, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``sum_j w_j inv(V_j + T)``, and the same times ``m_j``."""
        location = self._vectors(self.location)

        def of(some: slice) -> FloatArray:
            precision = self._precision(variance, some)
            return np.concatenate([precision, _product(precision, location[some])], axis=-1)

        both = self._total_of(of)
        return both[..., :-1], both[..., -1:]

    def _located(self, precision: FloatArray, moment: FloatArray) -> tuple[FloatArray, FloatArray]:
        location = np.linalg.solve(precision, moment).reshape(self.size, -1)
        return np.asarray(location), self._joined(_inverse(precision))

    def _vectors(self, location: FloatArray) -> FloatArray:
        return location.reshape(len(location), *self.own.shape[1:3], 1)

    def _precision(self, variance: FloatArray, some: slice) -> FloatArray:
        """``w_j inv(V_j + T)`` of some members."""
        n_blocks, side = self.own.shape[1:3]
        between = variance.reshape(n_blocks, side)[:, :, None] * np.eye(side)
        own = self.own[some] if self.scale is None else self.own[self.labels[some]]
        if self.scale is not None:
            own = own * self.scale[some, None, None, None]
        return _inverse(own + between) * self.weights[some, None, None, None]

    def _total_of(self, of: Callable[[slice], FloatArray]) -> FloatArray:
        """The total of what is computed for some members at a time."""
        every = blocks((len(self.labels), *self.own.shape[1:]))
        parts = (self._total(of(some), some) for some in every)
        return reduce(np.add, parts)

    def _total(self, values: FloatArray, some: slice = slice(None)) -> FloatArray:
        whole = len(values) == len(self.labels)
        matrix = self._by_label if whole else _adding(self.labels[some], self.size)
        sums = matrix @ values.reshape(len(values), -1)
        return np.asarray(sums.reshape(self.size, *values.shape[1:]))

    @cached_property
    def _by_label(self) -> csc_array:
        """Adds up the members of each global component, (G, n)."""
        return _adding(self.labels, self.size)

    def _joined(self, blocks: NDArray[np.floating[Any]]) -> FloatArray:
        """The inverse of `_blocks`, exactly symmetric."""
        if self.own.shape[1] == self.location.shape[1] > 1:
            return np.asarray(blocks[:, :, 0, 0], dtype=np.float64)
        return np.asarray(0.5 * (blocks + blocks.swapaxes(2, 3))[:, 0], dtype=np.float64)


def _adding(labels: IntArray, size: int) -> csc_array:
    """The matrix that adds up rows by label, (size, n)."""
    n = len(labels)
    return csc_array((np.ones(n), labels, np.arange(n + 1)), shape=(size, n))


def _blocks(covariance: FloatArray) -> FloatArray:
    """Blocks of the diagonal of matrices, ``(n, k, k)`` or diagonal ``(n, k)``."""
    return covariance[:, :, None, None] if covariance.ndim == 2 else covariance[:, None]


def _inverse(blocks: FloatArray) -> FloatArray:
    """Of each block; LAPACK takes long for many numbers."""
    return np.asarray(1.0 / blocks if blocks.shape[-1] == 1 else np.linalg.inv(blocks))


def _product(first: FloatArray, second: FloatArray) -> FloatArray:
    """Of each two blocks."""
    return np.asarray(first * second if first.shape[-1] == 1 else first @ second)


def within_silos(
    family: UncertainLocation, natural: FloatArray, labels: IntArray, size: int
) -> FloatArray:
    """Members (n, p) added up by label as if all had one location: how observations spread."""
    adding = _adding(labels, size)
    centre = adding @ family.location(natural) / np.bincount(labels, minlength=size)[:, None]
    moved = np.empty_like(natural)
    for some in blocks(natural.shape, CACHED_ENTRIES):
        moved[some] = family.relocated(natural[some], centre[labels[some]])
    return np.asarray(adding @ moved)
