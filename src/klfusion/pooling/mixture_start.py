"""The mixture with which the reduction of Gaussian mixtures begins.

Matched components are a start. But a local component may describe two clusters as one. Then a
cluster may be in no component of its own, and a global component may be a mixture of others.

Each local component is described by those shares of the global ones that explain its moments, see
`moments`.

The local component that is described worst becomes a global one. The one goes for which the others
stand best. This is repeated while the likelihood rises. Then shares and moments are fitted in turn
by expectation maximisation: with ``(1, x)`` as one vector, a local component is like a sum of
independent parts, one of each global component.

A component is left out that the others describe as well as it describes itself, up to noise: its
log-likelihood differs by at most the number of its parameters (Akaike, 1974).
"""

from dataclasses import dataclass, replace

import numpy as np

from klfusion._utils.arrays import TINY, BoolArray, FloatArray, IntArray, blocks
from klfusion.families.gaussian import GaussianPosterior
from klfusion.pooling.moments import STEPS, Units
from klfusion.pooling.reduction import Atoms

# How far the search gets in a few hundredths of a second: docs/experiments/density.md.
_STEPS_INSTEAD = 10  # of shares that stand for a component
_OPENED = 0.1  # of shares, given to all components, so that each may grow
_LEAST_SHARE = 1e-2  # a smaller one changes no choice
_FALL = 1e-2  # of the bound that a log-likelihood is compared with: it has settled


def started(atoms: Atoms) -> tuple[FloatArray, BoolArray]:
    """Statistics (G, p) of global components, and which local ones are left out, (n,)."""
    search = _Search(atoms)
    now: _Start | None = search.first()
    for _ in range(atoms.size + 1):
        best = now
        if best is None or (now := search.better(best)) is None:
            break
    assert best is not None
    left_out = best.left_out | search.failed(best)
    return search.in_turn(best, np.where(left_out, 0.0, atoms.counts)), left_out


@dataclass(frozen=True, eq=False)
class _Start:
    """Labels of local components, and how global ones describe them."""

    labels: IntArray  # (n,), -1 for none
    moments: FloatArray  # of the global components, (G, d + 1, d + 1)
    share: FloatArray  # (n, G)
    loss: FloatArray  # minus the log-likelihood of each local component, (n,)
    left_out: BoolArray  # (n,)


