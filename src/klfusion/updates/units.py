"""Columns of a silo in other units: which scale lets its components match those of others.

A component of the silo is one that another silo has, or a new one. One column, or all of them, may
be a multiple of the others'. Then means and deviations are the same multiple, so that few matches
show it. New components show nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion.families import GaussianObservations, Tempered
from klfusion.posteriors.posterior import Posterior

_SMALLEST, _LARGEST = np.log(1.5), np.log(1000.0)  # of ratios of units; a mile has 1.6 kilometres
_WIDTH = 2.0 * (_LARGEST - _SMALLEST)  # of the prior of a log scale
_PRIOR = 0.01  # probability that a silo has other units
_SHARED = 0.5  # probability that a component is one of another silo's
_VARIATION = (0.05, 0.1, 0.2, 0.4)  # of a component between silos, in its standard deviations
_MOST_SILOS, _MOST_COMPONENTS = 8, 20  # to compare with; the largest components
_MOST_STARTS, _ROUNDS = 20, 4  # matches to start from; rounds of matching and scaling


class Units(NamedTuple):
    """A silo whose column, or all columns (None), is probably ``scale`` times the others'."""

    silo: str
    column: int | None
    scale: float
    probability: float


@dataclass(frozen=True, eq=False)
class _Components:
    """Means and logarithms of deviations (n, d) of observations, and sizes (n, 1)."""

    mean: FloatArray
    log_sd: FloatArray
    size: FloatArray

    @classmethod
    def of(cls, posterior: Posterior) -> _Components | None:
        """The largest components of a silo; None unless they have Gaussian observations."""
        family = posterior.family
        if not isinstance(family, GaussianObservations) or not isinstance(family, Tempered):
            return None
        size = family.effective_size(posterior.natural)
        rows = np.argsort(-size, kind="stable")[:_MOST_COMPONENTS]
        mean, covariance = family.observation_moments(posterior.natural[rows])
        variance = covariance if covariance.ndim == 2 else np.einsum("nii->ni", covariance)
        with np.errstate(divide="ignore", invalid="ignore"):
            own = cls(mean, 0.5 * np.log(variance), size[rows, None])
        fine = np.isfinite(own.mean).all() and np.isfinite(own.log_sd).all() and (size > 0).all()
        return own if fine else None

    @classmethod
    def joined(cls, silos: Sequence[_Components]) -> _Components:
        """The components of all silos."""
        keys = ("mean", "log_sd", "size")
        return cls(*(np.concatenate([getattr(own, key) for own in silos]) for key in keys))


