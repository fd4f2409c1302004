"""Sums of squares and products, given these sums with Gaussian noise of known size.

Noise may be larger than the sums, so that what was sent is no sum of squares. The true matrix ``A``
is: it has no negative eigenvalue, and the mean square of a column is within the public bounds. It
is written ``A = U U'`` with ``U`` upper triangular. Beforehand rows of ``U`` are those of a Wishart
matrix of ``f`` degrees of freedom and of one scale for all columns. A mean square varies about the
common one by a share of ``sqrt(2 / f)``, a correlation about zero by ``sqrt(1 / f)``. No constant
is set for either. The root of the common mean square is flat up to its bound, numbers of rows are
flat, and ``sqrt(1 / f)`` is flat up to where all matrices without negative eigenvalues are alike.
Draws are made by Hamiltonian Monte Carlo, many chains at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import gammaln

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray

# Chains, between these; of matrices above 24 by 24, as with local intercepts of many silos, as many
# as take the time of 64 such.
_FEWEST, _MOST, _WIDE = 16, 64, 24
_ROUNDS = 2  # each starts at the mean of the last
_SETTLE, _KEEP = 20, 20  # moves of a chain per round: before draws are kept, and with draws
_STEPS = 6  # of a move: at the size that is found, about one standard deviation far
_ACCEPTED = 0.8  # share of moves; the size of steps is set so, near the best for this method
_DEGREES = 16  # numbers of degrees of freedom that are compared
_FAR = 100.0  # deviations from the start: such a move has failed
_TINY = np.finfo(np.float64).tiny

# Of matrices (n, q, q): logarithms (n,) of the likelihood, and symmetric slopes (n, q, q).
Likelihood = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, eq=False)
class NoisyGram:
    """A matrix of sums with noise, and draws of the true one.

    Parameters
    ----------
    sent : array of shape (q, q)
        The sums with noise.
    noise : array of shape (q, q)
        Variances of the noise.
    seen : array of shape (q, q)
        Entries that are not zero for certain. Those last are zero with most.
    constant : array of shape (q,)
        Columns that are intercepts: their sums of squares are numbers of rows.
    largest : array of shape (q, q)
        Times the diagonal, the largest diagonal of other columns.
    """

    sent: FloatArray
    noise: FloatArray
    seen: BoolArray
    constant: BoolArray
    largest: FloatArray

    def draws(self, centre: FloatArray, likelihood: Likelihood) -> FloatArray:
        """Of the true matrix, (n, q, q), given what else was sent; ``centre`` is the start."""
        for number in range(_ROUNDS):
            found = self._round(centre, likelihood, np.random.default_rng(number))
            centre = found.mean(axis=0)  # of matrices within bounds, so within bounds
        return found

    def start(self) -> FloatArray:
        """A matrix within the bounds: products are halved until no eigenvalue is negative."""
        deviation, own = np.sqrt(np.diag(self.noise)), np.diag(self.sent)
        rows = np.where(self.constant, np.maximum(own, deviation), 0.0)
        top = self.largest @ rows
        least = np.minimum(deviation, 0.25 * top)
        diagonal = np.where(self.constant, rows, np.clip(own, least, (1.0 - 1e-9) * top))
        products = np.where(self.seen, self.sent, 0.0)
        np.fill_diagonal(products, 0.0)
        while np.linalg.eigvalsh(products + np.diag(diagonal))[0] <= 1e-12 * diagonal.max():
            products = 0.5 * products
        return np.asarray(products + np.diag(diagonal))

    def _round(
        self, centre: FloatArray, likelihood: Likelihood, rng: np.random.Generator
    ) -> FloatArray:
        """Draws by chains that start at a matrix."""
        place: Any = np.nonzero(np.triu(self.seen))
        root: FloatArray = _root(centre[::-1, ::-1])[::-1, ::-1]
        # In these units the noise and the prior have a curvature of one, at the start.
        unit = np.linalg.inv(_root(self._curvature(root, place)))
        chains = int(np.clip(_MOST * (_WIDE / len(root)) ** 2, _FEWEST, _MOST))
        position = np.zeros((chains, len(place[0])))
        degrees, constants = self._degrees()
        size, kept = 0.2, []

        def at(position: FloatArray, f: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
            failed = np.logical_not(np.abs(position).max(axis=1) < _FAR)  # not a number included
            u = np.zeros((chains, *root.shape))
            u[:, *place] = root[place] + np.where(failed[:, None], 0.0, position) @ unit
            value, slope = self._log_density(u, f, likelihood)
            return np.where(failed, -np.inf, value), slope[:, *place] @ unit.T, u

        u = np.broadcast_to(root, (chains, *root.shape))
        for number in range(_SETTLE + _KEEP):
            likely = constants + degrees * self._exponent(u)[:, None]
            f = degrees[(likely + rng.gumbel(size=likely.shape)).argmax(axis=1)]
            value, slope, u = at(position, f)
            momentum = rng.normal(size=position.shape)
            before = value - 0.5 * np.square(momentum).sum(axis=1)
            step = size * rng.uniform(0.8, 1.2, size=(chains, 1))  # no orbit comes back
            moved = position
            for _ in range(_STEPS):
                momentum = momentum + 0.5 * step * slope
                moved = moved + step * momentum
                value, slope, to = at(moved, f)
                momentum = momentum + 0.5 * step * slope
            gain = value - 0.5 * np.square(momentum).sum(axis=1) - before
            accepted = np.exp(np.minimum(np.nan_to_num(gain, nan=-np.inf), 0.0))
            taken = rng.uniform(size=chains) < accepted
            position = np.where(taken[:, None], moved, position)
            u = np.where(taken[:, None, None], to, u)
            if number < _SETTLE:
                size *= math.exp(accepted.mean() - _ACCEPTED)
            else:
                kept.append(u @ np.swapaxes(u, 1, 2))
        return np.concatenate(kept)

    @cached_property
    def _weights(self) -> FloatArray:
        """Of squared differences; each product is there twice."""
        once = np.where(np.eye(len(self.sent), dtype=bool), 1.0, 0.5)
        return np.where(self.seen, once / np.where(self.seen, self.noise, 1.0), 0.0)

    @cached_property
    def _others(self) -> FloatArray:
        """Entries of each row of ``U`` beside the diagonal."""
        return np.asarray(np.triu(self.seen, 1).sum(axis=1), dtype=np.float64)

    def _degrees(self) -> tuple[FloatArray, FloatArray]:
        """Degrees of freedom that are compared, and logarithms of what normalises their priors.

        With the size of the matrix plus one, all matrices without negative eigenvalues are alike.
        """
        shares = (np.arange(_DEGREES) + 0.5) / _DEGREES
        f, columns = (len(self.sent) + 1) / shares**2, np.sum(~self.constant)
        constants = gammaln(0.5 * f * columns) + self.constant.sum() * gammaln(0.5 * f)
        return f, constants - gammaln(0.5 * (f[:, None] - self._others)).sum(axis=1)

    def _exponent(self, u: FloatArray) -> FloatArray:
        """What the degrees of freedom multiply in the logarithm of the prior, (n,)."""
        squares = np.square(u).sum(axis=2)
        columns = np.log(squares[:, ~self.constant].sum(axis=1)) * np.sum(~self.constant)
        rows = np.log(squares[:, self.constant]).sum(axis=1)
        return np.asarray(_log_diagonal(u).sum(axis=1) - 0.5 * (columns + rows))

    def _log_density(
        self, u: FloatArray, f: FloatArray, likelihood: Likelihood
    ) -> tuple[FloatArray, FloatArray]:
        """Logarithm of the posterior of ``U`` (n,) up to a constant, and its slope (n, q, q)."""
        diagonal, other = np.arange(u.shape[1]), ~self.constant
        a = u @ np.swapaxes(u, 1, 2)
        squares = a[:, diagonal, diagonal]
        off = (self.sent - a) * self._weights
        value = f * self._exponent(u) - ((self._others + 1.0) * _log_diagonal(u)).sum(axis=1)
        total = squares[:, other].sum(axis=1, keepdims=True)
        rows = squares[:, self.constant].sum(axis=1, keepdims=True)
        value = value + np.log(squares[:, self.constant]).sum(axis=1)
        value = value + 0.5 * np.log(total / rows)[:, 0]
        value = value - 0.5 * (off * (self.sent - a)).sum(axis=(1, 2))
        within = (squares <= squares @ self.largest.T)[:, other].all(axis=1)
        of_columns = 0.5 * (1.0 - f[:, None] * other.sum()) / total
        of_rows = (1.0 - 0.5 * f[:, None]) / squares - 0.5 / rows
        off[:, diagonal, diagonal] += np.where(other, of_columns, of_rows)
        more, by_matrix = likelihood(a)
        slope = 2.0 * (off + by_matrix) @ u
        slope[:, diagonal, diagonal] += (f[:, None] - self._others - 1.0) / u[:, diagonal, diagonal]
        return np.where(within, value + more, -np.inf), slope

    def _curvature(self, u: FloatArray, place: tuple[IntArray, IntArray]) -> FloatArray:
        """Of the logarithm of the posterior, (p, p), by entry of ``U``."""
        i, j = place
        weights = self._weights
        same = np.einsum("im,mj,ml->ijl", weights, u, u)[i[:, None], j[:, None], j]
        found = weights[np.ix_(i, i)] * u[i][:, j].T * u[i][:, j]
        found = 2.0 * (np.where(i[:, None] == i, same, 0.0) + found)
        found[np.diag_indices(len(i))] += ((len(u) + 1) / np.square(u).sum(axis=1))[i]
        return np.asarray(found)


def _log_diagonal(u: FloatArray) -> FloatArray:
    diagonal = np.arange(u.shape[1])
    return np.asarray(np.log(np.maximum(np.abs(u[:, diagonal, diagonal]), _TINY)))


def _root(matrix: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
