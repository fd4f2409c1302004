"""Moments of Gaussian components, and the shares of some that explain the moments of others.

Where the observations of a component are from several others, its first and second moments are
weighted averages of theirs. The shares are those by which a Gaussian of the averaged moments gives
its observations the largest likelihood. The steps are those of nonnegative factorisations (Fevotte,
Bertin and Durrieu, 2009).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families.gaussian import diagonal_of


@dataclass(frozen=True, eq=False)
class Units:
    """In which moments are well-conditioned matrices."""

    centre: FloatArray  # (d,)
    scale: FloatArray  # (d,)

    @classmethod
    def of(cls, mean: FloatArray, covariance: FloatArray, counts: FloatArray) -> Units:
        """Mean and standard deviation of a mixture with so many observations of each component."""
        weights = counts / counts.sum()
        centre = weights @ mean
        spread = np.sqrt(weights @ ((mean - centre) ** 2 + diagonal_of(covariance)))
        return cls(centre, np.where(spread > 0, spread, 1.0))

    def augmented(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        """First and second moments in one matrix, ``E[(1, x) (1, x)']``, (n, d + 1, d + 1).

        Covariances (n, d, d) may be variances (n, d).
        """
        if covariance.ndim == 2:
            covariance = covariance[:, :, None] * np.eye(len(self.scale))
        mean = (mean - self.centre) / self.scale
        out = np.ones((len(mean), len(self.scale) + 1, len(self.scale) + 1))
        out[:, 0, 1:], out[:, 1:, 0] = mean, mean
        out[:, 1:, 1:] = covariance / np.outer(self.scale, self.scale)
        out[:, 1:, 1:] += mean[:, :, None] * mean[:, None, :]
        return out

    def central(self, moments: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means and covariances; undoes `augmented`, and a factor of all moments."""
        moments = moments / moments[:, :1, :1]
        mean = moments[:, 0, 1:]
        covariance = moments[:, 1:, 1:] - mean[:, :, None] * mean[:, None, :]
        return self.centre + self.scale * mean, covariance * np.outer(self.scale, self.scale)


def averaged(share: FloatArray, moments: FloatArray) -> FloatArray:
    """Weighted sums (n, d + 1, d + 1), with weights (n, G)."""
    flat = share @ moments.reshape(len(moments), -1)
    return np.asarray(flat.reshape(len(share), *moments.shape[1:]))


def likelier(target: FloatArray, moments: FloatArray, share: FloatArray, steps: int) -> FloatArray:
    """Shares (n, G) that make each target (n, d + 1, d + 1) likelier."""
    flat = moments.reshape(len(moments), -1).T
    for _ in range(steps):
        inverse = np.linalg.inv(averaged(share, moments))
        rise = (inverse @ target @ inverse).reshape(len(target), len(flat)) @ flat
        share = share * (rise / (inverse.reshape(len(target), len(flat)) @ flat))
        share /= share.sum(axis=1, keepdims=True)
    return share
