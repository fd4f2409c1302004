"""Coefficients of regressions whose silos sent sums with noise of known size added.

Of rows ``z = (1, u)`` a silo sends ``A = sum w z z'``, ``b = sum r z`` and, of a linear regression,
``c = sum y^2``, each plus Gaussian noise. Given ``A`` and coefficients ``theta``, what was sent of
``b`` and ``c`` is Normal: its mean follows from ``A theta``, and its covariance adds the noise and
the variation of outcomes. `NoisyGram` draws ``A`` given what was sent of it; given ``A`` draws of
``theta`` are weighted. This is the posterior of Bernstein and Sheldon (2019), without an assumption
on how rows are distributed.

Sums of silos add, and so do variances of their noise: a fusion is made from the sums of all, which
is better than the product of their posteriors. Taking the noise for part of the data, the naive
posterior, is far too certain: `experiments.privacy` has both.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import few
from klfusion.errors import KLFusionError
from klfusion.pooling.noisy_gram import ENOUGH, NoisyGram
from klfusion.pooling.noisy_regression import NoisyRegression
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import regression
from klfusion.posteriors.structure.regression import Information

KEY = "sums"  # in `info` of a structure, and the first part of the names of its arrays
INTERCEPT = "intercept"
_UNITS = ("matrix", "largest", "prior")
_PUBLIC = ("origin", *_UNITS)  # arrays that no data enter


class ShrunkWarning(UserWarning):
    """One step of Newton's method shrinks effects by more than they are uncertain."""


class FewDrawsWarning(UserWarning):
    """The posterior given sums with noise was not found as well as is wanted."""


class PriorWarning(UserWarning):
    """Sums with noise say less of coefficients than was known beforehand."""


class Coefficients(NamedTuple):
    """Mean, covariance and names of coefficients, the deviation of an observation, and the step.

    ``step`` is the mean square, over rows, of linear predictors relative to where sums are from.
    95 % of the posterior are within ``radius`` of the mean, in standard deviations. The posterior
    has wider tails than a Normal one, whose region of 95 % would hold fewer.
    """

    mean: FloatArray
    covariance: FloatArray
    names: list[str]
    deviation: float
    step: float
    radius: float


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
    found = noise_aware(by_name(silos))
    rows = [found.names.index(name) for name in names]
    _warn_prior(found, rows, silos[0])
    if silos[0].squares is None:
        _warn_shrunk(found, rows, silos[0])
    return _marginal(found.mean, found.covariance, rows).natural()


def _warn_prior(found: Coefficients, rows: list[int], silo: NoisySums) -> None:
    """Say which coefficients are nearly their prior: the sums add less information than it has.

    Information is the inverse of a variance, so that the variance is more than half the prior's.
    """
    prior = silo.prior[[silo.columns.index(found.names[k]) for k in rows]]
    ratio = np.sqrt(np.diag(found.covariance)[rows] * prior)
    hidden = [(found.names[k], own) for k, own in zip(rows, ratio, strict=True) if 2 * own**2 > 1]
    if hidden:
        of, widths = few([name for name, _ in hidden]), [own for _, own in hidden]
        between = " to ".join(f"{own:.2f}" for own in sorted({min(widths), max(widths)}))
        warnings.warn(
            f"sums with noise say less of {of} than their prior, so that the answer is nearly the "
            f"prior: deviations are {between} of what they were beforehand. Narrower bounds, more "
            "rows, more silos or a larger epsilon help",
            PriorWarning,
            stacklevel=2,
        )


