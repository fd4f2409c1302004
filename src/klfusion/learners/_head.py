"""Bayesian linear regression of one-hot labels, from sums over rows.

With rows ``x`` of features and one-hot labels ``y``, ``y ~ N(share + W' (x - centre), noise)``; the
prior is matrix Normal, ``W ~ MN(0, I / ridge, noise)``, ``noise`` is inverse Wishart. The posterior
is a function of class counts, class sums and the scatter of the features, which add up over sites.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.learners._highest import highest

# Standard deviation of a standard logistic variable.
LOGISTIC_SD = np.pi / np.sqrt(3.0)
# Share by which a step of Newton's method may change logits. At 1/2 one step gains on both sets of
# `python -m experiments head_choices`; at 1 and more it loses on one of them, at 1/4 it is slow.
_LARGEST_CHANGE = 0.5


class Statistics(NamedTuple):
    """Sums over the rows of a site, by class."""

    counts: FloatArray  # (c,)
    sums: FloatArray  # (c, d)
    squares: FloatArray  # (c,), of squared norms
    scatter: FloatArray  # (d, d), of outer products of differences from the mean of all rows

    @property
    def mean(self) -> FloatArray:
        """Of the features of all rows."""
        return np.asarray(self.sums.sum(axis=0) / self.counts.sum())


def statistics(blocks: Iterable[tuple[FloatArray, IntArray]], n_classes: int) -> Statistics:
    """Sums over blocks of features (n, d) and class numbers (n,)."""
    total: Statistics | None = None
    for x, row in blocks:
        one_hot = np.eye(n_classes)[row]
        squares = one_hot.T @ np.einsum("nd,nd->n", x, x)
        away = x - x.mean(axis=0)
        own = Statistics(one_hot.sum(axis=0), one_hot.T @ x, squares, away.T @ away)
        total = own if total is None else _merged(total, own)
    assert total is not None
    return total


def _merged(one: Statistics, other: Statistics) -> Statistics:
    """Statistics of the rows of both (Chan, Golub and LeVeque 1983)."""
    n, m = one.counts.sum(), other.counts.sum()
    away = np.sqrt(n * m / (n + m)) * (other.mean - one.mean)
    total = Statistics(*map(np.add, one, other))
    return total._replace(scatter=total.scatter + np.outer(away, away))


@dataclass(frozen=True, eq=False)
class LinearPosterior:
    """The posterior of ``W``: its mean, covariance ``root root'`` of each column, and the noise."""

    centre: FloatArray  # (d,), mean features
    shares: FloatArray  # (c,), of the classes
    weights: FloatArray  # (d, c)
    root: FloatArray  # (d, d)
    noise: FloatArray  # (c, c)
    ridge: float
    log_evidence: float  # up to a constant
    n_rows: float

    def scores(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Expected one-hot label (n, c) of each row, and its leverage (n,)."""
        centred = x - self.centre
        leverage = 1.0 / self.n_rows + np.square(centred @ self.root).sum(axis=1)
        return self.shares + centred @ self.weights, leverage

    def left_out(self, x: FloatArray, row: IntArray) -> tuple[FloatArray, FloatArray]:
        """The same of rows of the data, as the posterior without the row has it."""
        scores, leverage = self.scores(x)
        own = np.eye(len(self.shares))[row]
        rest = 1.0 - leverage[:, None]
        return (scores - leverage[:, None] * own) / rest, leverage / rest[:, 0]

    def probabilities(self, scores: FloatArray, leverage: FloatArray) -> FloatArray:
        """Probabilities (n, c) that a class has the highest label of a new row.

        The error of its labels has ``1 + leverage`` times the covariance of the noise. The prior is
        worth one row, of any class.
        """
        found = highest(scores / np.sqrt(1.0 + leverage)[:, None], self.noise)
        return (self.n_rows * found + 1.0 / len(self.shares)) / (self.n_rows + 1.0)


def linear_posterior(total: Statistics) -> LinearPosterior:
    """The posterior, with the ridge of the highest evidence."""
    n, c, d = float(total.counts.sum()), len(total.counts), len(total.scatter)
    centre, shares = total.mean, total.counts / n
    values, vectors = eigh(total.scatter)
    values = np.maximum(values, 0.0)
    cross = vectors.T @ (total.sums - total.counts[:, None] * centre).T
    # Labels sum to one, so one class follows from the others. The prior is worth one row.
    labels = np.diag(total.counts) - n * np.outer(shares, shares) + (np.eye(c) - 1.0 / c) / c

    def residual(ridge: float) -> FloatArray:
        return np.asarray(labels - (cross.T / (values + ridge)) @ cross)

    def log_evidence(log_ridge: float) -> float:
        ridge = float(np.exp(log_ridge))
        _, of_noise = np.linalg.slogdet(residual(ridge)[:-1, :-1])
        of_weights = np.log1p(values / ridge).sum()
        return float(-0.5 * (n * of_noise + (c - 1) * of_weights))

    largest = max(float(values[-1]), np.finfo(np.float64).tiny)
    low, high = np.log(largest) + np.log(np.finfo(np.float64).eps), np.log(largest * d)
    if c > 1:
        grid = np.linspace(low, high, 40)
        best = int(np.argmax([log_evidence(at) for at in grid]))
        near = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        found = minimize_scalar(lambda at: -log_evidence(at), bounds=near, method="bounded")
        log_ridge, evidence = float(found.x), -float(found.fun)
    else:
        log_ridge, evidence = high, 0.0
    ridge = float(np.exp(log_ridge))
    weights = vectors @ (cross / (values + ridge)[:, None])
    root = vectors / np.sqrt(values + ridge)
    noise = residual(ridge) / n
    return LinearPosterior(centre, shares, weights, root, noise, ridge, evidence, n)


class Softmax(NamedTuple):
    """Multinomial logistic regression of labels on standardised scores; the last row is ``1``."""

    coefficients: FloatArray  # (c + 1, c)

    @classmethod
    def of_noise(cls, posterior: LinearPosterior) -> Softmax:
        """The start: all differences of two scores have the error of independent, equal noise."""
        slope = LOGISTIC_SD / np.sqrt(2.0 * np.diag(posterior.noise).mean())
        return cls(slope * np.vstack([np.eye(len(posterior.shares)), posterior.shares]))

    def probabilities(self, design: FloatArray) -> FloatArray:
        """Of rows of `design`."""
        return np.asarray(softmax(design @ self.coefficients, axis=1))

    def towards(self, coefficients: FloatArray, posterior: LinearPosterior) -> Softmax:
        """A step to others (c + 1, c), shortened so that the expansion that gave them holds.

        Of rows with the scores of one class alone, no difference of two logits changes by more than
        a share of the largest.
        """
        pure = design(posterior, np.eye(len(posterior.shares)), np.zeros(len(posterior.shares)))
        step = coefficients - self.coefficients
        now, change = (np.ptp(pure @ c, axis=1).max() for c in (self.coefficients, step))
        length = min(1.0, _LARGEST_CHANGE * now / max(change, np.finfo(np.float64).tiny))
        return Softmax(self.coefficients + length * step)

    def expansion(self, design: FloatArray, row: IntArray) -> tuple[FloatArray, FloatArray]:
        """Gradient (c + 1, c) and information of the log-likelihood, of coefficients by class."""
        p, (k, c) = self.probabilities(design), self.coefficients.shape
        gradient = design.T @ (np.eye(c)[row] - p)
        information = np.empty((c, k, c, k))
        for a in range(c):
            for b in range(a, c):
                weight = p[:, a] * ((a == b) - p[:, b])
                information[a, :, b] = (design * weight[:, None]).T @ design
                information[b, :, a] = information[a, :, b].T
        return gradient, information.reshape(c * k, c * k)


def design(posterior: LinearPosterior, scores: FloatArray, leverage: FloatArray) -> FloatArray:
    """Scores less the classes' shares in units of their uncertainty, and a column of ones."""
    scaled = (scores - posterior.shares) / np.sqrt(1.0 + leverage)[:, None]
    return np.hstack([scaled, np.ones((len(scores), 1))])