def other_units(silos: Sequence[Posterior]) -> Iterator[Units]:
    """Silos that have more probably other units in a column, or in all, than not."""
    known = {p.name: own for p in silos if (own := _Components.of(p)) is not None}
    names = list(known) if len(known) > 1 else []
    for name in names[1:] if len(names) == 2 else names:  # of two, the second differs
        others = [known[other] for other in names if other != name]
        step = -(-len(others) // _MOST_SILOS)
        with np.errstate(over="ignore", invalid="ignore"):  # of huge numbers
            found = _most_probable(known[name], _Components.joined(others[::step]))
        if found.probability > 0.5:
            yield found._replace(silo=name)


def _most_probable(own: _Components, others: _Components) -> Units:
    """The most probable other units; the probability is 0 if no scale can be probable."""
    d = own.mean.shape[1]
    given = [_Pairs(own, others, variation) for variation in _VARIATION]
    same = logsumexp([pairs.same() for pairs in given])
    groups = [*np.eye(d, dtype=bool), *[np.ones(d, dtype=bool)] * (d > 1)]
    prior = np.log(_PRIOR / (1.0 - _PRIOR) / len(groups))
    best = Units("", None, 1.0, 0.0)
    for number, columns in enumerate(groups):
        if logsumexp([pairs.bound(columns) for pairs in given]) + prior < same:
            continue
        found = [pairs.best(columns) for pairs in given]
        log, column = logsumexp([log for log, _ in found]), number if number < d else None
        scale, probability = np.exp(max(found)[1]), expit(log + prior - same)
        best = max(best, Units("", column, float(scale), float(probability)), key=lambda u: u[3])
    return best


class _Pairs:
    """Pairs of a silo's components and those of others, given how much these vary."""

    def __init__(self, own: _Components, others: _Components, variation: float) -> None:
        self.x, self.x_log_sd = own.mean[:, None], own.log_sd[:, None]  # (k, 1, d)
        self.y, self.y_log_sd = others.mean, others.log_sd  # (l, d)
        error = 1.0 / own.size[:, None] + 1.0 / others.size  # (k, l, 1)
        self.error = (error + variation**2) * np.exp(2.0 * self.x_log_sd)  # of the mean
        self.log_error = 0.5 * error + variation**2
        self.plain = self._log_density(np.zeros(1), slice(None))[0]  # (k, l, d)
        self.new = self._new()

    def _log_density(self, log_scale: FloatArray, columns: BoolArray | slice) -> FloatArray:
        """Of components given that they match, by column: (scales, k, l, columns)."""
        u = log_scale[:, None, None, None]
        means = self.x[..., columns] - np.exp(u) * self.y[:, columns]
        logs = self.x_log_sd[..., columns] - u - self.y_log_sd[:, columns]
        return _log_normal(means, self.error[..., columns]) + _log_normal(logs, self.log_error)

    def _new(self) -> FloatArray:
        """Log density (k, 1) of a component that no other silo has: as those of all silos."""
        total = np.zeros(self.x.shape)
        parts = (self.x, self.y, self.error), (self.x_log_sd, self.y_log_sd, self.log_error)
        for x, y, error in parts:
            every = np.concatenate([x[:, 0], y])
            variance = every.var(axis=0) + error.min(axis=1, keepdims=True)
            total = total + _log_normal(x - every.mean(axis=0), variance)
        return np.asarray(total.sum(axis=2))

    def _log_odds(self, columns: BoolArray, density: FloatArray) -> FloatArray:
        """Of each match against a new component: (scales, k, l), of the density of columns."""
        rest = self.plain[..., ~columns].sum(axis=2) - self.new
        prior = np.log(_SHARED / (1.0 - _SHARED) / len(self.y))
        return np.asarray(density.sum(axis=3) + rest + prior)

    def _evidence(self, columns: BoolArray, density: FloatArray) -> FloatArray:
        """Log evidence of each scale, of all matches: (scales,)."""
        odds = logsumexp(self._log_odds(columns, density), axis=2)
        return np.asarray(np.logaddexp(0.0, odds).sum(axis=1))

    def same(self) -> float:
        """Log evidence that no column is scaled."""
        every = np.ones(self.y.shape[1], dtype=bool)
        return float(self._evidence(every, self.plain[None])[0])

    def bound(self, columns: BoolArray) -> float:
        """Log evidence if every pair had a scale of its own in these columns: an upper bound."""
        ratio = (self.x_log_sd - self.y_log_sd)[..., columns]
        density = _log_normal(np.zeros(1), self.error[..., columns])
        density = density + _log_normal(ratio - _allowed(ratio), self.log_error)
        return float(self._evidence(columns, density[None])[0])

    def best(self, columns: BoolArray) -> tuple[float, float]:
        """Log evidence that these columns are scaled, and the most probable log scale."""
        logs = self.x_log_sd[..., columns] - self.y_log_sd[:, columns]
        rest = self.plain[..., ~columns].sum(axis=2) - logs.var(axis=2)
        order = np.argsort(-rest, axis=None, kind="stable")[:_MOST_STARTS]
        log_scale = _allowed(logs.mean(axis=2).ravel()[order])
        for _ in range(_ROUNDS):
            gradient, information = self._slope(log_scale, columns)
            log_scale = _allowed(log_scale + np.clip(gradient / information, -1.0, 1.0))
        information = self._slope(log_scale, columns)[1]
        # The share of the prior, uniform in log scales, that cannot be distinguished from it.
        width = np.sqrt(2.0 * np.pi / information) / _WIDTH
        density = self._log_density(log_scale, columns)
        log = self._evidence(columns, density) + np.log(width)
        best = int(np.argmax(log))
        return float(log[best]), float(log_scale[best])

    def _slope(self, log_scale: FloatArray, columns: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Gradient and Fisher information of the evidence in log scales: (scales,) each."""
        odds = self._log_odds(columns, self._log_density(log_scale, columns))
        total = np.logaddexp(0.0, logsumexp(odds, axis=2, keepdims=True))
        weights = np.exp(odds - total)[..., None]
        u = log_scale[:, None, None, None]
        scaled = np.exp(u) * self.y[:, columns]
        means = (self.x[..., columns] - scaled) * scaled / self.error[..., columns]
        logs = (self.x_log_sd[..., columns] - u - self.y_log_sd[:, columns]) / self.log_error
        known = scaled**2 / self.error[..., columns] + 1.0 / self.log_error
        sums = [(weights * part).sum(axis=(1, 2, 3)) for part in (means + logs, known)]
        return sums[0], sums[1] + 2.0 * np.pi / _WIDTH**2  # data and prior


def _allowed(log_scale: FloatArray) -> FloatArray:
    """The nearest log scale of units that are looked for."""
    return np.asarray(np.sign(log_scale) * np.clip(np.abs(log_scale), _SMALLEST, _LARGEST))


def _log_normal(residual: FloatArray, variance: FloatArray) -> FloatArray:
    return np.asarray(-0.5 * (residual**2 / variance + np.log(2.0 * np.pi * variance)))