def _warn_shrunk(found: Coefficients, rows: list[int], silo: NoisySums) -> None:
    """Of a logistic regression: say which effects the next term of the expansion would change.

    At a linear predictor ``h`` the mean residual is ``h / 4 (1 - h^2 / 12 + ...)``. With ``h``
    Normal, the second term shrinks coefficients by a quarter of the mean square of ``h``.
    """
    origin = silo.origin[[silo.columns.index(found.names[k]) for k in rows]]
    left_out = 0.25 * found.step * np.abs(found.mean[rows] - origin)
    large = left_out > np.sqrt(np.diag(found.covariance)[rows])
    names = [found.names[k] for k, own in zip(rows, large, strict=True) if own]
    if names:
        warnings.warn(
            f"one step of Newton's method shrinks {few(names)} by more than the standard "
            "deviation, so that their intervals are too near to where the step began. Another "
            "round corrects this: send this fusion to the silos, have each call kf.privatize(..., "
            "at=fusion), and fuse what they send. It spends again; record= adds up what is spent",
            ShrunkWarning,
            stacklevel=2,
        )


def warn_few(effective: float, where: str) -> None:
    """Say that a posterior is not known well."""
    if effective < ENOUGH:
        warnings.warn(
            f"{where}: the posterior given sums with noise is known "
            f"from {effective:.0f} effective draws, {ENOUGH:.0f} are wanted, so intervals may be "
            "wrong. Narrower bounds, fewer columns or a larger epsilon help",
            FewDrawsWarning,
            stacklevel=2,
        )


def of_silo(
    silos: Sequence[NoisySums], names: Sequence[str], silo: str
) -> tuple[Information, list[str]]:
    """The coefficients ``names`` and the local ones of one silo, and the names of all."""
    mean, covariance, columns, *_ = noise_aware(by_name(silos))
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
def noise_aware(silos: tuple[NoisySums, ...]) -> Coefficients:
    """The posterior of all coefficients.

    Local ones come last, those of the first silo first. Sums over silos are arranged as one
    regression, in which a local coefficient of a silo is a column that is zero at all others.
    """
    try:
        return _noise_aware(silos)
    except np.linalg.LinAlgError as error:
        raise KLFusionError(
            f"{few([own.name for own in silos])}: expected a prior_sd that floats can hold beside "
            "the sums: a smaller one, or narrower bounds"
        ) from error


def _noise_aware(silos: tuple[NoisySums, ...]) -> Coefficients:
    first = silos[0]
    shared = [k for k, c in enumerate(first.columns) if c not in first.local]
    own = [k for k, c in enumerate(first.columns) if c in first.local]
    size = len(shared) + len(own) * len(silos)
    gram, noise, matrix, largest = (np.zeros((size, size)) for _ in range(4))
    moment, of_moment, origin, precision = (np.zeros(size) for _ in range(4))
    seen = np.zeros((size, size), dtype=bool)
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
        largest[place, place[0]] = silo.largest
        matrix[both], origin[place], seen[both] = silo.matrix, silo.origin, True
        precision[place] = silo.prior
    constant = np.array(names) == INTERCEPT
    used = np.flatnonzero(precision >= 0.0)
    block: Any = np.ix_(used, used)
    matrix, origin = matrix[block], origin[used]
    outer = matrix.T * precision[used]
    squares = None if first.squares is None else float(sum(s.squares or 0.0 for s in silos))
    deviation = float(np.sqrt(sum(s.deviations.get("squares", 0.0) ** 2 for s in silos)))
    sent = (moment[used], of_moment[used], outer @ matrix, -outer @ origin, squares, deviation)
    model, sums = NoisyRegression(*sent), NoisyGram(gram, noise, seen, constant, largest)
    middle = sums.start()
    centre, width = model.scale(middle[block], float(np.diag(middle)[constant].sum()))

    def likelihood(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:
        slope = np.zeros_like(matrices)
        value, slope[:, *block] = model.likelihood(matrices[:, *block], centre)
        return value, slope

    grams, drawn = sums.draws(middle, likelihood)
    rows = grams[:, constant, constant].sum(axis=1)
    found = model.averaged(grams[:, *block], rows, centre, width)
    mean, covariance, radius, variance, step, weighted = found
    effective = min(drawn, weighted) if squares is not None else drawn
    warn_few(effective, few([own.name for own in silos]))
    kept, covariance = [names[k] for k in used], matrix @ covariance @ matrix.T
    mean = matrix @ mean + origin
    return Coefficients(mean, covariance, kept, math.sqrt(variance), step, radius)
