"""Posteriors of many silos in one form, checked at once: a file may hold a hundred thousand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.errors import InvalidPosteriorError
from klfusion.families import Family
from klfusion.posteriors.posterior import MAY_BE_FLAT, Posterior
from klfusion.posteriors.structure import Structure

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Alike:
    """Silos of one family, of one kind and info of structure, with arrays of the same shapes.

    Arrays, also those of the structure, are float64 and ``(m, ...)``: a row per silo.
    """

    family: Family
    names: Sequence[str]
    provenances: Sequence[Mapping[str, Any]]
    structure: Structure | None
    natural: FloatArray
    prior: FloatArray | None = None
    counts: FloatArray | None = None

    def posteriors(self) -> list[Posterior]:
        """One per silo. Where a check of all fails, halves are checked, down to a single silo."""
        half = len(self.names) // 2
        try:
            self._check()
        except MemoryError:
            raise
        except Exception:  # a family may be user code
            if half:
                both = self._some(slice(half)), self._some(slice(half, None))
                return [posterior for own in both for posterior in own.posteriors()]
            natural, prior, counts = self._rows(0)
            name, own, provenance = self.names[0], self._some(0).structure, self.provenances[0]
            return [Posterior(self.family, natural, name, prior, counts, own, provenance)]
        for array in (*self._arrays, *self._around.values()):
            if array is not None:
                array.flags.writeable = False
        return [self._checked(j) for j in range(len(self.names))]

    @property
    def _arrays(self) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
        return self.natural, self.prior, self.counts

    @property
    def _around(self) -> Mapping[str, FloatArray]:
        return {} if self.structure is None else self.structure.arrays

    def _some(self, rows: Any) -> Alike:
        own = self.structure
        if own is not None:
            own = replace(own, arrays={key: array[rows] for key, array in own.arrays.items()})
        arrays = self._rows(rows)
        return Alike(self.family, self.names[rows], self.provenances[rows], own, *arrays)

    def _rows(self, rows: Any) -> Iterator[Any]:
        """Natural parameters, prior and counts of some silos."""
        return (None if array is None else array[rows] for array in self._arrays)

    def _check(self) -> None:
        """Refuse all if one is bad; all may be refused though none is."""
        family, own = self.family, self.structure
        for array in (*self._arrays, *self._around.values()):
            if array is not None and not np.isfinite(array).all():
                raise InvalidPosteriorError("expected finite numbers")
        if not all(self.names):
            raise InvalidPosteriorError("expected names")
        # All that is asked of counts, and of arrays of a structure, is a shape and a lower bound.
        if own is not None:
            own = replace(own, arrays={key: a.min(axis=0) for key, a in self._around.items()})
        counts = None if self.counts is None else self.counts.min(axis=0)
        priors = [None]
        if self.prior is not None:
            if own is not None and own.kind in MAY_BE_FLAT:
                priors = [*np.unique(self.prior, axis=0)]
            else:
                family.check(self.prior)
                priors = [self.prior[0]]
        for prior in priors:
            Posterior(family, self.natural[0], "".join(self.names), prior, counts, own)
        family.check(self.natural.reshape(-1, family.size))

    def _checked(self, j: int) -> Posterior:
        """The posterior of one silo, without a check; its arrays are views."""
        own = self.structure
        if own is not None:
            around = {key: array[j, ...] for key, array in own.arrays.items()}
            own = _made(Structure, kind=own.kind, arrays=around, info=own.info)
        natural, prior, counts = self._rows(j)
        return _made(
            Posterior,
            family=self.family,
            natural=natural,
            name=self.names[j],
            prior=prior,
            counts=counts,
            structure=own,
            provenance=self.provenances[j],
        )


def _made(cls: type[_T], /, **fields: Any) -> _T:
    """A frozen dataclass without a call of its ``__post_init__``."""
    made = object.__new__(cls)
    vars(made).update(fields)
    return made
