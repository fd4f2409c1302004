"""Checks that silos can be fused, and networks with different classes given the same outputs.

Silos must be of one kind of model with equal features, and none may be counted twice.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.text import brief, few
from klfusion.errors import IncompatibleSilosError, InvalidPosteriorError, KLFusionError
from klfusion.families import DiagonalNormal, Family
from klfusion.families.family import DimensionalFamily
from klfusion.posteriors.aligned_coefficients import align_coefficients
from klfusion.posteriors.categories import align_categories
from klfusion.posteriors.columns import check_schemas
from klfusion.posteriors.posterior import Posterior, check_equal
from klfusion.posteriors.structure import Structure, class_densities, components, head, regression
from klfusion.posteriors.structure.convolution import CONVOLUTIONS
from klfusion.posteriors.structure.kinds import NAMES, SCALING, TOPICS
from klfusion.posteriors.structure.network import KIND, layer_arrays, n_layers
from klfusion.posteriors.structure.words import normalised
from klfusion.posteriors.variables import check_variables
from klfusion.posteriors.vocabularies import align_vocabularies

_MAX_RATIO = 1e9  # of two weights: beyond it, rounding in float64 sums hides the smaller one
_OF_CLASSES = {
    "class": "a model of class", "settings": "the settings", "type": "labels of type",
    "map": "the feature map", "n_inputs": "the number of columns",
}  # fmt: skip
_DEFAULT_NAME = re.compile(r"silo-\d+")  # given to silos without a name


@dataclass(frozen=True, eq=False)
class SiloDescription:
    """A silo without its components: what checks and the assembly of a fusion need."""

    name: str
    family: Family
    n_components: int
    prior: FloatArray | None
    counts: FloatArray | None
    structure: Structure | None
    provenance: Mapping[str, Any]  # of a fusion also the names of its ``silos``


Silo = Posterior | SiloDescription


def aligned_silos(silos: Sequence[Posterior]) -> list[Posterior]:
    """Silos with common words, classes and coefficients, checked by `check_compatible`."""
    posteriors = align(silos)
    check_compatible(posteriors)
    return posteriors


def align(silos: Sequence[Posterior]) -> list[Posterior]:
    """Silos with common words, classes, categories and coefficients, unchecked."""
    posteriors = align_coefficients(align_categories(align_classes(silos)))
    if any(p.structure is not None and p.structure.kind == TOPICS for p in silos):
        posteriors = align_vocabularies(posteriors)
    return posteriors


def component_names(silo: Silo) -> list[str] | None:
    """The names of a silo's components, checked; None if they have none."""
    structure, where = silo.structure, f"silo {silo.name!r}"
    if structure is None:
        return None
    if structure.kind == regression.KIND:  # its one component is the model
        return [regression.KIND]
    if structure.info.get(NAMES) is None:
        return None
    names = regression.names_of(structure.info, NAMES, where)
    if len(names) != silo.n_components:
        raise InvalidPosteriorError(
            f"{where}: expected {silo.n_components} names of components, got {len(names)}"
        )
    return names


def check_compatible(posteriors: Sequence[Silo]) -> None:
    """Refuse silos of different kinds, families or features, equal names, and repeated silos."""
    structures = [(p.name, p.structure) for p in posteriors if p.structure is not None]
    if len(structures) == len(posteriors):
        key, first = "covariance_type", structures[0][1]
        check_equal([(name, s.kind) for name, s in structures], f"a model of kind {first.kind!r}")
        if key in first.info:
            types = [(name, str(s.info[key])) for name, s in structures if key in s.info]
            check_equal(types, f"{key} {types[0][1]!r}")
    for key, what in _OF_CLASSES.items():
        own = [(name, s.info[key]) for name, s in structures if NAMES in s.info and key in s.info]
        check_equal(own, f"{what} {own[0][1]!r}" if own else "")
    _check_probes([(name, s.arrays[head.PROBE]) for name, s in structures if s.kind == head.KIND])
    check_schemas(structures)
    scalings = [(name, s.info.get(SCALING)) for name, s in structures]
    check_equal(scalings, "the agreed scaling")
    features = [(name, s.info.get("features")) for name, s in structures]
    features = [(name, [*map(normalised, own)]) for name, own in features if own is not None]
    if features:
        check_equal(features, f"the features {features[0][1]} in this order,")
    for key in ("variables", "shared"):
        own = [(name, s.info.get(key) or ()) for name, s in structures if s.kind == components.KIND]
        check_variables(own, whole=True)
    families = [(p.name, p.family) for p in posteriors]
    sizes = isinstance(posteriors[0].family, DimensionalFamily)
    alike = sizes and len({type(family) for _, family in families}) == 1
    hint = ": silos need the same columns, as many in each" if alike else ""
    check_equal(families, str(posteriors[0].family), hint)
    name, times = Counter(p.name for p in posteriors).most_common(1)[0]
    if times > 1:
        expected = "expected unique names, as in fuse({name: model})"
        raise IncompatibleSilosError(f"two silos are named {name!r}: {expected}")
    check_counted_once(posteriors)


