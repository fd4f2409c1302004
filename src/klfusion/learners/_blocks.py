"""Blocks of continuous columns with a full covariance, and the layout of all columns.

Within a component a block is Gaussian with a Normal-Wishart posterior. The fit counts rows in which
all cells of a block are measured. Predictions use every measured cell: a part of a multivariate
Student's t is one, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.families import Dirichlet, Family, Gamma, NormalGamma, NormalWishart, Product
from klfusion.families.gaussian import LOG_2PI
from klfusion.families.triangles import pack
from klfusion.learners._columns import Gaussians, Part, PriorStrength, Rates, Tables, log_volume
from klfusion.learners.column import CONTINUOUS, COUNTS, Column
from klfusion.learners.schema import Schema
from klfusion.posteriors.structure.kinds import factors_of


class Block(Gaussians):
    """Continuous columns with a full covariance."""

    @cached_property
    def joint(self) -> NormalWishart:
        """Of the block."""
        return NormalWishart(len(self.columns))

    @property
    def index(self) -> IntArray:
        return np.asarray(self.first[0] + np.arange(self.joint.size))

    def prior(self, strength: PriorStrength) -> FloatArray:
        """Each column by itself has the prior that it has without a block."""
        d, worth = len(self.columns), strength.variance
        scatter = worth * np.eye(d)[None]
        return np.asarray(
            self.joint.natural(np.zeros((1, d)), [strength.mean], scatter, [worth + d - 1.0])[0]
        )

    def mean(self, natural: FloatArray) -> FloatArray:
        return self.joint.mean(natural)

    def log_partition(self, natural: FloatArray) -> FloatArray:
        return self.joint.log_partition(natural)

    def in_units(self, natural: FloatArray) -> FloatArray:
        return self._scaled(natural, *self.units)

    def from_units(self, natural: FloatArray) -> FloatArray:
        centre, scale = self.units
        return self._scaled(natural, -centre / scale, 1.0 / scale)

    def _scaled(self, natural: FloatArray, centre: FloatArray, scale: FloatArray) -> FloatArray:
        p = self.joint.params(natural)
        scatter = np.outer(scale, scale) * p["scale_inv"]
        return self.joint.natural(centre + scale * p["mean"], p["kappa"], scatter, p["dof"])

    def statistics(self, values: FloatArray) -> list[FloatArray]:
        one: FloatArray = np.asarray(~np.isnan(values).any(axis=1), dtype=np.float64)
        x = np.where(one[:, None] > 0, values, 0.0)
        return [*x.T, one, *pack(x[:, :, None] * x[:, None, :]).T, one]

    def measured(self, sums: FloatArray) -> FloatArray:
        return np.repeat(sums[:, -1:], len(self.columns), axis=1)

    def log_base(self, values: FloatArray) -> float:
        rows = values[~np.isnan(values).any(axis=1)]
        own = float((0.5 * LOG_2PI + np.log(self.units[1])).sum())
        return -len(rows) * own - log_volume(rows, self)

    def _joint_t(self, natural: FloatArray, prior: FloatArray) -> tuple[FloatArray, ...]:
        """Mean (K, d), shape (K, d, d) and degrees of freedom (K,) of multivariate t."""
        p, before = self.joint.params(natural), self.joint.params(prior[None])
        kappa = before["kappa"] + p["dof"] - before["dof"]
        dof = p["dof"] - len(self.columns) + 1.0
        shape = p["scale_inv"] * ((kappa + 1.0) / (kappa * dof))[:, None, None]
        return p["mean"], shape, dof

    def log_predictive(self, natural: FloatArray, prior: FloatArray, values: FloatArray) -> Any:
        mean, shape, dof = self._joint_t(natural, prior)
        out = np.zeros((len(values), len(natural)))
        for rows, own in _patterns(~np.isnan(values)):
            d = len(own)
            for k in range(len(natural) if d else 0):
                factor = np.linalg.cholesky(shape[k][np.ix_(own, own)])
                z = np.linalg.solve(factor, (values[np.ix_(rows, own)] - mean[k, own]).T)
                at_mean = gammaln(0.5 * (dof[k] + d)) - gammaln(0.5 * dof[k])
                at_mean -= 0.5 * d * np.log(dof[k] * np.pi) + np.log(np.diag(factor)).sum()
                square = np.square(z).sum(axis=0)
                out[rows, k] = at_mean - 0.5 * (dof[k] + d) * np.log1p(square / dof[k])
        return out

    def typical(
        self, natural: FloatArray, prior: FloatArray, there: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        _, shape, dof = self._joint_t(natural, prior)
        average, variance = (np.zeros((len(there), len(natural))) for _ in range(2))
        for rows, own in _patterns(there > 0):
            d = len(own)
            if d:
                a, b = 0.5 * dof, 0.5 * (dof + d)
                log_det = np.linalg.slogdet(shape[:, own][:, :, own])[1]
                at_mean = gammaln(b) - gammaln(a) - 0.5 * (d * np.log(dof * np.pi) + log_det)
                average[rows] = at_mean - b * (digamma(b) - digamma(a))
                variance[rows] = b**2 * (polygamma(1, a) - polygamma(1, b))
        return average, variance

    def imputed(self, natural: FloatArray, share: FloatArray, values: FloatArray) -> FloatArray:
        """Expected values, given the measured cells of the block."""
        p = self.joint.params(natural)
        out = share @ p["mean"]
        for rows, own in _patterns(~np.isnan(values)):
            rest = np.setdiff1d(np.arange(len(self.columns)), own)
            if len(own) and len(rest):
                out[np.ix_(rows, rest)] = 0.0
                for k, scatter in enumerate(p["scale_inv"]):
                    slope = np.linalg.solve(scatter[np.ix_(own, own)], scatter[np.ix_(own, rest)])
                    away = values[np.ix_(rows, own)] - p["mean"][k, own]
                    expected = p["mean"][k, rest] + away @ slope
                    out[np.ix_(rows, rest)] += share[rows, k, None] * expected
        return np.asarray(out)


def _patterns(there: Any) -> Iterator[tuple[IntArray, IntArray]]:
    """Rows with the same measured cells, and those cells."""
    patterns, of_row = np.unique(there, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield np.flatnonzero(of_row.ravel() == number), np.flatnonzero(pattern)


# Layout -----------------------------------------------------------------------------------------


def groups_of(schema: Schema) -> list[list[int]]:
    """The expanded columns of each factor."""
    return factors_of([column.block for column in schema.expanded])


def product_of(schema: Schema) -> Product:
    """One factor per expanded column or block; dots in names become underscores."""
    columns = schema.expanded.columns
    own = [[columns[k] for k in group] for group in groups_of(schema)]
    names = [(group[0].block or group[0].name).replace(".", "_") for group in own]
    if len(set(names)) < len(names):
        names = [f"{name} [{k}]" for k, name in enumerate(names)]
    return Product(**dict(zip(names, map(_family, own), strict=True)))


def _family(columns: list[Column]) -> Family:
    first = columns[0]
    if first.block is not None:
        return NormalWishart(len(columns))
    if first.kind == CONTINUOUS:
        return NormalGamma(1)
    return Gamma(1) if first.kind == COUNTS else Dirichlet(len(first.categories))


_PARTS: dict[str, type[Part]] = {CONTINUOUS: Gaussians, COUNTS: Rates}


def parts_of(schema: Schema, family: Product) -> list[Part]:
    """The expanded columns of a schema by kind, and each block; ``family`` has their factors."""
    columns = schema.expanded.columns
    sizes = [factor.size for _, factor in family.factors]
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
    made: dict[Any, tuple[type[Part], list[int], list[int]]] = {}
    for group, start in zip(groups_of(schema), first.tolist(), strict=True):
        column = columns[group[0]]
        cls = Block if column.block is not None else _PARTS.get(column.kind, Tables)
        _, places, firsts = made.setdefault(column.block or cls, (cls, [], []))
        places += group
        firsts.append(start)
    return [
        cls(tuple(columns[k] for k in places), np.array(places), np.array(firsts))
        for cls, places, firsts in made.values()
    ]


def two_part_means(schema: Schema, family: Product, natural: FloatArray) -> dict[str, FloatArray]:
    """Expected values (K,) of each semicontinuous column in components with posteriors (K, p)."""
    factors = zip(groups_of(schema), family.parts(natural), strict=True)
    by_place = {group[0]: (factor, own) for group, (_, factor, own) in factors}
    out, place = {}, 0
    for column in schema:
        if column.point_mass is not None:
            (_, whether), (factor, how_much) = by_place[place], by_place[place + 1]
            at = whether[:, 0] / whether.sum(axis=1)
            mean = column.in_units(factor.params(how_much)["mean"][:, 0])
            out[column.name] = at * column.point_mass + (1.0 - at) * mean
        place += len(column.expanded)
    return out
