"""Linear regressions in units of their noise: what a Normal leaves out of ``1 / sigma``.

The likelihood of ``n`` observations at ``b = beta / sigma`` and ``t = 1 / sigma`` is ``t^n`` times
the exponential of a quadratic function. A product of Normals replaces ``n log(t)`` by a quadratic
near each silo's estimate, which is wrong where silos estimate different noise. Here the quadratic
part alone is added up. The power is known, because it is the number of observations.
A volume of ``d`` coefficients and ``sigma`` is ``t^-(d + 2)`` times that of ``b`` and ``t``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from klfusion._utils.arrays import FloatArray
from klfusion.families import Family, Normal
from klfusion.pooling.regressions import joint
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import regression
from klfusion.posteriors.structure.regression import Information

_WIDTH = 10.0  # deviations on either side, of integrals over one coordinate
_POINTS = 2001
_ROUNDS = 100
_TOLERANCE = 1e-12  # of the mean of 1 / t, relative


class NoisePower(NamedTuple):
    """What to add to a product of Normals: a quadratic of one coordinate, and a power of it."""

    row: int
    shift: float
    precision: float
    power: float

    @classmethod
    def of(cls, posteriors: Sequence[Posterior], weights: FloatArray) -> NoisePower | None:
        """Of aligned silos; None unless all are in units of one noise, and have observations."""
        found = [_noise(p) for p in posteriors]
        known = {own[:2] for own in found if own is not None}
        if len(known) != 1 or None in found:
            return None
        (row, volume), total = known.pop(), np.zeros(2)
        counts = [own[2] for own in found if own is not None]
        for posterior, n, weight in zip(posteriors, counts, weights, strict=True):
            assert isinstance(posterior.family, Normal)
            one = _alone(Information.of(posterior.natural[0], posterior.family.dim), row)[0]
            mean, variance = one.shift[0] / one.precision[0, 0], 1.0 / one.precision[0, 0]
            tilted = _tilted(n - volume, float(mean), float(variance))
            if tilted is None:
                return None
            # Priors, all but one of which are taken out, have a quadratic in place of the volume.
            again = (1.0 - 1.0 / weights.sum()) * _quadratic(-volume, *tilted[1:])
            total += weight * (tilted[0] - [one.shift[0], one.precision[0, 0]] + again)
        shift, precision = total.tolist()
        return cls(row, shift, precision, float(weights @ counts) - volume)

    def added_to(self, natural: FloatArray, family: Family) -> FloatArray:
        """Natural parameters (p,) of the Normal with the moments of the density."""
        assert isinstance(family, Normal)
        dim, information = family.dim, Information.of(natural, family.dim)
        shift, precision = information.shift.copy(), information.precision.copy()
        shift[self.row] += self.shift
        precision[self.row, self.row] += self.precision
        one, given = _alone(Information(shift, precision), self.row)
        h, q = float(one.shift[0]), float(one.precision[0, 0])
        mode = (h + np.sqrt(h * h + 4.0 * q * self.power)) / (2.0 * q)
        grid = _grid(mode, (q + self.power / mode**2) ** -0.5)
        weight = softmax(self.power * np.log(grid) + h * grid - 0.5 * q * grid**2)
        mean = weight @ grid
        moments = np.atleast_1d(mean), np.array([[weight @ np.square(grid - mean)]])
        both = joint(Information.of_moments(*moments), *given.values())
        order = np.r_[1 : self.row + 1, 0, self.row + 1 : dim]
        return both.some(order).natural()


def _noise(posterior: Posterior) -> tuple[int, float, float] | None:
    """The coordinate of the noise, the power of the volume, and the number of observations."""
    structure = posterior.structure
    if structure is None or structure.kind != regression.KIND or posterior.counts is None:
        return None
    variables: Any = structure.info.get("variables") or ()
    units = {v.get("scale") for v in variables} - {None}
    inverse = [v for v in variables if v["support"].get("kind") == "inverse"]
    name = f"1/{inverse[0]['name']}" if inverse else ""
    if len(inverse) != 1 or units != {inverse[0]["name"]}:
        return None
    if name not in structure.info["coordinates"]:
        return None
    scaled = [v["labels"] for v in variables if v.get("scale")]
    volume = 2.0 + sum(float(np.prod([len(axis) for axis in own])) for own in scaled)
    return structure.info["coordinates"].index(name), volume, float(posterior.counts[0])


def _alone(information: Information, row: int) -> tuple[Information, dict[str, FloatArray]]:
    """The marginal of one coordinate, and the others given it."""
    return information.split(np.delete(np.arange(len(information.shift)), row))


def _grid(mean: float, deviation: float) -> FloatArray:
    low = max(mean - _WIDTH * deviation, mean / _POINTS)
    return np.linspace(low, mean + _WIDTH * deviation, _POINTS)


def _tilted(
    power: float, mean: float, variance: float
) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Shift and precision beside a power of t that give these moments; points and weights.

    By parts, ``E[(t - mean) f'] = -1`` and ``E[f'] = 0`` of the log-density ``f``. None if no
    such density is proper.
    """
    if not (mean > 0 and variance > 0 and power > 0):
        return None
    grid = _grid(mean, variance**0.5)
    inverse = 1.0 / mean + variance / mean**3
    for _ in range(_ROUNDS):
        precision = (1.0 + power * (1.0 - mean * inverse)) / variance
        shift = precision * mean - power * inverse
        if not precision > 0:
            return None
        weight = softmax(power * np.log(grid) + shift * grid - 0.5 * precision * grid**2)
        before, inverse = inverse, float(weight @ (1.0 / grid))
        if abs(inverse - before) <= _TOLERANCE * inverse:
            break
    return np.array([shift, precision]), grid, weight


def _quadratic(power: float, grid: FloatArray, weight: FloatArray) -> FloatArray:
    """Shift and precision of the quadratic nearest to ``power * log(t)``."""
    centre, values = weight @ grid, power * np.log(grid)
    square, slope, _ = np.polyfit(grid - centre, values, 2, w=np.sqrt(weight))
    return np.array([slope - 2.0 * square * centre, -2.0 * square])
