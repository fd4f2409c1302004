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
from klfusion.errors import KLFusionError
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
        with np.errstate(over="ignore", invalid="ignore"):  # an error below
            squares = one_hot.T @ np.einsum("nd,nd->n", x, x)
            away = x - x.mean(axis=0)
            own = Statistics(one_hot.sum(axis=0), one_hot.T @ x, squares, away.T @ away)
            total = own if total is None else _merged(total, own)
    assert total is not None
    if not np.isfinite(total.scatter).all():
        raise KLFusionError("expected features whose squares are below 1e308, got larger ones")
    return total


def check_scales(total: Statistics) -> None:
    """Refuse columns whose scatter is below the rounding of the largest.

    Columns that vary by no more than the rounding of their mean are constant.
    """
    n, eps = total.counts.sum(), np.finfo(np.float64).eps
    sd = np.sqrt(np.diag(total.scatter) / n)
    varying = np.flatnonzero(sd > n * eps * np.abs(total.mean))
    if not len(varying) or sd[varying].min() > np.sqrt(eps) * sd.max():
        return
    least, most = varying[sd[varying].argmin()], sd.argmax()
    raise KLFusionError(
        f"expected columns of similar scale, got standard deviations {sd[least]:.3g} of column "
        f"{least} and {sd[most]:.3g} of column {most}: rounding hides the first; sites need to "
        "agree on other units"
    )


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
        if not (leverage < 1.0).all():
            raise KLFusionError(
                "expected rows that the head was fitted to, got one that it cannot have seen; "
                "of other rows say held_out=True"
            )
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

    largest = float(values[-1]) or 1.0  # constant features have no scale
    low, high = np.log(largest * np.finfo(np.float64).eps), np.log(largest * d)
    log_ridge = float(high)
    if c > 1 and values[-1] > 0.0:
        grid = np.linspace(low, high, 40)
        best = int(np.argmax([log_evidence(at) for at in grid]))
        near = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        found = minimize_scalar(lambda at: -log_evidence(at), bounds=near, method="bounded")
        log_ridge = float(found.x)
    evidence = log_evidence(log_ridge) if c > 1 else 0.0
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
