"""Regressions: coefficients by name, those that stay at each silo, and how they are fused.

``info`` has ``coordinates``, the names of the coefficients; ``local``, those that differ between
silos; and ``likelihood``, the model of an observation. ``columns`` are all names in the order of
the data. Where known, there are ``ties``, ``censoring`` and ``offset`` of the likelihood. Columns
have ``units``, ``scales``, which are standard deviations, and a ``reference`` level. Draws have
``variables``, each with a name, dims, labels along them and a support.
Local coefficients are marginalised out before silos are fused. What a silo's data say about them
is kept, one row per silo: given the shared coefficients ``s`` they are Normal, with the mean
``local.offset + local.gain s`` and the covariance ``local.covariance``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.errors import InvalidPosteriorError
from klfusion.families import Family, Normal
from klfusion.families.triangles import pack, unpack
from klfusion.posteriors.structure.checked import are_texts
from klfusion.posteriors.structure.structure import Structure, agreed_info
from klfusion.posteriors.structure.words import normalised, repeated

KIND = "regression"
LOCAL = ("local.offset", "local.gain", "local.covariance")
OF_LIKELIHOOD = ("likelihood", "ties", "censoring", "offset")  # text, where it is known
_COMMON = ("coordinates", "local", "likelihood")  # settings that must be equal in all silos
_ROUNDING = 1e-9  # share of the largest eigenvalue by which rounding makes the smallest negative


class Information(NamedTuple):
    """A Gaussian by precision (d, d) and precision times mean (d,); the precision may be singular.

    A sum of two is the product of the densities.
    """

    shift: FloatArray
    precision: FloatArray

    @classmethod
    def of(cls, natural: FloatArray, dim: int) -> Information:
        """From natural parameters (p,) of `klfusion.families.Normal`."""
        return cls(natural[:dim], unpack(natural[dim:], dim))

    @classmethod
    def of_moments(cls, mean: FloatArray, covariance: FloatArray) -> Information:
        """From a mean (d,) and covariance (d, d)."""
        precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        return cls(precision @ mean, precision)

    def natural(self) -> FloatArray:
        """Natural parameters (p,) of `klfusion.families.Normal`."""
        precision = 0.5 * (self.precision + self.precision.T)
        return np.concatenate([self.shift, pack(precision)])

    def some(self, rows: IntArray) -> Information:
        """Rows and columns in this order; others are conditioned to be zero."""
        return Information(self.shift[rows], self.precision[np.ix_(rows, rows)])

    def spread(self, rows: IntArray, dim: int) -> Information:
        """The inverse of `some`: no information about the other coordinates."""
        shift, precision = np.zeros(dim), np.zeros((dim, dim))
        shift[rows], precision[np.ix_(rows, rows)] = self.shift, self.precision
        return Information(shift, precision)

    def split(self, rows: IntArray) -> tuple[Information, dict[str, FloatArray]]:
        """The marginal without ``rows``, by a Schur complement, and these given the others."""
        rest = np.setdiff1d(np.arange(len(self.shift)), rows)
        own, across = self.some(rows), self.precision[np.ix_(rows, rest)]
        # Of a flat prior it is zero.
        inverse = np.linalg.pinv(own.precision, hermitian=True)
        covariance = np.asarray(inverse, dtype=np.float64)
        offset, gain = covariance @ own.shift, -covariance @ across
        kept = self.some(rest)
        marginal = Information(kept.shift + gain.T @ own.shift, kept.precision + across.T @ gain)
        return marginal, dict(zip(LOCAL, (offset, gain, covariance), strict=True))


def check_prior(prior: FloatArray, family: Family, where: str, *, convex: bool = False) -> None:
    """Refuse a prior that is no limit of Normals: flat in some directions is allowed.

    That of draws may be convex: see `klfusion.draws.priors`.
    """
    if not isinstance(family, Normal) or not np.isfinite(prior).all():
        family.check(prior[None], f"{where}, prior")
    elif not are_priors(prior[None], family, convex=convex)[0]:
        lowest = np.linalg.eigvalsh(Information.of(prior, family.dim).precision)[0]
        expected = "expected a prior whose precision has no negative eigenvalue"
        raise InvalidPosteriorError(f"{where}: {expected}, got {lowest:.6g}")


def are_priors(priors: FloatArray, family: Family, *, convex: bool = False) -> BoolArray:
    """Which rows (n, p) are priors that `check_prior` accepts."""
    if not isinstance(family, Normal):
        return family.inside(priors)
    good: BoolArray = np.asarray(np.isfinite(priors).all(axis=1))
    if not convex:
        values = np.linalg.eigvalsh(unpack(priors[good, family.dim :], family.dim))
        good[good] = values[:, 0] >= -_ROUNDING * np.maximum(values[:, -1], 1.0)
    return good


def names_of(info: Mapping[str, Any], key: str, where: str) -> list[str]:
    """Names in a structure's ``info``, checked because files are not trusted."""
    found: Any = info.get(key)
    if not are_texts(found) or not all(found):
        raise InvalidPosteriorError(
            f"{where}: expected {key} to be a list of non-empty names, got {found!r}"
        )
    names = [*map(normalised, found)]
    for again, _ in repeated(names):
        raise InvalidPosteriorError(f"{where}: expected different {key}, got {again!r} twice")
    return names


def fuse(
    silos: Sequence[Structure], labels: Sequence[IntArray | FloatArray], n_components: int
) -> Structure:
    """Collect what silos say about their local coefficients, one row per silo."""
    del labels, n_components  # a regression is one component
    info = dict(agreed_info(silos, *_COMMON))
    for key in ("scales", "sums"):  # of one silo
        info.pop(key, None)
    if all("variables" in s.info for s in silos):
        info["variables"] = merged_variables([s.info["variables"] for s in silos])
    columns = [s.info["columns"] for s in silos if "columns" in s.info]
    info["columns"] = list(dict.fromkeys(name for own in columns for name in own))
    arrays: dict[str, FloatArray] = {}
    if all(LOCAL[0] in s.arrays for s in silos):
        arrays = {key: np.concatenate([s.arrays[key] for s in silos]) for key in LOCAL}
    if all("noise" in s.arrays for s in silos):  # each silo has its own estimate
        rows = np.array([[float(s.arrays["noise"]), float(s.arrays["n"])] for s in silos])
        pooled = np.average(rows[:, 0] ** 2, weights=np.maximum(rows[:, 1], 1.0))
        arrays |= {"noise": np.sqrt(pooled), "n": rows[:, 1].sum()}
    if all("events" in s.arrays for s in silos):
        arrays["events"] = np.sum([s.arrays["events"] for s in silos])
    return Structure(KIND, arrays, info)


def merged_variables(silos: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Variables of any silo, with the labels of all along each dim."""
    merged: dict[str, dict[str, Any]] = {}
    for given in silos:
        for own in given:
            known = merged.setdefault(own["name"], dict(own))
            axes = zip(known["labels"], own["labels"], strict=True)
            known["labels"] = [list(dict.fromkeys([*a, *b])) for a, b in axes]
    return list(merged.values())
