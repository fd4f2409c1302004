"""Sums of squares and products, given these sums with Gaussian noise of known size.

Noise may be larger than the sums, so that what was sent is no sum of squares. The true matrix ``A``
is: it has no negative eigenvalue, and the mean square of a column is within the public bounds. It
is written ``A = U U'`` with ``U`` upper triangular. Beforehand rows of ``U`` are those of a Wishart
matrix of ``f`` degrees of freedom and of one scale for all columns. A mean square varies about the
common one by a share of ``sqrt(2 / f)``, a correlation about zero by ``sqrt(1 / f)``. No constant
is set for either. The root of the common mean square is flat up to its bound, numbers of rows are
flat, and ``sqrt(1 / f)`` is flat up to where all matrices without negative eigenvalues are alike.

Draws are made by Hamiltonian Monte Carlo, many chains at once. ``f`` is summed over. A row of ``U``
is given by the logarithm of its norm and by Fisher's z of its partial correlations. Where noise
leaves a column or what others leave of it unknown, its size is spread over orders of magnitude, and
steps of one size fit all of them. A round of moves begins where the last ended, in units in which
the draws of the last have a variance of one. There a move takes a quarter of a period, after which
a Normal position no longer depends on where it came from. Rounds go on until there are enough
effective draws, by how far the means of chains differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import gammaln

from klfusion._utils.arrays import TINY, BoolArray, FloatArray

# `python -m experiments privacy --parts sampler` has errors and times of others.
_CHAINS, _MOVES = 64, 15  # moves of each chain per round
_STEPS = (
    16  # of a move, at most, where steps must be so small that a quarter of a period takes more
)
_ROUNDS = 2  # that find units and the size of steps; draws of later ones are kept
MOST = 64  # rounds, at most, that are kept; `--parts work`: none took more than 21
_DEGREES = 16  # midpoints at which sqrt(1 / f) is summed over
# Share of moves: the best is between .65 and .9 (Betancourt, Byrne and Girolami, 2014).
_ACCEPTED = 0.8
ENOUGH = 400.0  # effective draws (Vehtari et al., 2021): means within a twentieth of a deviation

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

    def draws(self, centre: FloatArray, likelihood: Likelihood) -> tuple[FloatArray, float]:
        """Of the true matrix, (n, q, q), given what else was sent, and how many they are worth.

        ``centre`` is the start.
        """
        root: FloatArray = _root(centre[::-1, ::-1])[::-1, ::-1]
        start = self._position(root)
        # In these units the noise and the prior have a curvature of one, at the start.
        unit: FloatArray = np.asarray(np.linalg.inv(_root(self._curvature(start, root))))
        x = np.broadcast_to(start, (_CHAINS, len(start)))
        kept: list[FloatArray] = []
        effective = 0.0
        rng, size = np.random.default_rng(0), len(unit) ** -0.25  # steps shrink so with dimensions
        with np.errstate(over="ignore", invalid="ignore"):  # of moves that fail
            for _ in range(_ROUNDS):
                found, size = self._round(x, unit, size, likelihood, rng, settled=False)
                x, unit = found[-_CHAINS:], _units(found, unit)
            while effective < ENOUGH and len(kept) < MOST:
                found, _ = self._round(x, unit, size, likelihood, rng, settled=True)
                x = found[-_CHAINS:]
                kept.append(found)
                effective = _effective(np.concatenate(kept))
            u, *_ = self._parts(np.concatenate(kept))
        return np.asarray(u @ np.swapaxes(u, 1, 2)), effective

    def start(self) -> FloatArray:
        """A matrix within the bounds, as near to what was sent as the noise and they allow.

        Negative eigenvalues, in units of the noise, are raised to a share of it that changes the
        distance by less than one. Entries that are zero are set to zero, and Cholesky's method
        raises what is left of a diagonal to the same.
        """
        deviation = np.sqrt(np.diag(self.noise))
        unit = np.sqrt(np.outer(deviation, deviation))
        values, vectors = np.linalg.eigh(np.where(self.seen, self.sent, 0.0) / unit)
        share = 1.0 / len(values)
        near = (vectors * np.maximum(values, share)) @ vectors.T * unit
        own = np.diag(near)
        top = np.where(self.constant, np.inf, self.largest @ np.where(self.constant, own, 0.0))
        within = np.sqrt(np.minimum(1.0, top / own))
        rest = np.where(self.seen, near * np.outer(within, within), 0.0)
        least, root = share * np.minimum(deviation, top), np.zeros_like(rest)
        for k in range(len(rest))[::-1]:
            size = np.sqrt(np.maximum(np.diag(rest), least[: k + 1]))
            root[: k + 1, k] = np.clip(rest[: k + 1, k] / size[k], -size, size)
            root[k, k] = size[k]
            rest = rest[:k, :k] - np.outer(root[:k, k], root[:k, k])
        # Raised diagonals may exceed the bounds.
        squares = np.square(root).sum(axis=1)
        top = np.where(self.constant, np.inf, self.largest @ np.where(self.constant, squares, 0.0))
        root *= np.sqrt(np.minimum(1.0, (1.0 - 1e-9) * top / squares))[:, None]
        return np.asarray(root @ root.T)

    def _round(
        self,
        x: FloatArray,
        unit: FloatArray,
        size: float,
        likelihood: Likelihood,
        rng: np.random.Generator,
        *,
        settled: bool,
    ) -> tuple[FloatArray, float]:
        """Positions of all chains after each move, and the size of steps, found if not settled."""
        kept = []

        def at(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
            value, slope = self._log_posterior(x, likelihood)
            return x, value, slope @ unit.T

        now = at(x)
        for _ in range(_MOVES):
            momentum = rng.normal(size=x.shape)
            before = now[1] - 0.5 * np.square(momentum).sum(axis=1)
            step = size * rng.uniform(0.8, 1.2, size=(len(x), 1))  # no orbit comes back
            then = now
            for _ in range(min(math.ceil(0.5 * math.pi / size), _STEPS)):
                momentum = momentum + 0.5 * step * then[2]
                then = at(then[0] + step * momentum @ unit)
                momentum = momentum + 0.5 * step * then[2]
            gain = then[1] - 0.5 * np.square(momentum).sum(axis=1) - before
            accepted = np.exp(np.minimum(np.nan_to_num(gain, nan=-np.inf), 0.0))
            taken = rng.uniform(size=len(x)) < accepted
            now = (
                np.where(taken[:, None], then[0], now[0]),
                np.where(taken, then[1], now[1]),
                np.where(taken[:, None], then[2], now[2]),
            )
            kept.append(now[0])
            if not settled:
                size *= math.exp(accepted.mean() - _ACCEPTED)
        return np.concatenate(kept), size

    def _position(self, u: FloatArray) -> FloatArray:
        """Of one ``U``, (p,): logarithms of norms of rows, and Fisher's z of correlations."""
        left = np.sqrt(np.cumsum(np.square(u), axis=1))  # norm of a row up to a column
        found = np.arctanh(np.triu(u, 1) / np.where(left > 0.0, left, 1.0))
        np.fill_diagonal(found, np.log(left[:, -1]))
        return np.asarray(found[self._place])

    def _parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Of positions (n, p): ``U``, partial correlations, and what they leave of a row.

        From the last column to the diagonal, an entry takes the share that is its correlation of
        ``before``, the norm that is left of the row. It leaves ``left`` of it to the next.
        """
        q = len(self.sent)
        z, diagonal = np.zeros((len(x), q, q)), np.arange(q)
        z[:, *self._place] = x
        norms = np.exp(z[:, diagonal, diagonal])
        z[:, diagonal, diagonal] = 0.0
        correlations, left = np.tanh(z), 1.0 / np.cosh(z)
        before = np.repeat(norms[:, :, None], q, axis=2)
        before[:, :, :-1] *= np.cumprod(left[:, :, :0:-1], axis=2)[:, :, ::-1]
        u = before * correlations
        u[:, diagonal, diagonal] = before[:, diagonal, diagonal]
        return u, correlations, before, left

    def _log_posterior(
        self, x: FloatArray, likelihood: Likelihood
    ) -> tuple[FloatArray, FloatArray]:
        """Logarithm of the posterior of positions (n,) up to a constant, and its slope (n, p)."""
        u, correlations, before, left = self._parts(x)
        value, slope = self._log_density(u, likelihood)
        # The volume of U per volume of positions has these powers of norms, and of what is left.
        powers, diagonal = np.triu(self.seen, 1).cumsum(axis=1), np.arange(u.shape[1])
        value = value + x[:, self._place[0] == self._place[1]] @ (powers[:, -1] + 1.0)
        value = value + (powers * np.log(np.maximum(left, TINY))).sum(axis=(1, 2))
        part = slope * u
        up_to = np.cumsum(part, axis=2)
        found = slope * before * left**2 - correlations * (up_to - part + powers)
        found[:, diagonal, diagonal] = up_to[:, :, -1] + powers[:, -1] + 1.0
        return value, found[:, *self._place]

    @cached_property
    def _place(self) -> Any:
        """Entries of ``U`` that are not zero for certain."""
        return np.nonzero(np.triu(self.seen))

    @cached_property
    def _weights(self) -> FloatArray:
        """Of squared differences; each product is there twice."""
        once = np.where(np.eye(len(self.sent), dtype=bool), 1.0, 0.5)
        return np.where(self.seen, once / np.where(self.seen, self.noise, 1.0), 0.0)

    @cached_property
    def _others(self) -> FloatArray:
        """Entries of each row of ``U`` beside the diagonal."""
        return np.asarray(np.triu(self.seen, 1).sum(axis=1), dtype=np.float64)

    @cached_property
    def _degrees(self) -> tuple[FloatArray, FloatArray]:
        """Degrees of freedom, at midpoints, and logarithms of what normalises their priors.

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

    def _log_prior(self, exponent: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Logarithm of the prior (n,) by what ``f`` multiplies in it, and the mean ``f`` (n,)."""
        degrees, constants = self._degrees
        logs = constants + degrees * exponent[:, None]
        top = logs.max(axis=1)
        weights = np.exp(logs - top[:, None])
        total = weights.sum(axis=1)
        return top + np.log(total), weights @ degrees / total

    def _log_density(self, u: FloatArray, likelihood: Likelihood) -> tuple[FloatArray, FloatArray]:
        """Logarithm of the posterior of ``U`` (n,) up to a constant, and its slope (n, q, q)."""
        diagonal, other = np.arange(u.shape[1]), ~self.constant
        a = u @ np.swapaxes(u, 1, 2)
        misfit = 0.5 * (np.square(self.sent - a) * self._weights).sum(axis=(1, 2))
        # No float can hold the density of such noise, or the size of such a column: a failed move.
        seen = misfit < self.seen.sum() - math.log(TINY)  # not, if it is no number
        failed = ~(seen & (np.square(u[:, diagonal, diagonal]) > TINY).all(axis=1))
        u, a = (np.where(failed[:, None, None], np.eye(u.shape[1]), own) for own in (u, a))
        squares = a[:, diagonal, diagonal]
        off = (self.sent - a) * self._weights
        prior, f = self._log_prior(self._exponent(u))
        value = prior - ((self._others + 1.0) * _log_diagonal(u)).sum(axis=1)
        total = squares[:, other].sum(axis=1, keepdims=True)
        rows = squares[:, self.constant].sum(axis=1, keepdims=True)
        value = value + np.log(squares[:, self.constant]).sum(axis=1)
        value = value + 0.5 * np.log(total / rows)[:, 0]
        value = value - misfit
        within = ~failed & (squares <= squares @ self.largest.T)[:, other].all(axis=1)
        of_columns = 0.5 * (1.0 - f[:, None] * other.sum()) / total
        of_rows = (1.0 - 0.5 * f[:, None]) / squares - 0.5 / rows
        off[:, diagonal, diagonal] += np.where(other, of_columns, of_rows)
        more, by_matrix = likelihood(a)
        slope = 2.0 * (off + by_matrix) @ u
        slope[:, diagonal, diagonal] += (f[:, None] - self._others - 1.0) / u[:, diagonal, diagonal]
        return np.where(within, value + more, -np.inf), np.where(failed[:, None, None], 0.0, slope)

    def _curvature(self, x: FloatArray, u: FloatArray) -> FloatArray:
        """Of the logarithm of the posterior, (p, p), by position."""
        i, j = self._place
        weights, small = self._weights, 1e-6
        same = np.einsum("im,mj,ml->ijl", weights, u, u)[i[:, None], j[:, None], j]
        by_entry = weights[np.ix_(i, i)] * u[i][:, j].T * u[i][:, j]
        by_entry = 2.0 * (np.where(i[:, None] == i, same, 0.0) + by_entry)
        off = small * np.eye(len(x))
        change = (self._parts(x + off)[0] - self._parts(x - off)[0])[:, i, j] / (2.0 * small)
        return np.asarray(change @ by_entry @ change.T + (len(u) + 1.0) * np.eye(len(x)))


def _effective(x: FloatArray) -> float:
    """The number of independent draws whose mean is as certain as that of ``x`` (n, p).

    The least over columns. Means of chains are independent: their variance is that of one chain's.
    Ranks stand for values, so that one draw far off does not count more than others.
    """
    from scipy.stats import rankdata  # noqa: PLC0415 (slow to import)

    ranks = rankdata(x, axis=0)  # equal if nothing moved
    means = ranks.reshape(-1, _CHAINS, x.shape[1]).mean(axis=0)
    found = _CHAINS * ranks.var(axis=0) / np.maximum(means.var(axis=0, ddof=1), TINY)
    return float(found.min())


def _log_diagonal(u: FloatArray) -> FloatArray:
    diagonal = np.arange(u.shape[1])
    return np.asarray(np.log(np.maximum(np.abs(u[:, diagonal, diagonal]), TINY)))


def _units(entries: FloatArray, unit: FloatArray) -> FloatArray:
    """Units in which draws (n, p) have a variance of one; of few draws, nearly the same as before.

    The old units stand for as many draws as there are entries.
    """
    n, p = entries.shape
    off = np.linalg.solve(unit.T, (entries - entries.mean(axis=0)).T)
    return np.asarray(_root((off @ off.T + p * np.eye(p)) / (n + p)).T @ unit)


def _root(matrix: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
