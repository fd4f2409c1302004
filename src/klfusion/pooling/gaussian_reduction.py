"""Reduction of Gaussian mixtures to the few components that predict best.

Observations behind local components are not known; their moments are. Expectation maximisation
takes draws in their place, new ones in each batch, and averages over batches (stochastic
expectation maximisation: Celeux and Diebolt, 1985).

What lies inside a local component need not be a Gaussian: it may hold two components that other
silos have apart. So a silo's draws come from the global mixture, with the silo's own weights. The
silo's responsibilities deal them to its components. Draws of a component are then moved, by an
affine map, to the mean and covariance that the silo sent. This alternates between two projections,
of the global mixture onto what was sent and back (Csiszar and Tusnady, 1984).

Silos divide the same region differently, so their maps together tell more of its shape than one
does. Draws are moved by another silo's map first, and by the own one to what was sent. A map is
averaged with what was left to it, so each of the two goes half of the way.

A silo cannot confirm itself. If it has share ``s`` of a global component, that share of its draws
is replaced by draws from its Gaussians. So components that no other silo has are Gaussian.

A component that others describe as well shapes nothing: see `klfusion.pooling.mixture_start`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from klfusion._utils.arrays import BLOCK_ENTRIES, TINY, BoolArray, FloatArray, IntArray
from klfusion.families.gaussian import GaussianPosterior
from klfusion.pooling.mixture_start import started
from klfusion.pooling.reduction import Atoms

# How far the fit gets within a second: docs/experiments/density.md.
_BATCHES = 3  # at least; averages of the later half remove the noise
_DRAWS = 10.0  # draws per parameter of the global mixture in a batch
_LEAST_DRAWS = 3_000  # in a batch
_LEAST_IN_ALL = 30_000  # small mixtures have more batches
CERTAIN = 1e6  # times the observations: then expected log-densities are those at the mean
_ROUNDING = 1e-9  # of a variance


def by_draws(
    atoms: Atoms,
    silo: IntArray,
    posteriors: FloatArray,
    rng: np.random.Generator,
    prior: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Natural parameters and shares (n, G) of Gaussian components, from draws.

    Components are sorted by ``silo`` (n,), 0..J-1; ``posteriors`` (n, p) are what silos sent. While
    draws are made, global components have another ``prior`` (p,), if one is given.
    """
    total, left_out = started(atoms)
    drawn_from = atoms if prior is None else replace(atoms, prior=prior)
    local = _Local(atoms, silo, posteriors, np.where(left_out, 0.0, atoms.counts))
    order = np.lexsort(total.T)  # results do not depend on the numbers of components
    total = total[order]
    weights = np.tile(_shares_of(local.family.effective_size(total)), (local.n_silos, 1))
    average, shares = np.zeros_like(total), np.zeros((len(atoms.counts), atoms.size))
    n_batches = max(_BATCHES, _LEAST_IN_ALL // int(local.n_draws.sum()))
    for batch in range(n_batches):
        model = _Global(drawn_from, total, weights)
        total, share = local.expectation(model, rng, others=batch > 0)
        weights = local.weights(share)
        if (late := batch - n_batches // 2) >= 0:
            average += (total - average) / (late + 1.0)
            shares += (share - shares) / (late + 1.0)
    back = np.argsort(order)
    return atoms.posterior(average[back]), shares[:, back]


def _shares_of(values: FloatArray) -> FloatArray:
    positive = np.maximum(values, TINY)
    return np.asarray(positive / positive.sum(axis=-1, keepdims=True))


class _Global:
    """The global mixture, given the statistics (G, p) and each silo's weights (J, G)."""

    def __init__(self, atoms: Atoms, total: FloatArray, weights: FloatArray) -> None:
        family = atoms.family
        assert isinstance(family, GaussianPosterior)
        natural = atoms.posterior(total)
        self.expected = family.mean(CERTAIN * natural)
        self.mean, covariance = family.observation_moments(natural)
        self.root = _root(covariance)
        self.weights = weights


@dataclass(frozen=True, eq=False)
class _Local:
    """The silos' components, as those that draws are dealt to."""

    atoms: Atoms
    silo: IntArray  # 0..J-1, in increasing order
    posteriors: FloatArray
    fitted: FloatArray  # observations to which global components are fitted, (n,)

    @property
    def family(self) -> GaussianPosterior:
        assert isinstance(self.atoms.family, GaussianPosterior)
        return self.atoms.family

    @cached_property
    def edges(self) -> IntArray:
        """Where the components of each silo begin, and the end."""
        return np.flatnonzero(np.diff(self.silo, prepend=-1, append=-1))

    @property
    def n_silos(self) -> int:
        return len(self.edges) - 1

    @cached_property
    def observations(self) -> FloatArray:
        """Of each silo, (J,)."""
        return np.add.reduceat(self.atoms.counts, self.edges[:-1])

    @cached_property
    def expected(self) -> FloatArray:
        """Expected log-densities, whose products with statistics are the silos' own."""
        return self.family.mean(self.posteriors)

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Means, and roots of covariances."""
        mean, covariance = self.family.observation_moments(self.atoms.statistics)
        return mean, _root(covariance)

    @cached_property
    def maps(self) -> tuple[FloatArray, FloatArray]:
        """Matrices and offsets that moved the draws of each component; `moved` updates them."""
        n, dim = self.moments[0].shape
        return np.tile(np.eye(dim), (n, 1, 1)), np.zeros((n, dim))

    @cached_property
    def n_draws(self) -> IntArray:
        """Of each silo in a batch, (J,)."""
        n_parameters = float(self.family.n_parameters(self.atoms.prior[None])[0]) * self.atoms.size
        n = max(_LEAST_DRAWS, _DRAWS * n_parameters)
        return np.asarray(n * _shares_of(self.observations), dtype=np.intp)

    @cached_property
    def fewest(self) -> int:
        """Draws of a component: twice as many as a covariance matrix takes."""
        return 2 * (self.family.dim + 1)

    def blocks(self) -> Iterator[slice]:
        """Silos whose draws are in memory together."""
        n = self.n_draws + self.fewest * np.diff(self.edges)
        block = np.cumsum(n * self.family.size) // BLOCK_ENTRIES
        for low, high in pairwise(np.flatnonzero(np.diff(block, prepend=-1, append=-1)).tolist()):
            yield slice(low, high)

    def weights(self, share: FloatArray) -> FloatArray:
        """Of global components in each silo, (J, G), given shares of its components."""
        mass = share * self.atoms.counts[:, None]
        return _shares_of(np.add.reduceat(mass, self.edges[:-1], axis=0))

    def expectation(
        self, model: _Global, rng: np.random.Generator, *, others: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Expected statistics (G, p), and shares (n, G) of the local components.

        Draws are moved by the maps of ``others`` first, where there are any yet.
        """
        total = np.zeros_like(model.expected)
        share = np.zeros((len(self.atoms.counts), len(total)))
        log_weights = np.log(np.maximum(model.weights, TINY)).T
        for silos in self.blocks():
            points, cell = self.dealt(model, silos, rng, others=others)
            reached = np.bincount(cell, minlength=len(share)) >= self.fewest
            points, cell = self.filled(points, cell, reached, silos, rng)
            first = np.flatnonzero(np.diff(cell, prepend=-1))
            drawn = self.family.of_points(self.moved(points, cell, first))
            own, n = cell[first], np.diff(first, append=len(cell))
            log_p = model.expected @ drawn.T
            log_p += np.repeat(log_weights[:, self.silo[own]], n, axis=1)
            of_draws = _normalised(log_p)
            share[own] = np.add.reduceat(of_draws, first, axis=1).T / n[:, None]
            of_draws *= np.repeat(self.fitted[own] / n, n)
            total += of_draws @ drawn
        return total, share

    def dealt(
        self, model: _Global, silos: slice, rng: np.random.Generator, *, others: bool
    ) -> tuple[FloatArray, IntArray]:
        """Draws from the global mixture (m, d), each with the local component it is dealt to."""
        n, size = self.n_draws[silos], len(model.mean)
        silo = np.repeat(np.arange(len(n)), n)
        within = np.arange(len(silo)) - np.repeat(np.cumsum(n) - n, n)
        quantile = (within + rng.random(len(n))[silo]) / n[silo]
        reached = np.cumsum(model.weights[silos], axis=1)
        # Silo j has the numbers from 2 j to 2 j + 1, and all are searched at once.
        reached = reached / reached[:, -1:] + 2.0 * np.arange(len(n))[:, None]
        which = np.searchsorted(reached.ravel(), quantile + 2.0 * silo) - size * silo
        which = np.minimum(which, size - 1)
        order = _ordered(which, size)
        points = np.empty((len(which), self.family.dim))
        points[order] = _drawn(model.mean, model.root, which[order], rng)
        own_silo = np.arange(silos.start, silos.stop)
        if others and self.n_silos > 1:
            other = (own_silo + rng.integers(1, self.n_silos)) % self.n_silos
            cell = self.cells(points, n, other, rng)
            order = _ordered(cell, len(self.silo))
            points[order] = _mapped(points[order], cell[order], *self.maps)
        cell = self.cells(points, n, own_silo, rng)
        mass = self.observations[:, None] * model.weights
        own = (mass / np.maximum(mass.sum(axis=0), TINY))[silos]
        alone = np.flatnonzero(rng.random(len(cell)) < own[silo, which])
        alone = alone[_ordered(cell[alone], len(self.silo))]
        points[alone] = _drawn(*self.moments, cell[alone], rng)
        return points, cell

    def cells(
        self, points: FloatArray, n: IntArray, silos: IntArray, rng: np.random.Generator
    ) -> IntArray:
        """The silos deal ``n`` of the draws each to their components."""
        statistics, uniform = self.family.of_points(points), rng.random(len(points))
        cell = np.empty(len(points), dtype=np.intp)
        ends = np.cumsum(n).tolist()
        for low, high, silo in zip([0, *ends], ends, silos.tolist(), strict=False):
            own = slice(*self.edges[silo : silo + 2])
            log_p = self.expected[own] @ statistics[low:high].T
            log_p += np.log(self.atoms.counts[own])[:, None]
            log_p -= log_p.max(axis=0)
            below = np.cumsum(np.exp(log_p, out=log_p), axis=0)
            cell[low:high] = own.start + (below[:-1] < uniform[low:high] * below[-1]).sum(axis=0)
        return cell

    def filled(
        self,
        points: FloatArray,
        cell: IntArray,
        reached: BoolArray,
        silos: slice,
        rng: np.random.Generator,
    ) -> tuple[FloatArray, IntArray]:
        """Draws sorted by component; those not reached have new ones, from their Gaussians."""
        own = np.arange(self.edges[silos.start], self.edges[silos.stop])
        few = np.repeat(own[~reached[own]], self.fewest)
        kept = np.flatnonzero(reached[cell])
        cells = np.concatenate([cell[kept], few])
        points = np.concatenate([points[kept], _drawn(*self.moments, few, rng)])
        order = _ordered(cells, len(self.silo))
        return points[order], cells[order]

    def moved(self, points: FloatArray, cell: IntArray, first: IntArray) -> FloatArray:
        """Draws, sorted by component, moved to the moments that were sent.

        Diagonal covariances have no correlations. Variances alone would fit two clusters far apart
        in many dimensions as well as one: each variance grows little.
        """
        own, n = cell[first], np.diff(first, append=len(cell))
        mean, root = (values[own] for values in self.moments)
        centre = np.add.reduceat(points, first, axis=0) / n[:, None]
        away = points - np.repeat(centre, n, axis=0)
        runs = [away[low:high] for low, high in pairwise([*first.tolist(), len(cell)])]
        square = np.stack([run.T @ run for run in runs]) / n[:, None, None]
        square *= 1.0 + _ROUNDING * np.eye(self.family.dim)
        whitening = np.linalg.inv(np.linalg.cholesky(square))
        change = root @ whitening if root.ndim == 3 else root[:, :, None] * whitening
        matrix, offset = self.maps
        matrix[own] += 0.5 * (change - matrix[own])
        offset[own] += 0.5 * (mean - np.einsum("nij,nj->ni", change, centre) - offset[own])
        return _mapped(away, np.repeat(np.arange(len(own)), n), change, mean)


def _ordered(values: IntArray, bound: int) -> IntArray:
    """What sorts integers below a bound; of small ones in time linear in their number."""
    small = values.astype(np.int16) if bound < 1 << 15 else values
    return np.argsort(small, kind="stable")


def _normalised(log_p: FloatArray) -> FloatArray:
    """Probabilities (G, m) that add up to one over rows, in the place of their logarithms."""
    log_p -= log_p.max(axis=0)
    np.exp(log_p, out=log_p)
    log_p /= log_p.sum(axis=0)
    return log_p


def _root(covariance: FloatArray) -> FloatArray:
    full = covariance.ndim == 3
    return np.asarray(np.linalg.cholesky(covariance) if full else np.sqrt(covariance))


def _drawn(
    mean: FloatArray, root: FloatArray, which: IntArray, rng: np.random.Generator
) -> FloatArray:
    """One draw from each of some Gaussians (m,), given by number in increasing order."""
    return _mapped(rng.standard_normal((len(which), mean.shape[1])), which, root, mean)


def _mapped(
    points: FloatArray, which: IntArray, matrix: FloatArray, offset: FloatArray
) -> FloatArray:
    """Points (m, d), each by one of some affine maps, given by number in increasing order."""
    out = np.empty_like(points)
    edges = np.flatnonzero(np.diff(which, prepend=-1, append=-1))
    for low, high in pairwise(edges.tolist()):
        own, some = which[low], points[low:high]
        turned = some @ matrix[own].T if matrix.ndim == 3 else some * matrix[own]
        np.add(turned, offset[own], out=out[low:high])
    return out
