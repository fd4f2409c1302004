"""Variational Bayes of a mixture of conjugate families, over a matrix of statistics.

With ``T`` (n, p) the statistics of rows, responsibilities are
``R = softmax(E[log weights] + T mean(eta)')`` and posteriors ``eta = prior + R' T``. Both are one
matrix product over blocks of rows that stay in cache. Equal columns of ``T``, such as those of
complete columns, are kept once.

The bound of a model of ``K`` components is comparable with that of fewer, because components that
are not in use are at their prior and add nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from scipy.special import betaln, digamma, gammaln, xlogy
from sklearn.cluster import KMeans

from klfusion._utils.arrays import FloatArray, IntArray

_BLOCK = 1 << 16  # numbers of a block of rows
_LEAST = 1.0  # observations; a component with fewer is dropped
_MOST_SEEDED = 10_000  # rows from which k-means begins


class Model(Protocol):
    """The family of one component's posterior, and its prior."""

    prior: FloatArray

    def mean(self, natural: FloatArray) -> FloatArray: ...

    def log_partition(self, natural: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class Design:
    """Statistics of all rows, each different column once."""

    columns: FloatArray  # (n, q)
    place: IntArray  # the column of each statistic, (p,)

    @classmethod
    def of(cls, statistics: Sequence[FloatArray]) -> Design:
        """Of ``p`` statistics (n,)."""
        kept: dict[bytes, int] = {}
        place: list[int] = []
        columns: list[FloatArray] = []
        for own in statistics:
            key = hashlib.blake2b(np.ascontiguousarray(own).tobytes(), digest_size=16).digest()
            if key not in kept:
                kept[key] = len(columns)
                columns.append(own)
            place.append(kept[key])
        return cls(np.column_stack(columns), np.array(place, dtype=np.intp))

    def __len__(self) -> int:
        return len(self.columns)

    def folded(self, mean: FloatArray) -> FloatArray:
        """Coefficients (q, K) of the columns from those of statistics (K, p)."""
        out = np.zeros((self.columns.shape[1], len(mean)))
        np.add.at(out, self.place, mean.T)
        return out

    def expected(
        self, log_weights: FloatArray, mean: FloatArray, out: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray, float]:
        """Counts (K,), sums of statistics (K, p), and the sum of log-normalisers.

        ``out`` (n, K) gets the responsibilities.
        """
        coefficients, n = self.folded(mean), len(log_weights)
        sums, counts, total = np.zeros((n, self.columns.shape[1])), np.zeros(n), 0.0
        step = max(256, _BLOCK // max(n, 1))
        for low in range(0, len(self), step):
            rows = self.columns[low : low + step]
            share = rows @ coefficients
            share += log_weights
            largest = share.max(axis=1, keepdims=True)
            share -= largest
            np.exp(share, out=share)
            norm = share.sum(axis=1, keepdims=True)
            share /= norm
            total += float(largest.sum() + np.log(norm).sum())
            sums += share.T @ rows
            counts += share.sum(axis=0)
            if out is not None:
                out[low : low + step] = share
        return counts, sums[:, self.place], total

    def sums(self, share: FloatArray) -> FloatArray:
        """Statistics (K, p) of responsibilities (n, K)."""
        return np.asarray((share.T @ self.columns)[:, self.place])


class Weights(Protocol):
    """The prior of the components' shares."""

    def log_expected(self, counts: FloatArray) -> FloatArray:
        """``E[log share]`` of each component."""

    def log_marginal(self, counts: FloatArray) -> float:
        """Log-probability of assignments with such counts."""


@dataclass(frozen=True)
class DirichletWeights:
    """A symmetric Dirichlet over ``most`` components; those not in use have no observations."""

    concentration: float  # of each
    most: int

    def log_expected(self, counts: FloatArray) -> FloatArray:
        """``E[log share]``."""
        total = self.most * self.concentration + counts.sum()
        return np.asarray(digamma(self.concentration + counts) - digamma(total))

    def log_marginal(self, counts: FloatArray) -> float:
        """``log B(concentration + counts) - log B(concentration)``."""
        all_, own = self.most * self.concentration, self.concentration
        of_counts = gammaln(own + counts).sum() - len(counts) * gammaln(own)
        return float(of_counts + gammaln(all_) - gammaln(all_ + counts.sum()))


@dataclass(frozen=True)
class ProcessWeights:
    """A Dirichlet process; components are sorted by size, the largest first."""

    concentration: float

    def _sticks(self, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        after = np.cumsum(counts[::-1])[::-1] - counts
        return 1.0 + counts, self.concentration + after

    def log_expected(self, counts: FloatArray) -> FloatArray:
        """``E[log share]``."""
        a, b = self._sticks(counts)
        total = digamma(a + b)
        rest = np.cumsum(digamma(b) - total)
        return np.asarray(digamma(a) - total + np.concatenate([[0.0], rest[:-1]]))

    def log_marginal(self, counts: FloatArray) -> float:
        """A Beta per stick."""
        a, b = self._sticks(counts)
        return float((betaln(a, b) - betaln(1.0, self.concentration)).sum())


@dataclass(frozen=True, eq=False)
class Problem:
    """What a fit is of."""

    model: Model
    design: Design
    weights: Weights
    base: float  # of the bound: densities that do not depend on components
    tol: float  # nats

    def collapsed(self, counts: FloatArray, sums: FloatArray) -> float:
        """The bound less the entropy of responsibilities, at the best posteriors."""
        prior = self.model.prior
        gain = self.model.log_partition(prior + sums) - self.model.log_partition(prior[None])
        return self.base + float(gain.sum()) + self.weights.log_marginal(counts)


@dataclass(frozen=True, eq=False)
class Fit:
    """Counts (K,) and statistics (K, p) of components, the largest first, and the bound."""

    counts: FloatArray
    sums: FloatArray
    trace: list[float] = field(default_factory=list)
    converged: bool = False

    @property
    def bound(self) -> float:
        """The last."""
        return self.trace[-1] if self.trace else -np.inf

    def some(self, kept: IntArray) -> Fit:
        """Some components."""
        return replace(self, counts=self.counts[kept], sums=self.sums[kept])

    def sorted(self) -> Fit:
        """The largest first, without those that have no observation."""
        order = np.argsort(-self.counts, kind="stable")
        kept = order[self.counts[order] >= _LEAST]
        return self.some(kept if len(kept) else order[:1])


def iterate(problem: Problem, fit: Fit, max_iter: int) -> Fit:
    """Variational iterations until the bound gains less than the tolerance."""
    model, trace, converged = problem.model, list(fit.trace[-1:]), False
    fit = fit.sorted()
    for _ in range(max_iter):
        natural = model.prior + fit.sums
        mean, log_weights = model.mean(natural), problem.weights.log_expected(fit.counts)
        counts, sums, total = problem.design.expected(log_weights, mean)
        # Bound: log-normalisers less the divergences from the priors.
        prior_gain = problem.collapsed(fit.counts, fit.sums) - problem.base
        expected = float((mean * fit.sums).sum() + log_weights @ fit.counts)
        bound = problem.base + total + prior_gain - expected
        fit = Fit(counts, sums).sorted()
        if trace and bound - trace[-1] < problem.tol:
            converged = True
            trace.append(bound)
            break
        trace.append(bound)
    return replace(fit, trace=trace, converged=converged)


def iterate_from(problem: Problem, fit: Fit, prior: FloatArray, max_iter: int) -> Fit:
    """Iterations with a prior (K, p) of each component; all stay, in their order.

    Shares of components are those of the ``fit`` given, as in a model of the pooled data.
    """
    trace: list[float] = []
    log_weights = problem.weights.log_expected(fit.counts)
    for _ in range(max_iter):
        mean = problem.model.mean(prior + fit.sums)
        counts, sums, total = problem.design.expected(log_weights, mean)
        trace.append(total)
        converged = len(trace) > 1 and abs(trace[-1] - trace[-2]) < problem.tol
        fit = Fit(counts, sums, trace, converged)
        if converged:
            break
    return fit


def merges(problem: Problem, fit: Fit, max_iter: int) -> Iterator[Fit]:
    """The fit, and the fits that merges of two components lead to, down to one component.

    One merge may lower the bound, and the next raise it above what it was.
    """
    yield fit
    while len(fit.counts) > 1:
        merged = _best_merge(problem, responsibilities(problem, fit))
        fit = iterate(problem, Fit(merged.sum(axis=0), problem.design.sums(merged)), max_iter)
        yield fit


def responsibilities(problem: Problem, fit: Fit) -> FloatArray:
    """Of components for rows, (n, K)."""
    out = np.empty((len(problem.design), len(fit.counts)))
    mean = problem.model.mean(problem.model.prior + fit.sums)
    problem.design.expected(problem.weights.log_expected(fit.counts), mean, out)
    return out


def _best_merge(problem: Problem, share: FloatArray) -> FloatArray:
    """Responsibilities after the merge that gains most, or loses least, at these ones."""
    model, prior = problem.model, problem.model.prior
    counts, sums = share.sum(axis=0), problem.design.sums(share)
    a, b = np.triu_indices(len(counts), k=1)
    alone = model.log_partition(prior + sums)
    gain = model.log_partition(prior + sums[a] + sums[b]) + model.log_partition(prior[None])
    gain -= alone[a] + alone[b]
    own = xlogy(share, share).sum(axis=0)
    before = problem.weights.log_marginal(counts)
    for pair, (i, j) in enumerate(zip(a, b, strict=True)):
        both = share[:, i] + share[:, j]
        gain[pair] += own[i] + own[j] - xlogy(both, both).sum()
        merged = np.delete(counts, j)
        merged[i] = counts[i] + counts[j]
        gain[pair] += problem.weights.log_marginal(np.sort(merged)[::-1]) - before
    best = int(gain.argmax())
    out = np.delete(share, b[best], axis=1)
    out[:, a[best]] = share[:, a[best]] + share[:, b[best]]
    return np.asarray(out)


def start(design: Design, features: FloatArray, size: int, rng: np.random.Generator) -> Fit:
    """Clusters of rows by k-means, over features (n, f)."""
    seed, some = int(rng.integers(2**31)), rng.permutation(len(features))[:_MOST_SEEDED]
    size = min(size, len(np.unique(features[some], axis=0)))
    labels = np.zeros(len(features), dtype=np.intp)
    if size > 1:
        found = KMeans(size, n_init=1, random_state=seed).fit(features[some])
        labels = found.predict(features)
    share = (labels[:, None] == np.arange(size)).astype(np.float64)
    return Fit(share.sum(axis=0), design.sums(share))
