"""Moments of Gaussian components, and the shares of some that explain the moments of others.

Where the observations of a component are from several others, its first and second moments are
weighted averages of theirs, as far as the family has them: components with variances alone know
nothing of covariances. The shares are those by which a Gaussian of the averaged moments gives its
observations the largest likelihood. The steps are those of nonnegative factorisations (Fevotte,
Bertin and Durrieu, 2009).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families.gaussian import GaussianPosterior, diagonal_of
from klfusion.families.normal_gamma import DiagonalGaussianPosterior

STEPS = 24  # of shares: docs/experiments/density.md has half and twice as many


@dataclass(frozen=True, eq=False)
class Units:
    """In which moments are well-conditioned matrices, and which of them a family has."""

    centre: FloatArray  # (d,)
    scale: FloatArray  # (d,)
    n_variances: int | None  # of a family without covariances: one, or one per dimension

    @classmethod
    def of(cls, family: GaussianPosterior, natural: FloatArray, counts: FloatArray) -> Units:
        """Mean and standard deviation of a mixture with so many observations of each component."""
        mean, covariance = family.observation_moments(natural)
        weights = counts / counts.sum()
        centre = weights @ mean
        variance = weights @ ((mean - centre) ** 2 + diagonal_of(covariance))
        n_variances = None
        if isinstance(family, DiagonalGaussianPosterior):
            n_variances = family.n_precisions
            if n_variances == 1:  # which has no dimensions of its own
                variance = np.full_like(variance, variance.mean())
        return cls(centre, np.sqrt(np.where(variance > 0, variance, 1.0)), n_variances)

    def augmented(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        """First and second moments in one matrix, ``E[(1, x) (1, x)']``, (n, d + 1, d + 1).

        Covariances (n, d, d) may be variances (n, d).
        """
        if covariance.ndim == 2:
            covariance = covariance[:, :, None] * np.eye(len(self.scale))
        return _augmented(
            (mean - self.centre) / self.scale, covariance / np.outer(self.scale, self.scale)
        )

    def central(self, moments: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means and covariances; undoes `augmented`, and a factor of all moments."""
        mean, covariance = _central(moments)
        return self.centre + self.scale * mean, covariance * np.outer(self.scale, self.scale)

    def averaged(self, share: FloatArray, moments: FloatArray) -> FloatArray:
        """Moments of mixtures with weights (n, G), as far as the family has them."""
        flat = share @ moments.reshape(len(moments), -1)
        out = np.asarray(flat.reshape(len(share), *moments.shape[1:]))
        if self.n_variances is None:
            return out
        mean, covariance = _central(out)
        variance = diagonal_of(covariance)
        if self.n_variances == 1:
            variance = np.broadcast_to(variance.mean(axis=1, keepdims=True), variance.shape)
        return _augmented(mean, variance[:, :, None] * np.eye(len(self.scale)))

    def likelier(
        self, target: FloatArray, moments: FloatArray, share: FloatArray, steps: int = STEPS
    ) -> FloatArray:
        """Shares (n, G) that make each target (n, d + 1, d + 1) likelier."""
        flat = moments.reshape(len(moments), -1).T
        for _ in range(steps):
            inverse = np.linalg.inv(self.averaged(share, moments))
            rise = (inverse @ target @ inverse).reshape(len(target), len(flat)) @ flat
            share = share * (rise / (inverse.reshape(len(target), len(flat)) @ flat))
            share /= share.sum(axis=1, keepdims=True)
        return share


def _augmented(mean: FloatArray, covariance: FloatArray) -> FloatArray:
    n, dim = mean.shape
    out = np.ones((n, dim + 1, dim + 1))
    out[:, 0, 1:], out[:, 1:, 0] = mean, mean
    out[:, 1:, 1:] = covariance + mean[:, :, None] * mean[:, None, :]
    return out


def _central(moments: FloatArray) -> tuple[FloatArray, FloatArray]:
    moments = moments / moments[:, :1, :1]
    mean = moments[:, 0, 1:]
    return mean, moments[:, 1:, 1:] - mean[:, :, None] * mean[:, None, :]
