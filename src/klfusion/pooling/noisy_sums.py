"""Coefficients of regressions whose silos sent sums with noise of known size added.

Of rows ``z = (1, u)`` a silo sends ``A = sum w z z'``, ``b = sum r z`` and, of a linear regression,
``c = sum y^2``, each plus Gaussian noise. Given coefficients ``theta``, what was sent of ``b`` and
``c`` is Normal: its mean follows from the expected ``A``, and its covariance adds the noise, what
remains unknown of ``A``, and the variation of outcomes. This likelihood and the prior are the
posterior of `noise_aware`, by importance sampling. It is that of Bernstein and Sheldon (2019),
without an assumption on how rows are distributed.

Sums of silos add, and so do variances of their noise: a fusion is made from the sums of all, which
is better than the product of their posteriors. Taking the noise for part of the data, the naive
posterior, is far too certain: `experiments.privacy` has both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import regression
from klfusion.posteriors.structure.regression import Information

KEY = "sums"  # in `info` of a structure, and the first part of the names of its arrays
INTERCEPT = "intercept"
_UNITS = ("matrix", "largest", "prior")
_PUBLIC = ("origin", *_UNITS)  # arrays that no data enter
# Two columns correlate by at most 1. Beforehand a correlation has this standard deviation, so that
# its range is two of them either way.
_CORRELATION = 0.5
_SPREAD = 0.5  # standard deviation of the mean square of a column, as a share of their mean
_STEPS = 20  # to the start of the sampling: it settles in fewer than ten
_ROUNDS, _DRAWS = 4, 1000  # of importance sampling: the error of a mean is some 5 % of its sd
_FREEDOM = 5.0  # degrees of freedom of proposals: tails wider than those of the posterior
_LEAST = 1e-4  # variance of an observation, as a share of the largest
_TINY = np.finfo(np.float64).tiny
_ROUNDING = 1e-6  # share of the largest eigenvalue that the smallest has at least


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Sums of one silo, in units of their public bounds; ``deviations`` of the noise by name.

    ``matrix`` and ``origin`` map coefficients of the units to those of the data: ``matrix theta +
    origin``. ``largest`` bounds the squares of the columns. ``prior`` has the precision of each
    coefficient of the data, -1 for an intercept that the model lacks.
    """

    name: str
    columns: tuple[str, ...]
    local: tuple[str, ...]
    gram: FloatArray
    moment: FloatArray
    squares: float | None
    deviations: Mapping[str, float]
    matrix: FloatArray
    origin: FloatArray
    largest: FloatArray
    prior: FloatArray

    @classmethod
    def of(cls, posterior: Posterior) -> NoisySums | None:
        """From what a silo sent; None if there is no noise in it."""
        structure = posterior.structure
        if structure is None or structure.kind != regression.KIND or KEY not in structure.info:
            return None
        return cls.read(posterior.name, structure.info["local"], structure.info, structure.arrays)

    @classmethod
    def read(
        cls, name: str, local: Sequence[str], info: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> NoisySums:
        """From the settings and arrays of a structure."""
        return cls(
            name,
            tuple(info[KEY]["columns"]),
            tuple(sorted(local)),
            arrays[f"{KEY}.gram"],
            arrays[f"{KEY}.moment"],
            float(arrays[f"{KEY}.squares"]) if f"{KEY}.squares" in arrays else None,
            info[KEY]["deviations"],
            *(
                np.asarray(arrays[f"{KEY}.{key}"])
                for key in ("matrix", "origin", "largest", "prior")
            ),
        )

    def _content(self) -> tuple[Any, ...]:
        values = (self.squares, *self.deviations.items())
        arrays = (self.gram, self.moment, *(getattr(self, key) for key in _PUBLIC))
        return (self.name, self.columns, self.local, values, *(a.tobytes() for a in arrays))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoisySums) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def like(self, other: NoisySums) -> bool:
        """Whether sums may be added: same columns in the same units, and the same prior.

        Local coefficients may have origins of their own.
        """
        shared = np.array([column not in self.local for column in self.columns])
        names = (self.columns, self.local, self.squares is None)
        return (
            names == (other.columns, other.local, other.squares is None)
            and np.array_equal(self.origin[shared], other.origin[shared])
            and all(np.array_equal(getattr(self, key), getattr(other, key)) for key in _UNITS)
        )

    @property
    def mass(self) -> float:
        """Sum of the weights of rows; noise may make it look like less than none."""
        return max(float(self.gram[0, 0]), self.deviations["gram"])


