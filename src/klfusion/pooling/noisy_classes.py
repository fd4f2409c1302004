"""Means and variances of Gaussian classes whose silos sent sums with noise of known size added.

Of rows ``u`` in units of the public bounds a silo sends per class the number of rows, their sum and
their squares, each plus Gaussian noise. Sums of silos add, and so do variances of their noise: a
fusion is made from the sums of all.

A variance is positive and has an upper bound; its root is flat beforehand. Given its estimate, with
the variance that sampling and noise leave, its posterior is found by quadrature. Covariances of
discriminant analyses are drawn as the sums of squares of regressions are, see `NoisyGram`.
Posteriors become Normal-Gamma or Normal-Wishart with the same 95 % intervals of variances. Their
moments would not do: where noise hides a variance, its logarithm has a long lower tail and no
upper one, that of an inverse Gamma the reverse. A silo alone has the mean and the variance of each
variance instead: products add these as rows, and are made where sums cannot be added. ``kappa``
leaves means as uncertain as sampling and noise do. Degrees of freedom and ``kappa`` of a
Normal-Wishart are one for all columns, so that some are less certain.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammaincinv

from klfusion._utils.arrays import ROUNDING, FloatArray, IntArray
from klfusion._utils.intervals import INTERVAL
from klfusion.errors import InvalidPosteriorError
from klfusion.families import NormalGamma, NormalWishart
from klfusion.pooling.noisy_gram import NoisyGram
from klfusion.pooling.noisy_sums import PriorWarning, warn_few
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.kinds import CLASSES

KEY = "sums"  # in `info` of a structure, and the first part of the names of its arrays
_POINTS, _PASSES = 256, 4  # of the quadrature; each pass is within what the last left
_FLAT = 4.0  # variance of the logarithm of a variance whose root is flat

# From logarithms of variances and their weights (m, ...), and whether shapes are shared.
_Gammas = Callable[[FloatArray, FloatArray, bool], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, eq=False)
class NoisyClasses:
    """Sums with noise of components: those of naive Bayes (c, 1 + 2 d), or matrices (c, q, q).

    Parameters
    ----------
    sums : array of shape (c, 1 + 2 d) or (c, 1 + d, 1 + d)
        Numbers of rows, sums and squares, or the sums of products of ``(1, u)``.
    noise : array of shape (c,)
        Variances of the noise; off the diagonal of matrices it is half.
    centre, half : array of shape (d,)
        Rows are ``centre + half u``.
    largest : float
        The largest square of an entry of ``u``.
    """

    sums: FloatArray
    noise: FloatArray
    centre: FloatArray
    half: FloatArray
    largest: float

    @classmethod
    def of(cls, posterior: Posterior) -> NoisyClasses | None:
        """From what a silo sent; None if there is no noise in it."""
        structure = posterior.structure
        if structure is None or structure.kind != CLASSES or structure.info.get(KEY) is None:
            return None
        if posterior.prior is None:
            expected = "expected the prior that sums of classes with noise are added to"
            raise InvalidPosteriorError(f"silo {posterior.name!r}: {expected}, got none")
        own, arrays = structure.info[KEY], structure.arrays
        sums = arrays[f"{KEY}.classes"]
        noise = np.full(len(sums), float(own["deviation"]) ** 2)
        centre, half = (np.asarray(arrays[f"{KEY}.{key}"]) for key in ("centre", "half"))
        return cls(sums, noise, centre, half, float(own["largest"]))

    def arrays(self) -> dict[str, FloatArray]:
        """That stand in a file."""
        return {f"{KEY}.classes": self.sums, f"{KEY}.centre": self.centre, f"{KEY}.half": self.half}

    def like(self, other: NoisyClasses) -> bool:
        """Whether sums may be added: rows have the same units."""
        return (
            self.sums.shape[1:] == other.sums.shape[1:]
            and np.array_equal(self.centre, other.centre)
            and np.array_equal(self.half, other.half)
            and self.largest == other.largest
        )

    def added(self, labels: IntArray, size: int) -> NoisyClasses:
        """Those of components of one label."""
        sums, noise = np.zeros((size, *self.sums.shape[1:])), np.zeros(size)
        np.add.at(sums, labels, self.sums)
        np.add.at(noise, labels, self.noise)
        return replace(self, sums=sums, noise=noise)

    def nothing(self) -> FloatArray:
        """Natural parameters (p,) of a prior that is worth no row, in the units of the bounds.

        What is known beforehand, a flat root, is in the posterior: another prior would have units
        of its own.
        """
        d, weight = len(self.half), np.full(1, ROUNDING)
        centre, square = self.centre[None], ROUNDING * self.half[None] ** 2
        if self.sums.ndim == 2:
            found = NormalGamma(d).natural(centre, weight, weight, square)
        else:
            scale = square[:, :, None] * np.eye(d)
            found = NormalWishart(d).natural(centre, weight, scale, d - 1.0 + d * weight)
        return np.asarray(found[0])

    def posterior(self) -> FloatArray:
        """Natural parameters (c, p) of a silo alone, for products: they add as rows do."""
        return self._found(_worth)[0]

    def pooled(self, labels: IntArray, size: int) -> FloatArray:
        """`posterior` of the sums of components of one label; says what noise hides."""
        found, width = self.added(labels, size)._found(_intervals)
        hidden = int((2.0 * width > _FLAT).sum())
        if hidden:
            warnings.warn(
                f"sums with noise say less of {hidden} of {width.size} variances of classes than "
                "their bounds, so that these are nearly unknown. Narrower bounds, more rows, more "
                "silos or a larger epsilon help",
                PriorWarning,
                stacklevel=2,
            )
        return found

    def _found(self, gammas: _Gammas) -> tuple[FloatArray, FloatArray]:
        """Natural parameters, and how much logarithms of variances vary."""
        return self._diagonal(gammas) if self.sums.ndim == 2 else self._full(gammas)

    def _diagonal(self, gammas: _Gammas) -> tuple[FloatArray, FloatArray]:
        """Natural parameters (c, p), and variances (c, d) of log-variances."""
        d = len(self.half)
        family, deviation = NormalGamma(d), np.sqrt(self.noise)
        n = np.maximum(self.sums[:, 0], deviation)[:, None]
        mean = np.clip(self.sums[:, 1 : d + 1] / n, -1.0, 1.0)
        share = self.noise[:, None] / n**2
        of_mean = share * (1.0 + mean**2)  # variance by noise: to first order, as below
        # The square of a mean with noise is too large by as much.
        estimate = self.sums[:, d + 1 :] / n - mean**2 + of_mean

        def log_density(logs: FloatArray) -> FloatArray:
            variance = np.exp(logs)
            noise = share * (1.0 + 4.0 * mean**2 + (mean**2 - variance) ** 2)
            spread = noise + 2.0 * variance**2 / n
            off = (estimate - variance) ** 2 / spread
            return np.asarray(0.5 * (logs - off - np.log(spread)))  # the root is flat

        logs, weights = _quadrature(log_density, mean.shape, np.log(self.largest))
        shape, rate = gammas(logs, weights, False)
        rate = rate * self.half**2
        # Of means: by sampling rows of the mean variance, and by noise.
        spread = (weights * np.exp(logs)).sum(axis=0) / n + of_mean
        kappa = rate / (shape * spread * self.half**2)
        width = _variance(logs, weights)
        return family.natural(self.centre + self.half * mean, kappa, shape, rate), width

    def _full(self, gammas: _Gammas) -> tuple[FloatArray, FloatArray]:
        """Natural parameters (c, p), and variances (c,) of log-determinants per column."""
        d = len(self.half)
        units, parts, widths = np.outer(self.half, self.half), [], []
        for sums, noise in zip(self.sums, self.noise, strict=True):
            mean, spread, logs, average, width = self._drawn(sums, float(noise))
            shape, rate = gammas(np.sort(logs, axis=0), np.full_like(logs, 1.0 / len(logs)), True)
            inside = np.sqrt(2.0 * rate / np.diag(average))
            scale = average * np.outer(inside, inside) * units
            kappa = np.min(rate / (shape * spread))
            parts.append((mean, kappa, scale, 2.0 * shape[0] + d - 1.0))
            widths.append(width)
        each, *others = (np.array(own) for own in zip(*parts, strict=True))
        natural = NormalWishart(d).natural(self.centre + self.half * each, *others)
        return natural, np.array(widths)

    def _drawn(
        self, sums: FloatArray, noise: float
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]:
        """Of a class: means (d,), their variances (d,), and draws of log-variances (n, d).

        Of covariances the exponential of their mean logarithm, (d, d), and the variance of their
        log-determinants per column.
        """
        q = len(sums)
        largest, first = np.zeros((q, q)), np.arange(q) == 0
        largest[1:, 0] = self.largest
        noises = noise * np.where(np.eye(q, dtype=bool), 1.0, 0.5)
        gram = NoisyGram(sums, noises, np.ones((q, q), dtype=bool), first, largest)
        drawn, effective = gram.draws(gram.start(), _nothing)
        warn_few(effective, "classes")
        n = drawn[:, 0, 0]
        means = drawn[:, 0, 1:] / n[:, None]
        covariances = drawn[:, 1:, 1:] / n[:, None, None] - means[:, :, None] * means[:, None, :]
        values, vectors = np.linalg.eigh(covariances)
        values = np.maximum(values, ROUNDING)
        logs = np.log(values)
        average = np.mean((vectors * logs[:, None, :]) @ vectors.swapaxes(1, 2), axis=0)
        variances = (np.square(vectors) * values[:, None, :]).sum(axis=2)
        # Those of the rows vary about those of people as means of squares of Normals do.
        sampled = np.random.default_rng(0).chisquare(n[:, None], size=variances.shape)
        logarithms = np.log(variances * n[:, None] / sampled)
        width = float(logs.sum(axis=1).var()) / len(self.half)
        spread = variances.mean(axis=0) / n.mean() + means.var(axis=0)
        return means.mean(axis=0), spread, logarithms, _exponential(average), width


def classes_of(posteriors: Sequence[Posterior], rows: IntArray) -> NoisyClasses | None:
    """Sums of components, given the row (n,) of each among those of all silos.

    None unless all silos sent sums in the same units, and no two of their components are one.
    """
    found = [own for own in map(NoisyClasses.of, posteriors) if own is not None]
    if len(found) < len(posteriors) or not all(own.like(found[0]) for own in found):
        return None
    sums, noise = (np.concatenate([getattr(o, key) for o in found]) for key in ("sums", "noise"))
    if len(rows) < len(sums):
        return None
    return replace(found[0], sums=sums[rows], noise=noise[rows])


def _exponential(matrix: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.exp(values)) @ vectors.T)


def _nothing(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.zeros(len(matrices)), np.zeros_like(matrices)


def _quadrature(density: Any, shape: tuple[int, ...], top: float) -> tuple[FloatArray, FloatArray]:
    """Points and their weights, (m, ...), of logarithms from the logarithm of their density."""
    low, high = np.full(shape, np.log(ROUNDING)), np.full(shape, top)
    middle = (np.arange(_POINTS) + 0.5).reshape(-1, *[1] * len(shape)) / _POINTS
    for _ in range(_PASSES):
        step = (high - low) / _POINTS
        logs = low + (high - low) * middle
        weights = density(logs)
        weights = np.exp(weights - weights.max(axis=0))
        kept = weights > ROUNDING
        low = np.where(kept, logs, np.inf).min(axis=0) - step
        high = np.where(kept, logs, -np.inf).max(axis=0) + step
    return logs, weights / weights.sum(axis=0)


def _variance(logs: FloatArray, weights: FloatArray) -> FloatArray:
    return np.asarray((weights * (logs - (weights * logs).sum(axis=0)) ** 2).sum(axis=0))


def _quantile(logs: FloatArray, weights: FloatArray, share: float) -> FloatArray:
    """Of points (m, ...) in order."""
    below = np.cumsum(weights, axis=0) - 0.5 * weights
    after = np.clip((below <= share).sum(axis=0, keepdims=True), 1, len(logs) - 1)
    low, high = (np.take_along_axis(logs, at, 0)[0] for at in (after - 1, after))
    start, end = (np.take_along_axis(below, at, 0)[0] for at in (after - 1, after))
    return np.asarray(low + (high - low) * (share - start) / (end - start))


def _worth(logs: FloatArray, weights: FloatArray, shared: bool) -> tuple[FloatArray, FloatArray]:
    """Shape and rate of variances known by their mean and variance, as those of rows are."""
    variances = np.exp(logs)
    mean = (weights * variances).sum(axis=0)
    shape = mean**2 / (weights * (variances - mean) ** 2).sum(axis=0)
    shape = np.full_like(shape, shape.mean()) if shared else shape
    return shape, shape * mean


def _intervals(
    logs: FloatArray, weights: FloatArray, shared: bool
) -> tuple[FloatArray, FloatArray]:
    """Shape and rate of variances with the same 95 % interval; of one length if shared."""
    low, high = (_quantile(logs, weights, share) for share in INTERVAL)
    if shared:
        middle, half = 0.5 * (low + high), 0.5 * np.mean(high - low)
        low, high = middle - half, middle + half
    return _gammas(low, high)


def _gammas(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Shape and rate of Gammas whose inverses have these logarithms of quantiles."""

    def quantiles(logarithm: FloatArray) -> tuple[FloatArray, FloatArray]:
        least, most = (np.log(gammaincinv(np.exp(logarithm), share)) for share in INTERVAL)
        return least, most

    end = -np.log(ROUNDING)  # no interval is longer, which a shape of 1 / end has, too
    narrow, wide = np.full(np.shape(low), end), np.full(np.shape(low), -np.log(end))
    while np.max(narrow - wide) > 1e-9:
        middle = 0.5 * (narrow + wide)
        least, most = quantiles(middle)
        more = most - least > high - low
        wide, narrow = np.where(more, middle, wide), np.where(more, narrow, middle)
    return np.exp(narrow), np.exp(low + quantiles(narrow)[1])
