"""Posteriors of many silos, checked together: a file may hold a hundred thousand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, Never, TypeVar

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.text import is_unicode
from klfusion.errors import InvalidPosteriorError
from klfusion.families import Family, Product
from klfusion.families.family import CHECKED_ROWS
from klfusion.posteriors.posterior import MAY_BE_FLAT, Posterior
from klfusion.posteriors.structure import Structure, regression
from klfusion.posteriors.structure.checked import Seen
from klfusion.posteriors.structure.schema import check_kind

_T = TypeVar("_T")


class Alike(NamedTuple):
    """Silos whose numbers mean the same, with as many components: float64 arrays ``(m, ...)``."""

    families: Sequence[Family]  # whose factors are equal, not their names
    names: Sequence[str]
    provenances: Sequence[Mapping[str, Any]]
    structures: Sequence[Structure | None]
    forms: IntArray  # equal where families, kinds, infos and shapes of structures are
    natural: FloatArray
    prior: FloatArray | None = None
    counts: FloatArray | None = None

    def silos(self) -> list[Posterior]:
        """One posterior per silo, without a check; arrays are views."""
        for array in (self.natural, self.prior, self.counts):
            if array is not None:
                array.flags.writeable = False
        columns = zip(
            self.families,
            self.natural,
            self.names,
            repeat(None) if self.prior is None else self.prior,
            repeat(None) if self.counts is None else self.counts,
            self.structures,
            self.provenances,
            strict=False,
        )
        return [
            unchecked(
                Posterior,
                {
                    "family": family,
                    "natural": natural,
                    "name": name,
                    "prior": prior,
                    "counts": counts,
                    "structure": structure,
                    "provenance": provenance,
                },
            )
            for family, natural, name, prior, counts, structure, provenance in columns
        ]


class Together:
    """Silos of any form; what `Posterior` checks of each is checked of all at once.

    Numbers are checked by family, structures by form. An error is that of the silo by itself.
    """

    def __init__(self) -> None:
        self._natural: defaultdict[Family, _Rows] = defaultdict(_Rows)  # and priors
        self._flat: defaultdict[tuple[Family, bool], _Rows] = defaultdict(_Rows)
        self._counts = _Rows()
        self._seen: Seen = {}

    def add(self, alike: Alike) -> list[Posterior]:
        """The posteriors, checked but for their numbers, which `check` does."""
        silos, family = alike.silos(), alike.families[0]
        natural, prior, counts = alike.natural, alike.prior, alike.counts
        m, n = len(silos), silos[0].n_components
        if (
            natural.shape != (m, max(n, 1), family.size)
            or (prior is not None and prior.shape != (m, family.size))
            or (counts is not None and counts.shape != (m, n))
        ):
            _refuse(silos)
        if not all(alike.names) or not is_unicode("".join(alike.names)):
            _refuse([silo for silo in silos if not silo.name or not is_unicode(silo.name)])
        by_form: defaultdict[int, list[Posterior]] = defaultdict(list)
        for silo, form in zip(silos, alike.forms.tolist(), strict=True):
            by_form[form].append(silo)
        for equal in by_form.values():
            _check_structures(equal, self._seen)
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
                self._add(alike.families[0], prior[rows], some)
            else:
                self._flat[alike.families[0], convex].add(prior[rows], some)

    def _add(self, family: Family, rows: FloatArray, silos: Sequence[Posterior]) -> None:
        low = 0
        for factor in factors_of(family):
            self._natural[factor].add(rows[:, low : low + factor.size], silos)
            low += factor.size

    def check(self, infinite: Iterable[Posterior] = ()) -> None:
        """Refuse the first silo that is not one by itself; those ``infinite`` are known."""
        for silo in infinite:
            _refuse([silo])
        for family, rows in self._natural.items():
            rows.check(family.inside)
        for (family, convex), rows in self._flat.items():
            rows.check(partial(regression.are_priors, family=family, convex=convex))
        self._counts.check(lambda counts: np.isfinite(counts) & (counts >= 0))


def factors_of(family: Family) -> tuple[Family, ...]:
    """The families of which it is a product, without their names; itself if it is none."""
    if not isinstance(family, Product):
        return (family,)
    return tuple(one for _, factor in family.factors for one in factors_of(factor))


def _check_structures(silos: Sequence[Posterior], seen: Seen) -> None:
    """Check structures of one form: all that is asked of their numbers are lower bounds."""
    first = silos[0]
    own = first.structure
    if own is None:
        return
    if len(silos) > 1:
        every = [silo.structure.arrays for silo in silos if silo.structure is not None]
        lowest = {key: np.min([arrays[key] for arrays in every], axis=0) for key in own.arrays}
        own = unchecked(Structure, {"kind": own.kind, "arrays": lowest, "info": own.info})
    try:
        check_kind(own, first.family, first.n_components, f"silo {first.name!r}", seen)
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


def unchecked(cls: type[_T], values: dict[str, Any]) -> _T:
    """A frozen dataclass without a call of its ``__post_init__``."""
    made = object.__new__(cls)
    object.__setattr__(made, "__dict__", values)
    return made
