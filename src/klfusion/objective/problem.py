"""`FusionProblem`: all silos' components in one array, and the costs the algorithms ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from klfusion._utils import memory, threads
from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.families import (
    CERTAIN,
    Centred,
    Dirichlet,
    DiscreteOutcomes,
    Family,
    SiloVariation,
    Tempered,
    require,
)
from klfusion.posteriors.structure import hmm

_LEAST_COUNT = 1e-3  # so that a component without observations has a barycenter
_BLOCK_ENTRIES = 1 << 15  # numbers in a block of trial sums, which stay in cache
_WIDE_BLOCK_ENTRIES = 1 << 17  # the same, where one of each pair is one and the same
_WIDE = 256  # natural parameters: pairs are then worked on row by row


@dataclass(frozen=True, eq=False)
class FusionProblem:
    """Components ``i = 1..n`` of all silos.

    Parameters
    ----------
    family : Family
    natural : array of shape (n, p)
    silo : int array of shape (n,)
        Which silo each component comes from; components of a silo are neighbours.
    weights : array of shape (n,)
        Weight of each component's divergence in the objective.
    counts : array of shape (n,), optional
        How many observations stand behind each component.
    given : array of shape (n, p), optional
        Natural parameters as they were before being made comparable.
    kind : str, optional
        The kind of the silos' models, such as ``"hmm"``; None if they have no structure.
    """

    family: Family
    natural: FloatArray
    silo: IntArray
    weights: FloatArray
    counts: FloatArray | None = None
    given: FloatArray | None = None
    kind: str | None = None

    @cached_property
    def log_partition(self) -> FloatArray:
        """``A`` of each component, (n,)."""
        return self.family.log_partition(self.natural)

    @cached_property
    def pair_increases(self) -> FloatArray:
        """Jensen gap of each pair of components, (n, n); the diagonal is infinite."""
        weights, sums = self.weights, self.natural * self.weights[:, None]
        weighted = weights * self.log_partition
        out = np.full((self.n, self.n), np.inf)

        def compare(rows: slice) -> None:
            for i in _long_and_short(self.n)[rows]:
                later = slice(i + 1, None)
                total = weights[i] + weights[later]
                after = np.empty(len(total))
                self._beside(sums, i, later, total, slice(0, len(total)), after)
                out[i, later] = np.maximum(weighted[i] + weighted[later] - total * after, 0.0)

        if self.family.size < _WIDE:
            a, b = np.triu_indices(self.n, k=1)
            total = weights[a] + weights[b]
            after = self.log_partition_of_averages(sums, a, b, total)
            out[a, b] = np.maximum(weighted[a] + weighted[b] - total * after, 0.0)
        else:
            threads.share(compare, self.n, self.n**2 * self.family.size // 2)
        return np.asarray(np.minimum(out, out.T))

    @property
    def knows_pairs(self) -> bool:
        """Whether `pair_increases` has been computed."""
        return "pair_increases" in vars(self)

    def log_partition_of_averages(
        self, sums: FloatArray, a: IntArray, b: IntArray, mass: FloatArray
    ) -> FloatArray:
        """``A((sums[a[k]] + sums[b[k]]) / mass[k])`` of many pairs, (m,)."""
        out = np.empty(len(mass))
        step = max(1, _BLOCK_ENTRIES // sums.shape[1])
        room = np.empty((2, min(step, len(mass)), sums.shape[1]))
        for low in range(0, len(mass), step):
            some = slice(low, low + step)
            trial, other = room[:, : len(mass[some])]
            np.take(sums, a[some], axis=0, out=trial, mode="clip")  # else it would be buffered
            trial += np.take(sums, b[some], axis=0, out=other, mode="clip")
            out[some] = self.family.log_partition_of_average(trial, mass[some])
        return out

    def log_partition_beside(
        self, sums: FloatArray, one: int, others: IntArray, mass: FloatArray
    ) -> FloatArray:
        """``A((sums[one] + sums[others[k]]) / mass[k])``, (m,)."""
        out = np.empty(len(mass))
        threads.share(
            lambda some: self._beside(sums, one, others, mass, some, out),
            len(mass),
            len(mass) * sums.shape[1],
        )
        return out

    def _beside(
        self,
        sums: FloatArray,
        one: int,
        others: IntArray | slice,
        mass: FloatArray,
        which: slice,
        out: FloatArray,
    ) -> None:
        """Write the above for ``which`` of the others."""
        step = max(1, _WIDE_BLOCK_ENTRIES // sums.shape[1])
        room = np.empty((min(step, which.stop - which.start), sums.shape[1]))
        for low in range(which.start, which.stop, step):
            some = slice(low, min(low + step, which.stop))
            trial = room[: some.stop - low]
            if isinstance(others, slice):
                np.add(sums[others][some], sums[one], out=trial)
            else:
                np.take(sums, others[some], axis=0, out=trial, mode="clip")
                trial += sums[one]
            out[some] = self.family.log_partition_of_average(trial, mass[some])

    @cached_property
    def silos(self) -> list[slice]:
        """The rows of each silo."""
        edges = np.concatenate([[0], np.flatnonzero(np.diff(self.silo)) + 1, [len(self.silo)]])
        return [slice(int(a), int(b)) for a, b in pairwise(edges)]

    @property
    def n(self) -> int:
        """Number of local components."""
        return len(self.natural)

    @property
    def largest_silo(self) -> int:
        """Number of components of the largest silo, the least possible global size."""
        return max(int(rows.stop - rows.start) for rows in self.silos)

    def costs(self, centres: FloatArray) -> FloatArray:
        """Weighted ``KL(centre g || component i)``, an (n, G) matrix."""
        memory.require(
            2 * 8 * self.n * len(centres),
            f"a {self.n:,} x {len(centres):,} matrix of divergences",
            "ask for fewer global components",
        )
        kl = self.family.kl_from(centres, self.natural, self.log_partition)
        if (self.weights != 1.0).any():
            kl *= self.weights[:, None]
        return kl

    def sums(
        self, plan: FloatArray | IntArray, n_components: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What a plan, labels ``(n,)`` or weights ``(n, G)``, adds up in each global component.

        Returns
        -------
        mass : array of shape (G,)
        natural : array of shape (G, p)
            Weighted sum of natural parameters.
        log_partition : array of shape (G,)
            Weighted sum of log-partitions.
        """
        matrix = self._plan_matrix(plan, n_components)
        mass = np.asarray(matrix @ np.ones(self.n))
        return mass, np.asarray(matrix @ self.natural), np.asarray(matrix @ self.log_partition)

    def average(self, plan: FloatArray | IntArray, n_components: int) -> FloatArray:
        """KL barycenters ``(G, p)`` of a plan in which none is left empty."""
        matrix = self._plan_matrix(plan, n_components)
        return np.asarray((matrix @ self.natural) / (matrix @ np.ones(self.n))[:, None])

    def divergence(self, plan: FloatArray | IntArray, n_components: int) -> float:
        """Least total divergence of a plan, attained at its barycenters (from ``A`` alone)."""
        mass, natural, log_partition = self.sums(plan, n_components)
        gaps = log_partition - mass * self.family.log_partition(natural / mass[:, None])
        return float(np.maximum(gaps, 0.0).sum())

    def _plan_matrix(self, plan: FloatArray | IntArray, n_components: int) -> Any:
        """Transposed plan times the components' weights, (G, n)."""
        if plan.ndim == 2:
            return np.ascontiguousarray((plan * self.weights[:, None]).T)
        edges = np.arange(self.n + 1)  # one entry a column
        rows = np.asarray(plan, dtype=np.intp)
        return csc_array((self.weights, rows, edges), shape=(n_components, self.n))

    def some(self, rows: IntArray | slice) -> FusionProblem:
        """Some of the components; what is known of them stays known."""
        return self._of(lambda own, _: own[rows], self)

    def joined(self, other: FusionProblem) -> FusionProblem:
        """The components of both, of which neither knows what the other does not."""
        return self._of(lambda own, others: np.concatenate([own, others]), other)

    def _of(self, make: Callable[[Any, Any], Any], other: FusionProblem) -> FusionProblem:
        """A problem whose arrays are made of those that this and another have."""
        arrays = {
            name: make(getattr(self, name), getattr(other, name))
            for name in ("natural", "silo", "weights", "counts", "given")
            if getattr(self, name) is not None and getattr(other, name) is not None
        }
        made = replace(self, **{"counts": None, "given": None, **arrays})
        if "log_partition" in vars(self):
            vars(made)["log_partition"] = make(self.log_partition, other.log_partition)
        return made

    def centred(self, *like: FloatArray) -> FusionProblem:
        """The same divergences, computed where they lose fewest digits.

        Given the natural parameters of others, amid those: a part is centred as the whole is.
        """
        if not isinstance(self.family, Centred):
            return self
        return replace(self, natural=self.family.centred(self.natural, *like))

    def comparable(self, *like: FloatArray) -> FusionProblem:
        """The same components made comparable across silos of different size (as others are)."""
        natural = self.natural
        if isinstance(self.family, Tempered):
            natural = self.family.comparable(natural, *like)
        return replace(self, natural=natural, given=self.natural)

    def varied(self, variation: FloatArray | None) -> FusionProblem:
        """What components say of global ones if silos vary (None: if they do not)."""
        if variation is None:
            return self
        family = require(self.family, SiloVariation, "variation between silos")
        return replace(self, natural=family.varied(self.natural, variation))

    def coarser(self, most: int) -> FusionProblem:
        """Over fewer outcomes, where there are more than about ``most``: no gap is larger there."""
        if not isinstance(self.family, DiscreteOutcomes):
            return self
        family, natural = self.family.coarser(self.natural, self.weights, most)
        if family == self.family:
            return self
        return FusionProblem(family, natural, self.silo, self.weights)

    def per_observation(self) -> FusionProblem | None:
        """The problem whose divergences are nats an observation; None if there are none to count.

        Every posterior is made as good as certain, so that divergences are between what they
        predict, and weighs what it has of all observations.
        """
        family, natural, counts = self.family, self.as_given, self._observations
        if not isinstance(family, Tempered) or counts is None:
            return None
        if isinstance(family, DiscreteOutcomes):
            natural = family.without_prior(natural)
        weights = self.weights * counts
        weights /= CERTAIN * weights.sum()
        certain = family.tempered(natural, CERTAIN / family.effective_size(natural))
        return FusionProblem(family, certain, self.silo, weights)

    def chance_per_observation(self) -> FloatArray:
        """What of such divergences chance explains where components are the same, (n,)."""
        assert self._observations is not None  # or there is no such problem
        return 0.5 * self.family.n_parameters(self.as_given) / float(self._observations.sum())

    @property
    def merged_by_loss(self) -> bool:
        """Whether components are topics, whose plans of one size differ in predictive loss.

        The states of a hidden Markov model are not: an observation belongs to one of them.
        """
        return isinstance(self.family, Dirichlet) and self.kind != hmm.KIND

    @property
    def as_given(self) -> FloatArray:
        """Natural parameters before they were made comparable, (n, p)."""
        return self.natural if self.given is None else self.given

    @property
    def _observations(self) -> FloatArray | None:
        """How many stand behind each component, as was told or as it is certain, (n,)."""
        if self.counts is not None:
            return np.maximum(self.counts, _LEAST_COUNT)
        if isinstance(self.family, Tempered):
            return self.family.effective_size(self.as_given)
        return None


def _long_and_short(n: int) -> list[int]:
    """``0, n - 1, 1, n - 2, ...``: rows of a triangle, any stretch of which has its share."""
    return [k // 2 if k % 2 == 0 else n - 1 - k // 2 for k in range(n)]
