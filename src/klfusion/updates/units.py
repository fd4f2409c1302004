"""Columns of a silo in other units: which scale lets its components match those of others.

A component of the silo is one that another silo has, or a new one. One column may be a multiple of
the others', or all by one factor, or several, each by its own. Then means and deviations are the
same multiple, so that few matches show it. New components show nothing. Classes of heads match by
name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import comb, expit

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion._utils.running import progress_bar
from klfusion.posteriors.posterior import Posterior
from klfusion.updates.component_moments import ComponentMoments, compared

_SMALLEST, _LARGEST = np.log(1.5), np.log(1000.0)  # of ratios of units; a mile has 1.6 kilometres
_WIDTH = 2.0 * (_LARGEST - _SMALLEST)  # of the prior of a log scale
_OF_PRIOR = 2.0 * np.pi / _WIDTH**2  # information of it
_PRIOR = 0.01  # probability that a silo has other units
_SHARED = 0.5  # probability that a component is one of another silo's
_VARIATION = (0.05, 0.1, 0.2, 0.4)  # of a component between silos, in its standard deviations
_MOST_SILOS = 8  # to compare with
_MOST_STARTS, _ROUNDS = 20, 4  # matches to start from; rounds of matching and scaling


class Units(NamedTuple):
    """A silo with columns that are probably so many times the others'; None: all, by one factor."""

    silo: str
    columns: tuple[int, ...] | None
    scales: tuple[float, ...]
    log_odds: float  # that it has

    @property
    def probability(self) -> float:
        """That it has other units."""
        return float(expit(self.log_odds))


_NONE = Units("", None, (1.0,), -np.inf)