def sums_of(
    posteriors: Sequence[Posterior], weights: FloatArray
) -> tuple[list[NoisySums], list[str]] | None:
    """The sums of all silos and the names of coefficients they share.

    None unless each silo has sums in the same units and counts once. Then the product of the
    silos' posteriors stands for them.
    """
    found = [NoisySums.of(p) for p in posteriors]
    given = [own for own in found if own is not None]
    if len(given) < len(found) or not (weights == 1.0).all():
        return None
    if not all(own.like(given[0]) for own in given):
        return None
    structure = posteriors[0].structure
    assert structure is not None
    return given, list(structure.info["coordinates"])


def pooled(silos: Sequence[NoisySums], names: Sequence[str]) -> FloatArray:
    """Natural parameters (p,) of the coefficients ``names`` given the sums of all silos."""
    mean, covariance, columns, _ = noise_aware(by_name(silos))
    return _marginal(mean, covariance, [columns.index(name) for name in names]).natural()


def of_silo(
    silos: Sequence[NoisySums], names: Sequence[str], silo: str
) -> tuple[Information, list[str]]:
    """The coefficients ``names`` and the local ones of one silo, and the names of all."""
    mean, covariance, columns, _ = noise_aware(by_name(silos))
    local = silos[0].local
    before = sorted(own.name for own in silos).index(silo) * len(local)
    shared = len(columns) - len(silos) * len(local)
    rows = [columns.index(name) for name in names]
    rows += [before + columns.index(name, shared) for name in local]
    return _marginal(mean, covariance, rows), [*names, *local]


def by_name(silos: Sequence[NoisySums]) -> tuple[NoisySums, ...]:
    """In an order that does not depend on who came first."""
    return tuple(sorted(silos, key=lambda own: own.name))


def _marginal(mean: FloatArray, covariance: FloatArray, rows: list[int]) -> Information:
    return Information.of_moments(mean[rows], covariance[np.ix_(rows, rows)])


@lru_cache(maxsize=8)  # the models of all silos of a fusion are from one computation
def noise_aware(
    silos: tuple[NoisySums, ...],
) -> tuple[FloatArray, FloatArray, list[str], float]:
    """Mean, covariance and names of all coefficients, and the deviation of an observation.

    Local ones come last, those of the first silo first. Sums over silos are arranged as one
    regression, in which a local coefficient of a silo is a column that is zero at all others.
    """
    first = silos[0]
    shared = [k for k, c in enumerate(first.columns) if c not in first.local]
    own = [k for k, c in enumerate(first.columns) if c in first.local]
    size = len(shared) + len(own) * len(silos)
    gram, noise, matrix = np.zeros((size, size)), np.zeros((size, size)), np.zeros((size, size))
    moment, of_moment, origin, top = (np.zeros(size) for _ in range(4))
    precision, seen = np.zeros(size), np.zeros((size, size), dtype=bool)
    names = [first.columns[k] for k in shared]
    for number, silo in enumerate(silos):
        start = len(shared) + number * len(own)
        place = np.zeros(len(first.columns), dtype=np.intp)
        place[shared], place[own] = np.arange(len(shared)), np.arange(start, start + len(own))
        names += [first.columns[k] for k in own]
        both, d = np.ix_(place, place), silo.deviations
        gram[both] += silo.gram
        noise[both] += d["gram"] ** 2 * np.where(np.eye(len(place), dtype=bool), 1.0, 0.5)
        moment[place] += silo.moment
        of_moment[place] += d["moment"] ** 2
        top[place] += silo.mass * silo.largest
        matrix[both], origin[place], seen[both] = silo.matrix, silo.origin, True
        precision[place] = silo.prior
    deviation = float(np.sqrt(sum(s.deviations.get("squares", 0.0) ** 2 for s in silos)))
    squares = None if first.squares is None else float(sum(s.squares or 0.0 for s in silos))
    outer, constant = matrix.T * precision, np.array(names) == INTERCEPT
    prior, mass = (outer @ matrix, -outer @ origin), sum(s.mass for s in silos)
    sent = (gram, noise, seen, moment, of_moment, top, constant)
    model = _Model(*sent, *prior, squares, deviation, mass)
    used = np.flatnonzero(precision >= 0.0)
    mean, covariance, variance = model.some(used).averaged()
    matrix = matrix[np.ix_(used, used)]
    kept = [names[k] for k in used]
    return matrix @ mean + origin[used], matrix @ covariance @ matrix.T, kept, float(variance**0.5)


