"""Posteriors of many silos, checked together: a file may hold a hundred thousand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Never, TypeVar

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.text import is_unicode
from klfusion.errors import InvalidPosteriorError
from klfusion.families import Family, Product
from klfusion.families.family import CHECKED_ROWS
from klfusion.posteriors.posterior import MAY_BE_FLAT, Posterior
from klfusion.posteriors.structure import Structure, regression
from klfusion.posteriors.structure.schema import check_kind

_T = TypeVar("_T")


class Alike(NamedTuple):
    """Silos of one family with as many components: arrays are float64, ``(m, ...)``."""

    family: Family
    names: Sequence[str]
    provenances: Sequence[Mapping[str, Any]]
    structures: Sequence[Structure | None]
    forms: IntArray  # equal where structures have one kind, one info and arrays of one shape
    natural: FloatArray
    prior: FloatArray | None = None
    counts: FloatArray | None = None

    def silos(self) -> list[Posterior]:
        """One posterior per silo, without a check; arrays are views."""
        for array in (self.natural, self.prior, self.counts):
            if array is not None:
                array.flags.writeable = False
        return [
            unchecked(
                Posterior,
                family=self.family,
                natural=self.natural[j],
                name=name,
                prior=None if self.prior is None else self.prior[j],
                counts=None if self.counts is None else self.counts[j],
                structure=self.structures[j],
                provenance=self.provenances[j],
            )
            for j, name in enumerate(self.names)
        ]


class Together:
    """Silos of any form; what `Posterior` checks of each is checked of all at once.

    Numbers are checked by family, structures by form. An error is that of the silo by itself.
    """

    def __init__(self) -> None:
        self._natural: defaultdict[Family, _Rows] = defaultdict(_Rows)  # and priors
        self._flat: defaultdict[tuple[Family, bool], _Rows] = defaultdict(_Rows)
        self._counts = _Rows()

    def add(self, alike: Alike) -> list[Posterior]:
        """The posteriors, checked but for their numbers, which `check` does."""
        silos, family = alike.silos(), alike.family
        natural, prior, counts = alike.natural, alike.prior, alike.counts
        m, n = len(silos), silos[0].n_components
        if (
            natural.shape != (m, max(n, 1), family.size)
            or (prior is not None and prior.shape != (m, family.size))
            or (counts is not None and counts.shape != (m, n))
        ):
            _refuse(silos)
        for silo in silos:
            if not silo.name or not is_unicode(silo.name):
                _refuse([silo])
        for rows in _places_of_equal(alike.forms):
            _check_structures([silos[j] for j in rows])
        if prior is not None:
            self._add_priors(alike, prior, silos)
        self._add(family, natural.reshape(m * n, -1), silos)
        if counts is not None:
            self._counts.add(counts.ravel(), silos)
        return silos

    def _add_priors(self, alike: Alike, prior: FloatArray, silos: Sequence[Posterior]) -> None:
        which: defaultdict[bool | None, list[int]] = defaultdict(list)
        for j, own in enumerate(alike.structures):
            flat = own is not None and own.kind in MAY_BE_FLAT
            which["variables" in own.info if own is not None and flat else None].append(j)
        for convex, rows in which.items():
            some = [silos[j] for j in rows]
            if convex is None:
                self._add(alike.family, prior[rows], some)
            else:
                self._flat[alike.family, convex].add(prior[rows], some)

    def _add(self, family: Family, rows: FloatArray, silos: Sequence[Posterior]) -> None:
        if isinstance(family, Product):
            for _, factor, columns in family.parts(rows):
                self._add(factor, columns, silos)
        else:
            self._natural[family].add(rows, silos)

    def check(self, infinite: Iterable[Posterior] = ()) -> None:
        """Refuse the first silo that is not one by itself; those ``infinite`` are known."""
        for silo in infinite:
            _refuse([silo])
        for family, rows in self._natural.items():
            rows.check(family.inside)
        for (family, convex), rows in self._flat.items():
            rows.check(partial(regression.are_priors, family=family, convex=convex))
        self._counts.check(lambda counts: np.isfinite(counts) & (counts >= 0))


def _places_of_equal(forms: IntArray) -> Iterator[IntArray]:
    """Where each form is."""
    if len(forms) == 1:
        yield np.zeros(1, dtype=np.intp)
        return
    order, low = np.argsort(forms, kind="stable"), 0
    for high in np.cumsum(np.unique(forms, return_counts=True)[1]):
        yield order[low:high]
        low = high


def _check_structures(silos: Sequence[Posterior]) -> None:
    """Check structures of one form: all that is asked of their numbers are lower bounds."""
    first = silos[0]
    own = first.structure
    if own is None:
        return
    if len(silos) > 1:
        every = [silo.structure.arrays for silo in silos if silo.structure is not None]
        lowest = {key: np.min([arrays[key] for arrays in every], axis=0) for key in own.arrays}
        own = unchecked(Structure, kind=own.kind, arrays=lowest, info=own.info)
    try:
        check_kind(own, first.family, first.n_components, f"silo {first.name!r}")
    except InvalidPosteriorError:
        for silo in silos:  # zeros in different places are no zeros
            replace(silo)


class _Rows:
    """Rows of numbers that one call checks, and the silos that have them, equally many each."""

    def __init__(self) -> None:
        self.rows: list[FloatArray] = []
        self.silos: list[Sequence[Posterior]] = []

    def add(self, rows: FloatArray, silos: Sequence[Posterior]) -> None:
        self.rows.append(rows)
        self.silos.append(silos)

    def check(self, are_good: Callable[[FloatArray], BoolArray]) -> None:
        """Refuse the silo of the first bad row."""
        rows = np.concatenate(self.rows) if self.rows else np.empty(0)
        for low in range(0, len(rows), CHECKED_ROWS):
            good = are_good(rows[low : low + CHECKED_ROWS])
            if not good.all():
                _refuse([self._silo(low + int(np.argmin(good)))])

    def _silo(self, row: int) -> Posterior:
        """The silo that has a row."""
        lengths = np.array([len(rows) for rows in self.rows])
        k = int(np.searchsorted(np.cumsum(lengths), row, side="right"))
        within = row - int(lengths[:k].sum())
        return self.silos[k][within * len(self.silos[k]) // int(lengths[k])]


def _refuse(silos: Sequence[Posterior]) -> Never:
    """Make posteriors by themselves, which checks them, until one is refused."""
    for silo in silos:
        replace(silo)
    raise InvalidPosteriorError(f"silo {silos[0].name!r}: expected numbers of {silos[0].family}")


def unchecked(cls: type[_T], /, **fields: Any) -> _T:
    """A frozen dataclass without a call of its ``__post_init__``."""
    made = object.__new__(cls)
    vars(made).update(fields)
    return made
