"""Means and deviations of a silo's components by column, to compare silos by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.families import (
    GaussianObservations,
    NormalGamma,
    NormalWishart,
    Product,
    Tempered,
)
from klfusion.families.triangles import unpack
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure, head
from klfusion.posteriors.structure.kinds import NAMES, blocks_of, factors_of

KEYS = ("mean", "log_sd", "size")  # of moments
_MOST_COMPONENTS = 20  # the largest
_MOST_COLUMNS = 32  # to look at one by one; of more, so many are looked at together


@dataclass(frozen=True, eq=False)
class ComponentMoments:
    """Means and logarithms of deviations (n, d) of observations, and sizes (n, 1 or d)."""

    mean: FloatArray
    log_sd: FloatArray
    size: FloatArray
    names: tuple[str, ...] | None = None  # where components match by name
    one_by_one: bool = True  # whether one column may differ, and not only all
    there: BoolArray | None = None  # (n, l), of components by name: whether a silo has them

    @classmethod
    def of(cls, posterior: Posterior) -> ComponentMoments | None:
        """The largest components of a silo; None unless they have Gaussian observations."""
        family = posterior.family
        if isinstance(family, Product):
            return cls._of_table(posterior, family)
        if not isinstance(family, GaussianObservations) or not isinstance(family, Tempered):
            return None
        if posterior.structure is not None and posterior.structure.kind == head.KIND:
            return cls._of_head(posterior, posterior.structure)
        size = family.effective_size(posterior.natural)
        rows = np.argsort(-size, kind="stable")[:_MOST_COMPONENTS]
        mean, covariance = family.observation_moments(posterior.natural[rows])
        variance = covariance if covariance.ndim == 2 else np.einsum("nii->ni", covariance)
        own = cls(mean, _half_log(variance), size[rows, None])
        fine = np.isfinite(own.mean).all() and np.isfinite(own.log_sd).all() and (size > 0).all()
        return own if fine else None

    @classmethod
    def _of_head(cls, posterior: Posterior, structure: Structure) -> ComponentMoments | None:
        """The largest classes of a head, which share a deviation within classes."""
        names, prior, arrays = structure.info.get(NAMES), posterior.prior, structure.arrays
        if not isinstance(names, list | tuple) or prior is None:
            return None
        if len(names) != posterior.n_components:
            return None
        added, d = posterior.natural - prior, len(arrays[head.MEAN])
        rows = np.argsort(-added[:, d], kind="stable")
        rows = rows[added[rows, d] >= 1.0]
        counts = added[rows, d, None]
        mean = added[rows, :d] / counts
        between = (counts * (mean - arrays[head.MEAN]) ** 2).sum(axis=0)
        within = np.diag(unpack(arrays[head.SCATTER], d)) - between
        log_sd = _half_log(within / max(counts.sum() - len(rows), 1.0))
        rows, inputs = rows[:_MOST_COMPONENTS], structure.info["map"]["class"] == "NoneType"
        every = np.broadcast_to(log_sd, (len(rows), d))
        own = tuple(str(names[row]) for row in rows)
        return cls(mean[: len(rows)], every, counts[: len(rows)], own, inputs) if own else None

    @classmethod
    def _of_table(cls, posterior: Posterior, family: Product) -> ComponentMoments | None:
        """The largest components of a mixture over columns, as observed; NaN if not a number.

        Numbers of a semicontinuous column are those that differ from the shared value. Where
        logarithms are fitted, moments are those of the log-Normal distribution.
        """
        structure = posterior.structure
        if structure is None or not structure.info.get("schema") or posterior.prior is None:
            return None
        schema, added = structure.info["schema"], posterior.natural - posterior.prior
        column_of = np.repeat(np.arange(len(schema)), [len(blocks_of([own])) for own in schema])
        mean, variance, size = (np.full((len(added), len(schema)), np.nan) for _ in range(3))
        kept = np.ones(len(added), dtype=bool)
        groups = factors_of(blocks_of(schema))
        for (_, factor, own), group in zip(family.parts(added), groups, strict=True):
            if not isinstance(factor, NormalGamma | NormalWishart):
                continue
            d, n, columns = len(group), own[:, -1:], column_of[group]
            if n.mean() < factor.least_count:  # hardly measured
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                mean[:, columns] = own[:, :d] / own[:, d : d + 1]
                squares = np.einsum("nii->ni", unpack(own[:, d + 1 : -1], d))
                squares = squares - own[:, d : d + 1] * mean[:, columns] ** 2
                variance[:, columns] = squares / n
            size[:, columns] = n
            kept &= n[:, 0] >= factor.least_count
        log = np.array([bool(own.get("log")) for own in schema])
        mean[:, log] = np.exp(mean[:, log] + 0.5 * variance[:, log])
        variance[:, log] = mean[:, log] ** 2 * np.expm1(variance[:, log])
        counts = np.nan_to_num(size).sum(axis=1)
        rows = np.argsort(-counts, kind="stable")
        rows = rows[kept[rows] & (counts[rows] > 0)][:_MOST_COMPONENTS]
        mean, log_sd, size = mean[rows], _half_log(variance[rows]), size[rows]
        lacking = ~np.isfinite(mean + log_sd).all(axis=0)
        mean[:, lacking], log_sd[:, lacking], size[:, lacking] = np.nan, np.nan, np.nan
        return cls(mean, log_sd, size) if len(rows) else None

    def of_columns(self, columns: IntArray, *, one_by_one: bool) -> ComponentMoments:
        """The same in fewer columns."""
        mean, log_sd = self.mean[:, columns], self.log_sd[:, columns]
        size = self.size if self.size.shape[1] == 1 else self.size[:, columns]
        return replace(self, mean=mean, log_sd=log_sd, size=size, one_by_one=one_by_one)

    def beside(self, silos: Sequence[ComponentMoments]) -> ComponentMoments:
        """The components of other silos, (l, d); by name, those that may match each, (n, l, d)."""
        if self.names is None:
            mean, log_sd, size = (np.concatenate([getattr(s, k) for s in silos]) for k in KEYS)
            return ComponentMoments(mean, log_sd, size)
        there = np.array([[name in (own.names or ()) for own in silos] for name in self.names])
        found = [np.ones((*there.shape, getattr(self, key).shape[1])) for key in KEYS]
        for number, place in np.argwhere(there):
            other = silos[place]
            row = (other.names or ()).index(self.names[number])
            for array, key in zip(found, KEYS, strict=True):
                array[number, place] = getattr(other, key)[row]
        return ComponentMoments(found[0], found[1], found[2], there=there)


def compared(known: dict[str, ComponentMoments]) -> tuple[list[str], IntArray]:
    """Silos to compare, and columns: those that vary in all of them. ``known`` keeps these.

    Of tables, columns that two silos measured.
    """
    both = [np.concatenate([own.mean, own.log_sd]) for own in known.values()]
    if len(both) < 2 or len({own.shape[1] for own in both}) > 1:
        return [], np.zeros(0, dtype=np.intp)
    fine = np.array([np.isfinite(own).all(axis=0) for own in both])
    lacking = np.array([np.isnan(own).all(axis=0) for own in both])
    columns = np.flatnonzero((fine | lacking).all(axis=0) & (fine.sum(axis=0) > 1))
    one_by_one = len(columns) <= _MOST_COLUMNS and all(own.one_by_one for own in known.values())
    if not one_by_one:
        columns = columns[:: max(-(-len(columns) // _MOST_COLUMNS), 1)]
    for name, own in known.items():
        known[name] = own.of_columns(columns, one_by_one=one_by_one)
    return list(known) if len(columns) else [], columns


def _half_log(variance: FloatArray) -> FloatArray:
    """Logarithms of deviations; of a constant column, minus infinity."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(0.5 * np.log(variance))