def other_units(silos: Sequence[Posterior]) -> Iterator[Units]:
    """Silos that have more probably other units in some columns than not."""
    known = {p.name: own for p in silos if (own := ComponentMoments.of(p)) is not None}
    names, columns = compared(known)

    def found(name: str) -> Units:
        others = [known[other] for other in names if other != name]
        if not others:
            return _NONE
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of huge numbers
            own = known[name].beside(others[:: -(-len(others) // _MOST_SILOS)])
            return _most_probable(known[name], own)._replace(silo=name)

    first, asked = [], names[1:] if len(names) == 2 else names  # of two, the last
    with progress_bar() as report:
        for number, name in enumerate(asked):
            report("looking for other units", number, len(asked))
            first.append(found(name))
    # The most probable first: whom it alone resembles, others resemble in other units.
    for one in sorted(first, key=lambda own: -own.log_odds):
        again = found(one.silo) if one.log_odds > 0.0 else one
        if again.log_odds > 0.0:
            names.remove(one.silo)
            some = None if again.columns is None else tuple(columns[[*again.columns]].tolist())
            yield again._replace(columns=some)


def _most_probable(own: ComponentMoments, others: ComponentMoments) -> Units:
    """The most probable other units; log odds are minus infinity if no scale can be."""
    d = own.mean.shape[1]
    given = [_Pairs(own, others, variation) for variation in _VARIATION]
    same = _log_sum([pairs.same() for pairs in given])
    groups: dict[tuple[int, ...] | None, BoolArray]
    groups = {(c,): np.arange(d) == c for c in range(d if own.one_by_one else 0)}
    if d > 1 or not groups:
        groups[None] = np.ones(d, dtype=bool)
    # Each column alone, all by one factor, or several: these are equally probable.
    several_too = d > 1 and own.one_by_one
    prior = np.log(_PRIOR / (1.0 - _PRIOR) / (len(groups) + several_too))
    best = _NONE
    for some, columns in groups.items():
        if _log_sum([pairs.bound(columns) for pairs in given]) + prior < same:
            continue
        found = [pairs.best(columns) for pairs in given]
        log, scales = _log_sum([log for log, _ in found]), (float(np.exp(max(found)[1])),)
        found_here = Units("", some, scales, float(log + prior - same))
        best = max(best, found_here, key=lambda own: own.log_odds)
    if several_too and _log_sum([p.bound_of_several() for p in given]) + prior > same:
        several = [pairs.best_of_several() for pairs in given]
        log_scales = max(several, key=lambda one: one[0])[1]
        scaled = np.flatnonzero(log_scales)
        log_odds = float(_log_sum([log for log, _ in several]) + prior - same)
        if len(scaled) > 1 and log_odds > best.log_odds:
            each = tuple(np.exp(log_scales[scaled]).tolist())
            best = Units("", tuple(scaled.tolist()), each, log_odds)
    return best


def _log_sum(values: Any, axis: int = 0, **how: Any) -> Any:
    """`scipy.special.logsumexp`, which takes several times as long for a few numbers."""
    return np.logaddexp.reduce(values, axis=axis, **how)


class _Pairs:
    """Pairs of a silo's components and those of others, given how much these vary."""

    def __init__(self, own: ComponentMoments, others: ComponentMoments, variation: float) -> None:
        # (k, 1, d) each; (l, d), or by name (k, l, d); NaN where a silo did not measure a column
        given = [own.mean[:, None], own.log_sd[:, None], others.mean, others.log_sd]
        self.known = np.isfinite(given[0] + given[2])  # (k, l, d)
        self.x, self.x_log_sd, self.y, self.y_log_sd = map(np.nan_to_num, given)
        error = 1.0 / own.size[:, None] + 1.0 / others.size  # (k, l, 1 or d)
        error = np.nan_to_num(error, nan=1.0)
        self.error = (error + variation**2) * np.exp(2.0 * self.x_log_sd)  # of the mean
        # A deviation that all components share counts once.
        log_error = (0.5 * error + variation**2) * (1 if own.names is None else len(error))
        self.log_error = np.broadcast_to(log_error, self.error.shape)
        all_there = np.ones(error.shape[:2], dtype=bool)
        self.there = all_there if others.there is None else others.there
        self.new = self._new(given)
        self.plain = self._log_density(np.zeros((1, 1)), slice(None))[0]  # (k, l, d)

    def _log_density(self, log_scale: FloatArray, columns: BoolArray | slice) -> FloatArray:
        """Of components given that they match, by column: (scales, k, l, columns).

        Log scales are (scales, columns), or (scales, 1) of all columns.
        """
        u = log_scale[:, None, None]
        means = self.x[..., columns] - np.exp(u) * self.y[..., columns]
        logs = self.x_log_sd[..., columns] - u - self.y_log_sd[..., columns]
        return self._where_known(means, logs, columns)

    def _where_known(
        self, means: FloatArray, logs: FloatArray, columns: BoolArray | slice
    ) -> FloatArray:
        """Log density of residuals; where a column says nothing, that of a new component."""
        found = _log_normal(means, self.error[..., columns])
        found = found + _log_normal(logs, self.log_error[..., columns])
        return np.where(self.known[..., columns], found, self.new[..., columns])

    def _new(self, given: Sequence[FloatArray]) -> FloatArray:
        """Log density (k, 1, d) of a component that no other silo has: as those of all silos."""
        total = np.zeros(self.x.shape)
        x, x_log_sd, y, y_log_sd = given
        for own, other, error in ((x, y, self.error), (x_log_sd, y_log_sd, self.log_error)):
            every = np.concatenate([own[:, 0], other[self.there] if other.ndim > 2 else other])
            there = np.isfinite(every)
            n, every = np.maximum(there.sum(axis=0), 1), np.where(there, every, 0.0)
            mean = every.sum(axis=0) / n
            variance = (np.where(there, every - mean, 0.0) ** 2).sum(axis=0) / n
            variance = variance + error.min(axis=1, keepdims=True)
            total = total + _log_normal(own - mean, variance)
        return np.nan_to_num(total)

    def _log_odds(self, columns: BoolArray, density: FloatArray) -> FloatArray:
        """Of each match against a new component: (scales, k, l), of the density of columns."""
        rest = self.plain[..., ~columns].sum(axis=2) - self.new.sum(axis=2)
        n = np.maximum(self.there.sum(axis=1, keepdims=True), 1)
        prior = np.log(_SHARED / (1.0 - _SHARED) / n)
        return np.where(self.there, density.sum(axis=3) + rest + prior, -np.inf)

    def _evidence(self, columns: BoolArray, density: FloatArray) -> FloatArray:
        """Log evidence of each scale, of all matches: (scales,)."""
        odds = _log_sum(self._log_odds(columns, density), axis=2)
        return np.asarray(np.logaddexp(0.0, odds).sum(axis=1))

    @property
    def _every(self) -> BoolArray:
        return np.ones(self.y.shape[-1], dtype=bool)

    def same(self) -> float:
        """Log evidence that no column is scaled."""
        return float(self._evidence(self._every, self.plain[None])[0])

    def bound(self, columns: BoolArray) -> float:
        """Log evidence if every pair had a scale of its own in these columns: an upper bound."""
        return float(self._evidence(columns, self._highest[..., columns][None])[0])

    def bound_of_several(self) -> float:
        """The same of `best_of_several`: every pair and column has a scale of its own, or none."""
        highest = np.maximum(self.plain, self._highest)
        return float(self._evidence(self._every, highest[None])[0] - np.log(2.0))

    @cached_property
    def _highest(self) -> FloatArray:
        """At least the log density of each pair and column at any scale, (k, l, d).

        Means and deviations each have the scale that suits them best.
        """
        ratio, scales = self.x_log_sd - self.y_log_sd, np.exp([_SMALLEST, _LARGEST])
        of_means = np.nan_to_num(self.x / self.y)
        means = [
            np.abs(self.x - np.clip(of_means, low, high) * self.y)
            for low, high in (scales, 1.0 / scales[::-1])
        ]
        return self._where_known(np.minimum(*means), ratio - _allowed(ratio), slice(None))

    def best(self, columns: BoolArray) -> tuple[float, float]:
        """Log evidence that these columns are scaled, and the most probable log scale."""
        logs, known = (self.x_log_sd - self.y_log_sd)[..., columns], self.known[..., columns]
        n = np.maximum(known.sum(axis=2), 1)
        mean = np.where(known, logs, 0.0).sum(axis=2) / n
        squares = np.where(known, logs - mean[..., None], 0.0) ** 2
        rest = self.plain[..., ~columns].sum(axis=2) - squares.sum(axis=2) / n
        rest = np.where(self.there & known.any(axis=2), rest, -np.inf)
        order = np.argsort(-rest, axis=None, kind="stable")[:_MOST_STARTS]
        log_scale = _allowed(mean.ravel()[order])
        for _ in range(_ROUNDS):
            gradient, information = self._slope(log_scale, columns)
            log_scale = _allowed(log_scale + np.clip(gradient / information, -1.0, 1.0))
        information = self._slope(log_scale, columns)[1]
        density = self._log_density(log_scale[:, None], columns)
        log = self._evidence(columns, density) + _log_width(information)
        best = int(np.argmax(log))
        return float(log[best]), float(log_scale[best])

    def best_of_several(self) -> tuple[float, FloatArray]:
        """Log evidence that some columns are scaled, each by its own factor, and log scales (d,).

        Zero is a column that is not. Given matches, each column decides for itself.
        """
        every, d = self._every, self.y.shape[-1]
        log_scale, scaled = self._starts(_allowed(self.x_log_sd - self.y_log_sd).reshape(-1, d))
        for _ in range(_ROUNDS if len(scaled) else 0):
            density = self._log_density(np.where(scaled, log_scale, 0.0), every)
            weights = _weights(self._log_odds(every, density))
            gradient, information = self._slopes(weights, log_scale, every)
            log_scale = _allowed(log_scale + np.clip(gradient / information, -1.0, 1.0))
            change = self._log_density(log_scale, every) - self.plain
            gain = np.einsum("skl,sklc->sc", weights, change) + _log_width(information)
            scaled = gain > 0.0
        several = scaled.sum(axis=1) > 1
        if not several.any():
            return -np.inf, np.zeros(d)
        log_scale = np.where(scaled, log_scale, 0.0)[several]
        log = self._evidence(every, self._log_density(log_scale, every))
        log += np.where(scaled, _log_width(information), 0.0)[several].sum(axis=1)
        # Of two columns half, of each further one half of the rest; which ones, any.
        n = scaled[several].sum(axis=1)
        log -= (n - 1) * np.log(2.0) + np.log(comb(d, n))
        best = int(np.argmax(log))
        return float(log[best]), log_scale[best]

    def _starts(self, log_scale: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Log scales (starts, d) of likely pairs, given those of all, and where they gain."""
        u = log_scale.reshape(self.plain.shape)
        scaled = np.exp(u) * self.y
        logs = self.x_log_sd - u - self.y_log_sd
        change = self._where_known(self.x - scaled, logs, slice(None)) - self.plain
        information = self.known * (scaled**2 / self.error + 1.0 / self.log_error) + _OF_PRIOR
        gain = (change + _log_width(information)).reshape(log_scale.shape)
        likely = self.plain.sum(axis=2).ravel() + np.maximum(gain, 0.0).sum(axis=1)
        likely[((gain > 0.0).sum(axis=1) < 2) | ~self.there.ravel()] = -np.inf
        order = np.argsort(-likely, kind="stable")[:_MOST_STARTS]
        order = order[np.isfinite(likely[order])]
        return log_scale[order], gain[order] > 0.0

    def _slope(self, log_scale: FloatArray, columns: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Gradient and Fisher information of a log scale of all columns: (scales,) each."""
        odds = self._log_odds(columns, self._log_density(log_scale[:, None], columns))
        slopes = self._slopes(_weights(odds), log_scale[:, None], columns)
        gradient, information = (each.sum(axis=1) for each in slopes)
        return gradient, information - (columns.sum() - 1) * _OF_PRIOR

    def _slopes(
        self, weights: FloatArray, log_scale: FloatArray, columns: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Gradient and Fisher information by column, (scales, columns) each."""
        u, log_error = log_scale[:, None, None], self.log_error[..., columns]
        scaled = np.exp(u) * self.y[..., columns]
        means = (self.x[..., columns] - scaled) * scaled / self.error[..., columns]
        logs = (self.x_log_sd[..., columns] - u - self.y_log_sd[..., columns]) / log_error
        known = scaled**2 / self.error[..., columns] + 1.0 / log_error
        there = self.known[..., columns]
        sums = [np.einsum("skl,sklc->sc", weights, there * part) for part in (means + logs, known)]
        return sums[0], sums[1] + _OF_PRIOR


def _weights(odds: FloatArray) -> FloatArray:
    """Probability of each match, (scales, k, l)."""
    total = np.logaddexp(0.0, _log_sum(odds, axis=2, keepdims=True))
    return np.asarray(np.exp(odds - total))


def _log_width(information: FloatArray) -> FloatArray:
    """Log share of the prior, uniform in log scales, that fits as well as the best one."""
    return np.asarray(0.5 * np.log(2.0 * np.pi / information) - np.log(_WIDTH))


def _allowed(log_scale: FloatArray) -> FloatArray:
    """The nearest log scale of units that are looked for."""
    return np.asarray(np.sign(log_scale) * np.clip(np.abs(log_scale), _SMALLEST, _LARGEST))


def _log_normal(residual: FloatArray, variance: FloatArray) -> FloatArray:
    return np.asarray(-0.5 * (residual**2 / variance + np.log(2.0 * np.pi * variance)))