class _Search:
    """Local components, and what is done with starts."""

    def __init__(self, atoms: Atoms) -> None:
        assert isinstance(atoms.family, GaussianPosterior)
        self.atoms, self.family = atoms, atoms.family
        mean, covariance = self.family.observation_moments(atoms.statistics)
        self.units = Units.of(self.family, atoms.statistics, atoms.counts)
        self.target = self.units.augmented(mean, covariance)
        self.every = np.arange(len(self.target))
        own = self.moments(atoms.statistics * atoms.counts[:, None])
        self.least = self.loss(self.every, own)  # of components that describe themselves
        self.n_parameters = float(self.family.n_parameters(atoms.prior[None])[0])

    def moments(self, total: FloatArray) -> FloatArray:
        """Of components with these statistics (n, p), and the prior."""
        return self.units.augmented(*self.family.observation_moments(self.atoms.posterior(total)))

    def of_labels(self, labels: IntArray, size: int) -> FloatArray:
        """Moments of the global components, from their members."""
        members = (labels[:, None] == np.arange(size)) * self.atoms.counts[:, None]
        return self.moments(members.T @ self.atoms.statistics)

    def loss(self, rows: IntArray, mixed: FloatArray) -> FloatArray:
        """Minus the log-likelihood of some, by Gaussians of the ``mixed`` moments."""
        fit = np.einsum("nij,nij->n", np.linalg.inv(mixed), self.target[rows])
        return np.asarray(0.5 * self.atoms.counts[rows] * (fit + np.linalg.slogdet(mixed)[1]))

    def first(self) -> _Start:
        """The matched components."""
        labels, size = self.atoms.start, self.atoms.size
        moments = self.of_labels(labels, size)
        share = _opened(self.atoms.hard + (labels < 0)[:, None] / size, 0.5)
        share = self.units.likelier(self.target, moments, share)
        loss = self.loss(self.every, self.units.averaged(share, moments))
        return _Start(labels, moments, share, loss, np.zeros(len(labels), dtype=bool))

    def failed(self, now: _Start) -> BoolArray:
        """What the matching left out, and the components describe, (n,)."""
        rows = np.flatnonzero((self.atoms.start < 0) & (now.labels < 0))
        share, loss, fell = now.share[rows], now.loss[rows], len(rows) > 0
        while fell:  # steps are short where components differ little in variance
            share = self.units.likelier(self.target[rows], now.moments, share)
            before, loss = loss, self.loss(rows, self.units.averaged(share, now.moments))
            fell = bool((before - loss > _FALL * self.n_parameters).any())
        out = np.zeros(len(self.every), dtype=bool)
        out[rows] = loss - self.least[rows] <= self.n_parameters
        return out

    def better(self, now: _Start) -> _Start | None:
        """With the one that is described worst; None if that does not raise the likelihood."""
        n = np.bincount(now.labels + 1, minlength=len(now.moments) + 1)
        several = np.flatnonzero((now.labels < 0) | (n[now.labels + 1] > 1))
        if len(several) == 0:
            return None
        more = self.with_another(now, int(several[np.argmax((now.loss - self.least)[several])]))
        cost, instead = self.costs(more)
        gone = int(np.argmin(cost[:-1]))
        found = self.without(more, gone, instead[gone])
        if found.loss.sum() >= now.loss.sum():
            return None
        return self.with_left_out(found, more, np.flatnonzero(more.labels == gone))

    def with_another(self, now: _Start, new: int) -> _Start:
        """A local component becomes a global one, the last."""
        labels, last = now.labels.copy(), len(now.moments)
        labels[new] = last
        share = np.hstack([now.share, np.zeros((len(labels), 1))])
        share[new] *= 0.5
        share[new, last] = 0.5
        moments = self.of_labels(labels, last + 1)
        mixed = self.units.averaged(share, moments)
        inverse = np.linalg.inv(mixed)
        slope = inverse @ self.target @ inverse - inverse
        # A share of the new component makes those likelier whose slope is positive.
        changed = np.einsum("nij,nij->n", slope, moments[-1] - mixed) > 0
        if now.labels[new] >= 0:
            changed |= share[:, now.labels[new]] > _LEAST_SHARE
        left_out = now.left_out & (labels < 0)
        return self.settled(labels, moments, share, left_out, changed)

    def costs(self, now: _Start) -> tuple[FloatArray, FloatArray]:
        """What is lost without each component, (G,), if shares (G, G) of others stand for it."""
        size = len(now.moments)
        instead = (1.0 - np.eye(size)) / (size - 1.0)
        instead = self.units.likelier(now.moments, now.moments, instead, _STEPS_INSTEAD)
        change = self.units.averaged(instead, now.moments) - now.moments
        row, gone = np.nonzero(now.share > _LEAST_SHARE)
        mixed, lost = self.units.averaged(now.share, now.moments), np.empty(len(row))
        for own in blocks((len(row), *change.shape[1:])):
            some, g = row[own], gone[own]
            without = mixed[some] + change[g] * now.share[some, g][:, None, None]
            lost[own] = self.loss(some, without) - now.loss[some]
        return np.asarray(np.bincount(gone, lost, size), np.float64), instead

    def without(self, now: _Start, gone: int, instead: FloatArray) -> _Start:
        """Shares (G,) of others stand for a component; the last takes its place."""
        labels, last = now.labels.copy(), len(now.moments) - 1
        labels[labels == gone] = -1
        labels[labels == last] = gone
        changed = now.share[:, gone] > _LEAST_SHARE
        share, moments = now.share + now.share[:, [gone]] * instead, now.moments.copy()
        share[:, gone], moments[gone] = share[:, last], moments[last]
        return self.settled(labels, moments[:last], share[:, :last], now.left_out, changed)

    def with_left_out(self, now: _Start, before: _Start, members: IntArray) -> _Start:
        """Members of a component that went are left out if several others explain them."""
        if now.loss.sum() - before.loss.sum() > self.n_parameters:
            return now
        size = len(now.moments)
        row, one = np.repeat(members, size), np.tile(now.moments, (len(members), 1, 1))
        by_one = self.loss(row, one).reshape(-1, size).min(axis=1)
        left_out = now.left_out.copy()
        left_out[members] = by_one - now.loss[members] > self.n_parameters
        return replace(now, left_out=left_out)

    def settled(
        self,
        labels: IntArray,
        moments: FloatArray,
        share: FloatArray,
        left_out: BoolArray,
        changed: BoolArray,
    ) -> _Start:
        """Shares of what ``changed``, (n,), are fitted anew where that is likelier."""
        share = share / share.sum(axis=1, keepdims=True)
        loss, rows = (
            self.loss(self.every, self.units.averaged(share, moments)),
            np.flatnonzero(changed),
        )
        found = self.units.likelier(self.target[rows], moments, _opened(share[rows], _OPENED))
        new = self.loss(rows, self.units.averaged(found, moments))
        better = new < loss[rows]
        share[rows[better]], loss[rows[better]] = found[better], new[better]
        return _Start(labels, moments, share, loss, left_out)

    def in_turn(self, now: _Start, counts: FloatArray) -> FloatArray:
        """Statistics (G, p) of global components, fitted to so many observations (n,) of each."""
        if self.units.n_variances is not None:
            # A mixture's covariance is not in the family: it would be taken out of components.
            hard = (now.labels[:, None] == np.arange(len(now.moments))) * counts[:, None]
            return np.asarray(hard.T @ self.atoms.statistics)
        share, moments = now.share, now.moments
        for _ in range(STEPS):
            share = self.units.likelier(self.target, moments, share, 1)
            inverse = np.linalg.inv(self.units.averaged(share, moments))
            slope = inverse @ self.target @ inverse - inverse
            mass = share * counts[:, None]
            n = np.maximum(mass.sum(axis=0), TINY)
            change = self.units.averaged((mass * share).T, slope) / n[:, None, None]
            moments = moments + moments @ change @ moments
            total = self.family.observed(*self.units.central(moments), n)
            moments = self.moments(total)
        return total


def _opened(share: FloatArray, others: float) -> FloatArray:
    """Shares of which some goes to all components."""
    return np.asarray((1.0 - others) * share + others / share.shape[1])
