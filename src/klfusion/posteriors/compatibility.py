"""Checks that silos can be fused: one kind of model, equal features, no silo counted twice."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import brief, few
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.families import Family
from klfusion.posteriors.categories import align_categories
from klfusion.posteriors.classes import align_classes
from klfusion.posteriors.coefficients import align_coefficients
from klfusion.posteriors.posterior import Posterior, check_equal
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.vocabularies import align_vocabularies

_MAX_RATIO = 1e9  # of two weights: beyond it, rounding in float64 sums hides the smaller one
_DEFAULT_NAME = re.compile(r"silo-\d+")  # given to silos without a name


class Silo(Protocol):
    """The attributes that the checks read; `Posterior` has them."""

    @property
    def name(self) -> str:
        """Unique within a fusion."""

    @property
    def n_components(self) -> int:
        """As it was sent."""

    @property
    def family(self) -> Family:
        """Family of its components."""

    @property
    def prior(self) -> FloatArray | None:
        """Natural parameters of the prior that its components share."""

    @property
    def counts(self) -> FloatArray | None:
        """Expected number of observations per component."""

    @property
    def structure(self) -> Structure | None:
        """Arrays and settings around the components."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Versions and settings; for a fusion also the names of its ``silos``."""


def aligned_silos(silos: Sequence[Posterior]) -> list[Posterior]:
    """Silos with common words, classes and coefficients, checked by `check_compatible`."""
    posteriors = align(silos)
    check_compatible(posteriors)
    return posteriors


def align(silos: Sequence[Posterior]) -> list[Posterior]:
    """Silos with common words, classes, categories and coefficients, unchecked."""
    posteriors = list(silos)
    for aligned in (align_vocabularies, align_classes, align_categories, align_coefficients):
        posteriors = aligned(posteriors)
    return posteriors


def check_compatible(posteriors: Sequence[Silo]) -> None:
    """Refuse silos of different kinds, families or features, equal names, and repeated silos."""
    structures = [(p.name, p.structure) for p in posteriors if p.structure is not None]
    if len(structures) == len(posteriors):
        key, first = "covariance_type", structures[0][1]
        check_equal([(name, s.kind) for name, s in structures], f"a model of kind {first.kind!r}")
        if key in first.info:
            types = [(name, str(s.info[key])) for name, s in structures if key in s.info]
            check_equal(types, f"{key} {types[0][1]!r}")
    check_equal([(p.name, p.family) for p in posteriors], str(posteriors[0].family))
    features = [(name, s.info.get("features")) for name, s in structures]
    features = [(name, names) for name, names in features if names is not None]
    if features:
        check_equal(features, f"the features {features[0][1]} in this order,")
    name, times = Counter(p.name for p in posteriors).most_common(1)[0]
    if times > 1:
        expected = "expected unique names, as in fuse({name: model})"
        raise IncompatibleSilosError(f"two silos are named {name!r}: {expected}")
    check_counted_once(posteriors)


def counted(silo: Silo) -> list[str]:
    """Names of the silos whose observations a posterior counts."""
    names = silo.provenance.get("silos")
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return names
    return [silo.name]


def check_counted_once(posteriors: Sequence[Silo]) -> None:
    """Refuse a silo that is given by itself and in a fusion, or in two fusions."""
    holder: dict[str, Silo] = {}
    for posterior in posteriors:
        fused = "silos" in posterior.provenance
        again = [
            name
            for name in counted(posterior)
            if (other := holder.setdefault(name, posterior)).name != posterior.name
            # Default names repeat between fusions, so equal ones may be different silos.
            and not (_DEFAULT_NAME.fullmatch(name) and fused and "silos" in other.provenance)
        ]
        if again:
            fusion = posterior if fused else holder[again[0]]
            raise IncompatibleSilosError(
                f"silos counted twice: {few(again)}, within {fusion.name!r} and beside it; "
                "expected each by itself or in one fusion; if they are different silos, name them: "
                "fuse({name: model})"
            )


def silo_weights(weights: Any, posteriors: Sequence[Silo]) -> FloatArray:
    """One weight per silo, (J,), from an array, a mapping from names, or None for ones."""
    if weights is None:
        return np.ones(len(posteriors))
    if hasattr(weights, "items"):  # a mapping, or a pandas Series
        by_name, names = dict(weights.items()), {p.name for p in posteriors}
        if set(by_name) != names:
            wrong = f"missing or unknown: {few(sorted(names ^ set(by_name), key=str))}"
            expected = f"expected one for each of {few(sorted(names))}, and no others"
            raise KLFusionError(f"weights: {expected}; {wrong}")
        weights = [by_name[p.name] for p in posteriors]
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise KLFusionError(f"weights: expected numbers, got {brief(weights)}") from error
    n_silos, shape = len(posteriors), values.shape
    if shape != (n_silos,):
        raise KLFusionError(f"weights: expected one for each of {n_silos} silos, got shape {shape}")
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(bad):
        where, got = f"silo {posteriors[bad[0]].name!r}", values[bad[0]]
        raise KLFusionError(f"{where}: expected a finite weight > 0, got {got}")
    low, high = int(values.argmin()), int(values.argmax())
    if values[high] > _MAX_RATIO * values[low]:
        raise KLFusionError(
            f"weights: expected the largest to be at most {_MAX_RATIO:g} times the smallest, "
            f"or rounding hides it, got {values[high]:g} for silo {posteriors[high].name!r} "
            f"and {values[low]:g} for silo {posteriors[low].name!r}"
        )
    return values