@dataclass(frozen=True, eq=False)
class _Model:
    """One regression from sums with noise, and the moments of its posterior."""

    gram: FloatArray
    noise: FloatArray  # variances of the noise of `gram`
    seen: BoolArray  # entries of `gram` that are not zero for certain
    moment: FloatArray
    of_moment: FloatArray  # variances of its noise
    top: FloatArray  # largest diagonal of the true `gram`
    constant: BoolArray  # columns that are intercepts
    precision: FloatArray
    shift: FloatArray
    squares: float | None
    of_squares: float  # standard deviation of its noise
    mass: float

    def some(self, rows: Any) -> _Model:
        """Of some coefficients; the others are zero."""
        parts = {"gram", "noise", "seen", "precision"}
        made = {key: value[np.ix_(rows, rows)] for key, value in vars(self).items() if key in parts}
        vectors = ("moment", "of_moment", "top", "constant", "shift")
        made |= {key: vars(self)[key][rows] for key in vectors}
        return _Model(**(vars(self) | made))

    def expected_gram(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variances of the true ``A``.

        Columns vary about their common mean square, and correlations about zero.
        """
        columns = ~self.constant
        diagonal = np.clip(np.diag(self.gram), _LEAST * self.top, self.top)
        mean = self.top * (diagonal[columns].sum() / max(self.top[columns].sum(), _TINY))
        own, noise = (_SPREAD * mean) ** 2, np.diag(self.noise)
        share = np.where(self.constant, 1.0, own / (own + noise))
        diagonal = mean + (diagonal - mean) * share
        # Squares of the true diagonal are expected to be larger than those of the estimate.
        root = np.sqrt(diagonal**2 + noise * share)
        prior = _CORRELATION**2 * np.outer(root, root)
        shares = prior / (prior + self.noise)
        np.fill_diagonal(shares, share)
        found = self.gram * shares
        np.fill_diagonal(found, diagonal)
        return _positive(found) * self.seen, self.noise * shares * self.seen

    def averaged(self) -> tuple[FloatArray, FloatArray, float]:
        """Mean and covariance of the coefficients, and the mean variance of an observation."""
        gram, unknown = self.expected_gram()
        centre, spread = self._start(gram, unknown)
        rng, q = np.random.default_rng(0), len(self.moment)
        for _ in range(_ROUNDS):
            root = np.linalg.cholesky(spread)
            scale = np.sqrt(_FREEDOM / rng.chisquare(_FREEDOM, size=_DRAWS))
            normal = rng.normal(size=(_DRAWS, len(centre))) * scale[:, None]
            points = centre + normal @ root.T
            tails = np.log1p(np.square(normal).sum(axis=1) / _FREEDOM)
            logs = self._log_density(points, gram, unknown)
            logs = logs + 0.5 * (_FREEDOM + len(centre)) * tails
            weights = np.exp(logs - logs.max())
            weights = np.minimum(
                weights, weights.mean() * math.sqrt(_DRAWS)
            )  # of truncated sampling
            weights /= weights.sum()
            centre = weights @ points
            off = points - centre
            spread = _positive((off * weights[:, None]).T @ off)
        variance = 1.0 if self.squares is None else float(weights @ np.exp(points[:, q]))
        return centre[:q], spread[:q, :q], variance

    def _start(self, gram: FloatArray, unknown: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Centre and covariance of the first proposals: covariances held at the last estimate."""
        q, variance = len(self.moment), 1.0
        theta, covariance = np.zeros(q), np.asarray(np.eye(q))
        for _ in range(_STEPS):
            if self.squares is not None:
                rest = self.squares - 2.0 * theta @ self.moment + theta @ gram @ theta
                variance = float(np.clip(rest / self.mass, 10 * _LEAST, 1.0))
            whole = variance * gram + np.diag(self.of_moment) + _spread(unknown, theta[None])[0]
            gain = np.linalg.solve(whole, gram).T
            covariance = np.asarray(np.linalg.inv(gain @ gram + self.precision), dtype=np.float64)
            theta = covariance @ (gain @ self.moment + self.shift)
        if self.squares is None:
            return theta, 0.5 * (covariance + covariance.T)
        noise = self.of_squares / (variance * self.mass)
        width = min(math.sqrt(2.0 / self.mass) + noise, 1.0) ** 2  # of the logarithm
        spread = np.zeros((q + 1, q + 1))
        spread[:q, :q], spread[q, q] = 0.5 * (covariance + covariance.T), width
        return np.append(theta, math.log(variance)), spread

    def _log_density(self, points: FloatArray, gram: FloatArray, unknown: FloatArray) -> FloatArray:
        """Logarithm of the posterior (n,) of coefficients and, last, the log-variance, up to 1."""
        q = len(self.moment)
        theta = points[:, :q]
        linear = self.squares is not None
        inside = np.ones(len(points), dtype=bool)
        variance = np.ones(len(points))
        if linear:
            inside = (points[:, q] > math.log(_LEAST)) & (points[:, q] < 0.0)
            variance = np.exp(np.clip(points[:, q], math.log(_LEAST), 0.0))
        expected, around = theta @ gram, _spread(unknown, theta)
        whole = variance[:, None, None] * gram + np.diag(self.of_moment) + around
        off = self.moment - expected
        if linear:
            fitted = (expected * theta).sum(axis=1)
            seen = np.einsum("npq,nq->np", around, theta)
            across = 2.0 * variance[:, None] * expected + seen
            own = 4.0 * variance * fitted + (seen * theta).sum(axis=1)
            own = own + 2.0 * self.mass * variance**2 + self.of_squares**2
            top = np.concatenate([whole, across[:, :, None]], axis=2)
            last = np.concatenate([across, own[:, None]], axis=1)[:, None]
            whole = np.concatenate([top, last], axis=1)
            rest = float(self.squares or 0.0) - fitted - self.mass * variance
            off = np.concatenate([off, rest[:, None]], axis=1)
        _, size = np.linalg.slogdet(whole)
        squared = (off * np.linalg.solve(whole, off[:, :, None])[:, :, 0]).sum(axis=1)
        prior = theta @ self.shift - 0.5 * ((theta @ self.precision) * theta).sum(axis=1)
        return np.where(inside, prior - 0.5 * (squared + size), -np.inf)


def _spread(unknown: FloatArray, theta: FloatArray) -> FloatArray:
    """Covariances (n, q, q) of ``E theta``, with ``E`` symmetric of variances ``unknown``."""
    found = unknown * theta[:, :, None] * theta[:, None, :]
    diagonal = np.arange(theta.shape[1])
    found[:, diagonal, diagonal] = theta**2 @ unknown
    return found


def _positive(matrix: FloatArray) -> FloatArray:
    """The nearest matrix with eigenvalues of at least a share of the largest."""
    values, vectors = np.linalg.eigh(matrix)
    least = _ROUNDING * max(values[-1], _TINY)
    if values[0] >= least:
        return matrix
    found: FloatArray = (vectors * np.maximum(values, least)) @ vectors.T
    return found
