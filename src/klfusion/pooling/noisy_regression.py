"""Coefficients of one regression from sums with noise, given draws of the sums of squares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.pooling.noisy_gram import ENOUGH, MOST

_STEPS = 20  # to the centre of the variances that are proposed: it settles in fewer than ten
_REPEATS = 4  # variances and coefficients per draw of the sums; more if few have the weight
_FREEDOM = 5.0  # degrees of freedom of proposals: tails wider than those of the posterior
_REGION = 0.95  # share of the posterior


@dataclass(frozen=True, eq=False)
class NoisyRegression:
    """One regression from sums with noise, and the moments of its posterior.

    Given the true ``A`` and the variance of an observation, coefficients are Normal. ``A`` is drawn
    at one variance. Draws of variances and coefficients are weighted.
    """

    moment: FloatArray
    of_moment: FloatArray  # variances of its noise
    precision: FloatArray
    shift: FloatArray
    squares: float | None
    of_squares: float  # standard deviation of its noise

    def scale(self, gram: FloatArray, rows: float) -> tuple[float, float]:
        """Centre of the variances that are proposed, and the deviation of their logarithm."""
        if self.squares is None:
            return 1.0, 0.0
        variance = 1.0
        for _ in range(_STEPS):
            gain = np.linalg.solve(variance * gram + np.diag(self.of_moment), gram).T
            theta = np.linalg.solve(gain @ gram + self.precision, gain @ self.moment + self.shift)
            rest = float(self.squares - 2.0 * theta @ self.moment + theta @ gram @ theta)
            variance = min(max(rest, self.of_squares) / rows, 1.0)
        return variance, math.sqrt(2.0 / rows) + self.of_squares / (variance * rows)

    @cached_property
    def _prior(self) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of the coefficients beforehand."""
        covariance = _inverse(self.precision)
        return covariance @ self.shift, covariance

    def likelihood(self, grams: FloatArray, variance: Any) -> tuple[FloatArray, FloatArray]:
        """Logarithm (n,) of that of the moments given ``A``, up to 1, and its slope (n, q, q)."""
        mean, covariance = self._prior
        each = np.reshape(variance, (-1, 1, 1))
        half = covariance @ grams
        inverse = _inverse(grams @ half + each * grams + np.diag(self.of_moment))
        off = self.moment - grams @ mean
        solved = _times(inverse, off)
        _, size = np.linalg.slogdet(inverse)
        by_whole = 0.5 * (solved[:, :, None] * solved[:, None, :] - inverse)
        across = half @ by_whole + 0.5 * solved[:, :, None] * mean
        slope = across + across.swapaxes(1, 2) + each * by_whole
        return 0.5 * (size - (off * solved).sum(axis=1)), slope

    def averaged(
        self, grams: FloatArray, rows: FloatArray, centre: float, width: float
    ) -> tuple[FloatArray, FloatArray, float, float, float, float]:
        """Mean, covariance and radius of coefficients, mean variance of an observation, step.

        The last number is how many independent draws the weighted ones are worth.
        """
        rng, effective = np.random.default_rng(0), 0.0
        found: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        least, most = (1, 1) if self.squares is None else (_REPEATS, MOST)
        while len(found) < least or (effective < ENOUGH and len(found) < most):
            variance, log = np.ones(len(rows)), np.zeros(len(rows))
            if self.squares is not None:
                off = rng.standard_t(_FREEDOM, size=len(rows))
                logarithm = math.log(centre) + width * off
                log = 0.5 * (_FREEDOM + 1.0) * np.log1p(off**2 / _FREEDOM)
                log += 0.5 * logarithm  # the deviation is flat beforehand, up to its bound
                log[logarithm > 0.0] = -np.inf
                variance = np.exp(np.minimum(logarithm, 0.0))
                log += self.likelihood(grams, variance)[0] - self.likelihood(grams, centre)[0]
            theta, weight = self._drawn(grams, variance, rows, rng)
            found.append((theta, variance, log + weight))
            weights = _weights(np.concatenate([own for *_, own in found]))
            effective = 1.0 / float(weights @ weights)
        points, variances = (np.concatenate([own[k] for own in found]) for k in (0, 1))
        mean = weights @ points
        off = points - mean
        step = float(mean @ grams.mean(axis=0) @ mean / rows.mean())
        covariance = (off * weights[:, None]).T @ off
        distance = np.sqrt((off * np.linalg.solve(covariance, off.T).T).sum(axis=1))
        order = np.argsort(distance)
        radius = distance[order][np.searchsorted(np.cumsum(weights[order]), _REGION)]
        variance_of_one = float(weights @ variances)
        return mean, covariance, float(radius), variance_of_one, step, effective

    def _drawn(
        self, grams: FloatArray, variance: FloatArray, rows: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, Any]:
        """Coefficients (n, q), and logarithms (n,) of the likelihood of the outcome's squares."""
        whole = variance[:, None, None] * grams + np.diag(self.of_moment)
        gain = np.linalg.solve(whole, grams).swapaxes(1, 2)
        shape = gain @ grams + self.precision
        mean = np.linalg.solve(shape, (gain @ self.moment + self.shift)[:, :, None])
        root = np.linalg.cholesky(shape).swapaxes(1, 2)
        off = np.linalg.solve(root, rng.normal(size=mean.shape))
        theta = np.asarray((mean + off)[:, :, 0], dtype=np.float64)
        if self.squares is None:
            return theta, 0.0
        expected = _times(grams, theta)
        fitted = (expected * theta).sum(axis=1)
        across = 2.0 * variance[:, None] * expected
        slope = np.linalg.solve(whole, across[:, :, None])[:, :, 0]
        about = fitted + rows * variance + (slope * (self.moment - expected)).sum(axis=1)
        spread = 4.0 * variance * fitted + 2.0 * rows * variance**2 + self.of_squares**2
        spread = spread - (slope * across).sum(axis=1)
        return theta, -0.5 * (np.log(spread) + (self.squares - about) ** 2 / spread)


def _weights(logs: FloatArray) -> FloatArray:
    """That add up to one, of truncated importance sampling."""
    found = np.exp(logs - logs.max())
    found = np.minimum(found, found.mean() * math.sqrt(len(found)))
    return np.asarray(found / found.sum())


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])


def _inverse(matrices: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)
