"""Means and variances of Gaussian classes whose silos sent sums with noise of known size added.

Of rows ``u`` in units of the public bounds a silo sends per class the number of rows, their sum and
their squares, each plus Gaussian noise. Sums of silos add, and so do variances of their noise: a
fusion is made from the sums of all.

A variance is positive and has an upper bound; its root is flat beforehand. Given its estimate, with
the variance that sampling and noise leave, its posterior is found by quadrature. Covariances of
discriminant analyses are drawn as the sums of squares of regressions are, see `NoisyGram`.
Posteriors become Normal-Gamma or Normal-Wishart by the mean and variance of the logarithm of the
variance, or of the determinant of the covariance. ``kappa`` leaves means as uncertain as sampling
and noise do; that of a Normal-Wishart is one for all columns, so that some are less certain.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import polygamma, psi

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import InvalidPosteriorError
from klfusion.families import NormalGamma, NormalWishart
from klfusion.pooling.noisy_gram import NoisyGram
from klfusion.pooling.noisy_sums import PriorWarning, warn_few
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.kinds import CLASSES

KEY = "sums"  # in `info` of a structure, and the first part of the names of its arrays
_POINTS, _PASSES = 64, 4  # of the quadrature; each pass is within what the last left
_LEAST = float(np.finfo(np.float64).eps)  # of variances, in units of their bound
_FLAT = 4.0  # variance of the logarithm of a variance whose root is flat


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

    def posterior(self, prior: FloatArray) -> FloatArray:
        """Natural parameters (c, p), those of the prior (p,) included."""
        return prior + self._added(prior)[0]

    def pooled(self, prior: FloatArray, labels: IntArray, size: int) -> FloatArray:
        """`posterior` of the sums of components of one label; says what noise hides."""
        total = self.added(labels, size)
        found, width = total._added(prior)
        hidden = int((2.0 * width > _FLAT).sum())
        if hidden:
            warnings.warn(
                f"sums with noise say less of {hidden} of {width.size} variances of classes than "
                "their bounds, so that these are nearly unknown. Narrower bounds, more rows, more "
                "silos or a larger epsilon help",
                PriorWarning,
                stacklevel=2,
            )
        return prior + found

    def _added(self, prior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What the sums add to natural parameters, and how much logarithms of variances vary."""
        return self._diagonal(prior) if self.sums.ndim == 2 else self._full(prior)

    def _diagonal(self, prior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What the sums add to natural parameters, and variances (c, d) of log-variances."""
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

        centre, width = _log_moments(log_density, mean.shape, np.log(self.largest))
        shape = 0.5 * _freedom(width, 1)
        rate = np.exp(centre + psi(shape)) * self.half**2
        before = family.params(prior[None])
        variance = (rate + before["rate"]) / (shape + before["shape"])
        kappa = 1.0 / (1.0 / n + of_mean * self.half**2 / variance)
        return family.natural(self.centre + self.half * mean, kappa, shape, rate), width

    def _full(self, prior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What the sums add, and variances (c,) of log-determinants per column."""
        d = len(self.half)
        family, units = NormalWishart(d), np.outer(self.half, self.half)
        before = family.params(prior[None])
        parts, widths = [], []
        for sums, noise in zip(self.sums, self.noise, strict=True):
            rows, means, logs, average = self._drawn(sums, float(noise))
            width = float(logs.var())
            freedom = float(_freedom(np.array(width + 2.0 * d / rows), d))
            shift = np.mean(psi(0.5 * (freedom - np.arange(d)))) + np.log(2.0)
            scale = _exponential(average + shift * np.eye(d)) * units
            whole = (scale + before["scale_inv"][0]) / (freedom + before["dof"][0])
            by_noise = float(np.max(means.var(axis=0) * np.diag(units / whole)))
            parts.append((means.mean(axis=0), 1.0 / (1.0 / rows + by_noise), scale, freedom))
            widths.append(width / d)
        mean, *others = (np.array(own) for own in zip(*parts, strict=True))
        return family.natural(self.centre + self.half * mean, *others), np.array(widths)

    def _drawn(self, sums: FloatArray, noise: float) -> tuple[float, FloatArray, Any, Any]:
        """Of a class: rows, means (n, d), log-determinants (n,), mean logarithm of covariances."""
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
        logs = np.log(np.maximum(values, _LEAST))
        average = np.mean((vectors * logs[:, None, :]) @ vectors.swapaxes(1, 2), axis=0)
        return float(n.mean()), means, logs.sum(axis=1), average


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


def _log_moments(density: Any, shape: tuple[int, ...], top: float) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of logarithms, from the logarithm of their density."""
    low, high = np.full(shape, np.log(_LEAST)), np.full(shape, top)
    middle = (np.arange(_POINTS) + 0.5).reshape(-1, *[1] * len(shape)) / _POINTS
    for _ in range(_PASSES):
        step = (high - low) / _POINTS
        logs = low + (high - low) * middle
        weights = density(logs)
        weights = np.exp(weights - weights.max(axis=0))
        kept = weights > _LEAST
        low = np.where(kept, logs, np.inf).min(axis=0) - step
        high = np.where(kept, logs, -np.inf).max(axis=0) + step
    weights = weights / weights.sum(axis=0)
    mean = (weights * logs).sum(axis=0)
    return mean, (weights * (logs - mean) ** 2).sum(axis=0)


def _freedom(variance: FloatArray, d: int) -> FloatArray:
    """Degrees of freedom of a Wishart matrix whose log-determinant varies so much."""
    least = np.log(_LEAST)
    low, high = np.full(variance.shape, least), np.full(variance.shape, -least)
    while np.max(high - low) > 1e-9:
        middle = 0.5 * (low + high)
        each = 0.5 * (np.exp(middle)[..., None] + np.arange(d))
        more = polygamma(1, each).sum(axis=-1) > variance
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.asarray(np.exp(low) + d - 1.0)
