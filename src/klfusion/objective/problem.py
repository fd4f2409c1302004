"""`FusionProblem`: the components of all silos in one array, and their costs and averages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from klfusion._utils.arrays import CACHED_ENTRIES, BoolArray, FloatArray, IntArray, in_blocks
from klfusion._utils.running import require_memory, share
from klfusion.families import (
    CERTAIN,
    Centred,
    DiscreteOutcomes,
    Family,
    SiloVariation,
    Tempered,
    require,
)
from klfusion.families.capabilities import Varying

_LEAST_COUNT = 1e-3  # observations, so that a component without data has a weight
_BLOCK_ENTRIES = 1 << 17  # numbers in a block of trial sums: 1 MB stays in the cache
ARRAYS = ("natural", "silo", "weights", "counts", "given", "prior", "tied")
_WIDE = 256  # natural parameters from which pairs are compared row by row


@dataclass(frozen=True, eq=False)
class FusionProblem:
    """Components ``i = 1..n`` of all silos.

    Parameters
    ----------
    family : Family
    natural : array of shape (n, p)
    silo : int array of shape (n,)
        Silo of each component; the components of a silo are consecutive.
    weights : array of shape (n,)
        Weight of each component's divergence in the objective.
    counts : array of shape (n,), optional
        Number of observations behind each component.
    given : array of shape (n, p), optional
        Natural parameters before they were made comparable.
    prior : array of shape (n, p), optional
        Natural parameters of the prior of each component's silo.
    tied : bool array of shape (n,), optional
        Whether the components of its silo share their covariance.
    """

    family: Family
    natural: FloatArray
    silo: IntArray
    weights: FloatArray
    counts: FloatArray | None = None
    given: FloatArray | None = None
    prior: FloatArray | None = None
    tied: BoolArray | None = None

    @cached_property
    def log_partition(self) -> FloatArray:
        """``A`` of each component, (n,)."""
        return in_blocks(self.family.log_partition, self.natural)

    @cached_property
    def mean(self) -> FloatArray:
        """Mean parameters of each component, (n, p)."""
        return in_blocks(self.family.mean, self.natural)

    @cached_property
    def n_parameters(self) -> FloatArray:
        """Number of parameters that each component's observations estimate, (n,)."""
        return in_blocks(self.family.n_parameters, self.as_given)

    @cached_property
    def pair_increases(self) -> FloatArray:
        """Jensen gap of each pair of components, (n, n); the diagonal is infinite."""
        weights, sums = self.weights, self.natural * self.weights[:, None]
        weighted = weights * self.log_partition
        out = np.full((self.n, self.n), np.inf)

        def compare(rows: slice) -> None:
            # Rows 0, n - 1, 1, n - 2, ...: any run of these has its share of a triangle.
            for k in range(rows.start, rows.stop):
                i = k // 2 if k % 2 == 0 else self.n - 1 - k // 2
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
            share(compare, self.n, self.n**2 * self.family.size // 2)
        return np.asarray(np.minimum(out, out.T))

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
        n, out = len(mass), np.empty(len(mass))
        if n * sums.shape[1] < _BLOCK_ENTRIES:  # one block, which threads would not share
            return self.family.log_partition_of_average(sums.take(others, axis=0) + sums[one], mass)
        share(partial(self._beside, sums, one, others, mass, out=out), n, n * sums.shape[1])
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
        step = max(1, _BLOCK_ENTRIES // sums.shape[1])
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

    @cached_property
    def largest_silo(self) -> int:
        """Number of components of the largest silo, the least possible global size."""
        return max(int(rows.stop - rows.start) for rows in self.silos)

    def costs(self, centres: FloatArray) -> FloatArray:
        """Weighted ``KL(centre g || component i)``, an (n, G) matrix."""
        what = f"a {self.n:,} x {len(centres):,} matrix of divergences"
        require_memory(2 * 8 * self.n * len(centres), what, "ask for fewer global components")
        kl = self.family.kl_from(centres, self.natural, self.log_partition)
        if (self.weights != 1.0).any():
            kl *= self.weights[:, None]
        return kl

    def sums(
        self, plan: FloatArray | IntArray, n_components: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Sums of a plan, labels ``(n,)`` or weights ``(n, G)``, in each global component.

        A label of -1 is none. Weights (G,), weighted natural parameters (G, p) and log-partitions
        (G,).
        """
        matrix = self._plan_matrix(plan, n_components)
        mass, natural = np.asarray(matrix @ np.ones(self.n)), np.asarray(matrix @ self.natural)
        return mass, natural, np.asarray(matrix @ self.log_partition)

    def totals(
        self, plan: FloatArray | IntArray, n_components: int
    ) -> tuple[FloatArray, FloatArray]:
        """Weights (G,) and weighted natural parameters (G, p) of a plan."""
        matrix = self._plan_matrix(plan, n_components)
        return np.asarray(matrix @ np.ones(self.n)), np.asarray(matrix @ self.natural)

    def average(self, plan: FloatArray | IntArray, n_components: int) -> FloatArray:
        """KL barycenters ``(G, p)`` of a plan without empty components."""
        mass, natural = self.totals(plan, n_components)
        return natural / mass[:, None]

    def divergence(self, plan: FloatArray | IntArray, n_components: int) -> float:
        """Least total divergence of a plan, attained at its barycenters (from ``A`` alone)."""
        mass, natural, log_partition = self.sums(plan, n_components)
        gaps = log_partition - mass * self.family.log_partition(natural / mass[:, None])
        return float(np.maximum(gaps, 0.0).sum())

    def _plan_matrix(self, plan: FloatArray | IntArray, n_components: int) -> Any:
        """Transposed plan times the components' weights, (G, n)."""
        if plan.ndim == 2:
            return np.ascontiguousarray((plan * self.weights[:, None]).T)
        rows = np.asarray(plan, dtype=np.intp)
        some = rows >= 0
        edges = np.concatenate([[0], np.cumsum(some)])  # one entry per column, at most
        return csc_array((self.weights[some], rows[some], edges), shape=(n_components, self.n))

    def some(self, rows: IntArray | slice) -> FusionProblem:
        """Some of the components, with their optional fields and log-partitions."""
        return self._made(lambda arrays: arrays[0][rows])

    def joined(self, *others: FusionProblem) -> FusionProblem:
        """Concatenate problems; optional fields are kept only if all have them."""
        return self._made(np.concatenate, *others)

    def _made(self, make: Callable[[list[Any]], Any], *others: FusionProblem) -> FusionProblem:
        """A problem with arrays made of those of this and others."""
        every, arrays = (self, *others), dict[str, Any]()
        for name in ARRAYS:
            own = [getattr(one, name) for one in every]
            arrays[name] = None if any(array is None for array in own) else make(own)
        made = replace(self, **arrays)
        if "log_partition" in vars(self):
            vars(made)["log_partition"] = make([one.log_partition for one in every])
        return made

    def ignoring(self, which: BoolArray | None) -> FusionProblem:
        """Some natural parameters (p,) of all components set to one prior, so that all agree."""
        if which is None or self.prior is None:
            return self
        one = self.prior[0]
        natural, prior = (np.where(which, one, own) for own in (self.natural, self.prior))
        return replace(self, natural=natural, prior=prior)

    def with_parts(self, parts: IntArray, whole: IntArray) -> FusionProblem:
        """The observations of components ``parts`` (k,) added to those of ``whole`` (k,)."""
        made = self
        for part, one in zip(parts, whole, strict=True):
            natural, counts = made.natural.copy(), made.counts
            natural[one] = made.pooled(np.array([one]), np.array([part]))[0]
            if counts is not None:
                counts = counts.copy()
                counts[one] += counts[part]
            made = replace(made, natural=natural, counts=counts, given=None)
        return made

    def pooled(self, first: IntArray, second: IntArray) -> FloatArray:
        """Components of one silo taken as one, (k, p): observations add up, the prior does not.

        Without a prior, the average stands for them.
        """
        both = self.natural[first] + self.natural[second]
        return np.asarray(0.5 * both if self.prior is None else both - self.prior[first])

    def centred(self, *like: FloatArray) -> FusionProblem:
        """The same divergences, at an origin where rounding loses the fewest digits.

        The origin is the centre of other natural parameters, if given, so that a batch has the
        origin of the whole.
        """
        if not isinstance(self.family, Centred):
            return self
        return replace(self, natural=self.family.centred(self.natural, *like))

    def comparable(self, *like: FloatArray) -> FusionProblem:
        """The same components, tempered to one effective sample size (that of others, if given)."""
        natural = self.natural
        if isinstance(self.family, Tempered):
            natural = self.family.comparable(natural, *like)
        return replace(self, natural=natural, given=self.natural)

    def with_variation(self, variation: FloatArray | None) -> FusionProblem:
        """Components as estimates of global ones under a variation between silos (None: none)."""
        if variation is None:
            return self
        if self.natural.size <= CACHED_ENTRIES:  # another variation may come
            return replace(self, natural=self.varying.varied(variation))
        varied = require(self.family, SiloVariation, "variation between silos").varied
        return replace(self, natural=in_blocks(lambda own: varied(own, variation), self.natural))

    @cached_property
    def varying(self) -> Varying:
        """Components whose variation between silos depends on a matching."""
        return require(self.family, SiloVariation, "variation between silos").varying(self.natural)

    def coarser(self, most: int) -> FusionProblem:
        """Outcomes beyond about ``most`` merged into one, which makes no Jensen gap larger."""
        if not isinstance(self.family, DiscreteOutcomes):
            return self
        family, natural = self.family.coarser(self.natural, self.weights, most)
        same = family == self.family
        return self if same else FusionProblem(family, natural, self.silo, self.weights)

    def per_observation(self) -> FusionProblem | None:
        """The problem with divergences in nats per observation; None if no counts are known.

        Every posterior is made nearly certain, so that divergences are between predictive
        distributions. Its weight is its share of all observations.
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
        """Expected divergence per observation between samples of one component, (n,)."""
        assert self._observations is not None  # else `per_observation` is None
        return 0.5 * self.n_parameters / float(self._observations.sum())

    @property
    def as_given(self) -> FloatArray:
        """Natural parameters before they were made comparable, (n, p)."""
        return self.natural if self.given is None else self.given

    @property
    def _observations(self) -> FloatArray | None:
        """Observations behind each component, (n,): its count, else its effective sample size."""
        if self.counts is not None:
            return np.maximum(self.counts, _LEAST_COUNT)
        if isinstance(self.family, Tempered):
            return self.family.effective_size(self.as_given)
        return None