def _check_probes(probes: Sequence[tuple[str, FloatArray]]) -> None:
    """Refuse silos, as (name, features of the agreed row), with other maps than the first."""
    for name, probe in probes[1:]:
        if not head.same_probe(probes[0][1], probe):
            raise IncompatibleSilosError(
                f"silo {name!r}: expected the same feature map as in silo {probes[0][0]!r}, got "
                "different features of one agreed row"
            )


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
    except (OverflowError, TypeError, ValueError) as error:
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


def align_classes(posteriors: Sequence[Posterior]) -> list[Posterior]:
    """Give every network one output per class of any silo; return other models unchanged.

    An output that a silo lacks gets weights of mean zero and a class count of zero, so the silo
    does not affect that class. This needs the class counts of every silo.
    """
    structures = [p.structure for p in posteriors]
    networks = [s for s in structures if s is not None and s.kind == KIND]
    if len(networks) < len(posteriors):
        return list(posteriors)
    layers = [(p.name, s.info.get(CONVOLUTIONS)) for p, s in zip(posteriors, networks, strict=True)]
    check_equal(layers, f"the convolutions (height, width, kernel, pool) {layers[0][1]}")
    _check_same(posteriors, [int(s.info["n_in"]) for s in networks], "input")
    _check_same(posteriors, [n_layers(s) - 1 for s in networks], "hidden layer")
    classes = [s.info["classes"] for s in networks if "classes" in s.info]
    if len(classes) < len(networks) or all(c == classes[0] for c in classes):
        n_out = [len(layer_arrays(s, n_layers(s) - 1)[0]) for s in networks]
        _check_same(posteriors, n_out, "output")
        return list(posteriors)
    kinds = [sorted({type(label).__name__ for label in own}) for own in classes]
    of_silos = [(p.name, ", ".join(own)) for p, own in zip(posteriors, kinds, strict=True)]
    check_equal(of_silos, f"classes with labels of kind {of_silos[0][1]},")
    for posterior, structure in zip(posteriors, networks, strict=True):
        if "class_counts" not in structure.arrays:
            two = f"{classes[0]} and {next(c for c in classes if c != classes[0])}"
            raise IncompatibleSilosError(
                f"silo {posterior.name!r}: expected class_counts, because silos have different "
                f"classes, {two}; or give all learners the same classes="
            )
    union = sorted({label for own in classes for label in own})
    return [_extended(p, s, union) for p, s in zip(posteriors, networks, strict=True)]


def _check_same(posteriors: Sequence[Posterior], numbers: Sequence[int], what: str) -> None:
    values = [(p.name, number) for p, number in zip(posteriors, numbers, strict=True)]
    check_equal(values, f"a network with {numbers[0]} {what}{'' if numbers[0] == 1 else 's'}")


def _extended(posterior: Posterior, structure: Structure, union: list[Any]) -> Posterior:
    """The network with one output per class of the union."""
    where = np.array([union.index(label) for label in structure.info["classes"]])
    last, size = n_layers(structure) - 1, len(union)
    arrays = dict(structure.arrays)
    arrays |= {key: _padded(arrays[key], where, size) for key in (f"mean.{last}", "class_counts")}
    arrays[f"variance.{last}"] = _filled(arrays[f"variance.{last}"], where, size)
    arrays |= class_densities.extended(arrays, where, size)
    extended = replace(structure, arrays=arrays, info={**structure.info, "classes": union})
    if last > 1:
        return replace(posterior, structure=extended)
    p, inputs = posterior.params(), int(structure.info["n_in"]) + 1
    mean = np.hstack([p["mean"][:, :inputs], _padded(p["mean"][:, inputs:].T, where, size).T])
    spread = _filled(p["variance"][:, inputs:].T, where, size).T
    family = DiagonalNormal(inputs + size)
    natural = family.natural(mean, np.hstack([p["variance"][:, :inputs], spread]))
    return replace(posterior, family=family, natural=natural, structure=extended)


def _padded(values: FloatArray, where: IntArray, size: int) -> FloatArray:
    """Own outputs in their rows; zeros elsewhere."""
    out = np.zeros((size, *values.shape[1:]))
    out[where] = values
    return out


def _filled(variance: FloatArray, where: IntArray, size: int) -> FloatArray:
    """Own outputs in their rows; the geometric mean of these rows elsewhere."""
    out = np.tile(np.exp(np.log(variance).mean(axis=0)), (size, 1))
    out[where] = variance
    return out
