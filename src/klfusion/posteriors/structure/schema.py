"""What a structure of each kind must hold, so that whatever is constructed or loaded is whole."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from klfusion._utils.checks import is_integer
from klfusion.errors import InvalidPosteriorError
from klfusion.families import (
    DiagonalNormal,
    Dirichlet,
    Family,
    IsotropicNormalGamma,
    Normal,
    NormalGamma,
    NormalWishart,
    Product,
)
from klfusion.families.triangles import packed_size
from klfusion.posteriors.structure import class_densities, components, head, regression
from klfusion.posteriors.structure.checked import Checked, Seen, are_texts, are_values, is_positive
from klfusion.posteriors.structure.convolution import CONVOLUTIONS, blocks, is_geometry
from klfusion.posteriors.structure.kinds import MEASURED, VOCABULARY, blocks_of, factors_of
from klfusion.posteriors.structure.structure import Structure
from klfusion.posteriors.structure.words import checked_words, normalised

_MAX_AXES = 32  # limit of numpy 1


def check_structure(structure: Structure, family: Family, n: int, where: str) -> None:
    """Refuse a structure around ``n`` components that cannot be fused, or fused into nonsense."""
    for key, array in structure.arrays.items():
        if not np.isfinite(array).all():
            raise InvalidPosteriorError(
                f"{where}: expected finite numbers in {structure.kind}.{key}, got NaN or infinity"
            )
    check_kind(structure, family, n, where)


def check_kind(
    structure: Structure, family: Family, n: int, where: str, seen: Seen | None = None
) -> None:
    """Refuse a structure that is not one of its kind; its numbers are finite.

    ``seen`` keeps what is known about long entries of infos, which must stay as they are.
    """
    check = _CHECKS.get(structure.kind)
    if check is not None:
        own = Checked(structure, family, n, where, seen)
        check(own)
        own.setting("features", lambda v: v is None or are_texts(v), "names of columns")


def _mixture(own: Checked) -> None:
    own.array("counts", (own.n,))
    own.array("weight_prior", (), above=True)
    _features(own)
    columns = own.setting("schema", _are_columns, "a list of columns with names")
    if columns is not None:
        n = len(own.family.factors) if isinstance(own.family, Product) else 0
        if len(factors_of(blocks := blocks_of(columns))) != n:
            own.refuse("schema", f"columns or blocks of the {n} factors of the family", columns)
        own.array(MEASURED, (own.n, len(blocks)))


def _hmm(own: Checked) -> None:
    own.array("start", (own.n,))
    own.array("transition", (own.n, own.n))
    own.pseudo_counts("start_prior", (own.n,))
    own.pseudo_counts("transition_prior", (own.n, own.n))
    own.setting("frame_weight", lambda v: v is None or is_positive(v), "a number > 0")
    _features(own)


def _features(own: Checked) -> None:
    dim = getattr(own.family, "dim", None)
    expected = f"the names of {dim} columns" if dim else "names of columns"
    names = own.setting("features", lambda v: v is None or are_texts(v), expected)
    if names is not None and dim not in (None, len(names)):
        own.refuse("features", expected, names)
    own.setting("covariance_type", lambda v: v is None or isinstance(v, str), "text")


def _topics(own: Checked) -> None:
    if own.arrays.keys() & {"topic_mass", "doc_topic_prior"}:
        own.array("topic_mass", (own.n,))
        own.pseudo_counts("doc_topic_prior", (own.n,))
    if own.info.get(VOCABULARY) is not None:
        if not isinstance(own.family, Dirichlet):
            expected = "expected topics to be Dirichlet distributions"
            raise InvalidPosteriorError(f"{own.where}: {expected}, got {own.family}")
        checked_words(own.info[VOCABULARY], own.family.dim, own.where)


def _layers(own: Checked) -> None:
    n_in = own.setting("n_in", lambda v: is_integer(v) and v >= 1, "an integer >= 1")
    deep = lambda v: are_texts(v) and len(v) >= 2  # noqa: E731
    names = own.setting("layers", deep, "names of 2 layers or more")
    for key in ("activation", "head"):
        own.setting(key, lambda v: v is None or isinstance(v, str), "text")
    valid = lambda v: is_geometry(v, len(names))  # noqa: E731
    own.setting(CONVOLUTIONS, valid, "height, width, kernel and pool of layers")
    below, sizes = own.n, blocks(own.info, len(names))
    for layer in range(1, len(names)):
        key = f"mean.{layer}"
        shape = own.arrays[key].shape if key in own.arrays else ()
        units = shape[0] if len(shape) == 2 else 1
        columns = below * sizes[layer] + 1
        own.shaped(key, (max(units, 1), columns))
        own.array(f"variance.{layer}", (units, columns), above=True)
        below = units
    _diagonal_normal(own, n_in + 1 + (below if len(names) == 2 else 0))
    for key in {"class_counts", "noise_variance"} & own.arrays.keys():
        own.array(key, (below,))
    if any(key.startswith(("site.", "inputs.")) for key in own.arrays):
        _class_statistics(own, n_in, below)

    labels = own.info.get("classes")
    if labels is not None and not (isinstance(labels, list | tuple) and len(labels) == below):
        own.refuse("classes", f"{below} unique labels", labels)
    own.setting("classes", lambda v: v is None or _are_unique(v), f"{below} unique labels")
    own.setting("features", lambda v: v is None or are_texts(v), "names of columns")


def _are_unique(labels: Sequence[Any]) -> bool:
    return {*map(type, labels)} <= {str, int, float, bool} and len({*labels}) == len(labels)


def _class_statistics(own: Checked, n_in: int, n_out: int) -> None:
    own.shaped(class_densities.INPUT_MEAN, (n_in,))
    own.shaped(class_densities.INPUT_COVARIANCE, (n_in, n_in))
    for site in range(max(class_densities.n_sites(own.arrays), 1)):
        keys = {p: class_densities.key(site, p) for p in class_densities.PARTS}
        basis = own.arrays.get(keys["basis"])
        rank = len(basis) if basis is not None and basis.ndim == 2 and len(basis) else 1
        own.shaped(keys["basis"], (rank, n_in))
        own.array(keys["counts"], (n_out,))
        own.shaped(keys["mean"], (n_out, rank))
        own.shaped(keys["covariance"], (n_out, rank, rank))
        own.array(keys["dispersion"], (), above=True)


def _sites(own: Checked) -> None:
    total = 0
    for key in ("sites", "shared"):
        for site in own.setting(key, lambda v: isinstance(v, list | tuple), "a list of sites"):
            name, shape = _site(own, key, site)
            size = math.prod(shape)
            if key == "sites":
                total += size
                axis = site.get("axis")
                if not (is_integer(axis) and -len(shape) - 1 <= axis <= len(shape)):
                    own.refuse(key, "sites with an axis of components", axis)
            else:
                own.shaped(f"{name}.mean", shape)
                own.array(f"{name}.variance", shape, above=True)
    _diagonal_normal(own, total)


def _diagonal_normal(own: Checked, dim: int) -> None:
    if not (isinstance(own.family, DiagonalNormal) and own.family.dim == dim):
        expected = f"expected {own.kind} to be DiagonalNormal(dim={dim})"
        raise InvalidPosteriorError(f"{own.where}: {expected}, got {own.family}")


def _site(own: Checked, key: str, site: Any) -> tuple[str, tuple[int, ...]]:
    """Name and shape of a site."""
    expected = "sites with a name, a shape and a support"
    if not isinstance(site, Mapping) or not isinstance(site.get("support"), Mapping):
        own.refuse(key, expected, site)
    name, shape = site.get("name"), site.get("shape")
    if not (isinstance(name, str) and isinstance(shape, list | tuple) and len(shape) <= _MAX_AXES):
        own.refuse(key, expected, site)
    if not all(is_integer(length) and length > 0 for length in shape):
        own.refuse(key, expected, site)
    return name, tuple(shape)


def _are_outcomes(value: Any) -> bool:
    """Whether this names an outcome, or a duration and an event, which may have no name."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= 2:
        return False
    return isinstance(value[0], str) and isinstance(value[-1], str | None)


def _regression(own: Checked) -> None:
    names = regression.names_of(own.info, "coordinates", own.where)
    if not (isinstance(own.family, Normal) and own.family.dim == len(names) and own.n == 1):
        expected = f"expected one component of Normal(dim={len(names)}), a dimension per coordinate"
        raise InvalidPosteriorError(f"{own.where}: {expected}, got {own.n} of {own.family}")
    local = own.once("local", lambda _: regression.names_of(own.info, "local", own.where))
    if "columns" in own.info:
        own.once("columns", lambda _: regression.names_of(own.info, "columns", own.where))
    for key in regression.OF_LIKELIHOOD:
        own.setting(key, lambda v: v is None or isinstance(v, str), "text")
    own.setting("variables", lambda v: v is None or _are_variables(v), _VARIABLES)
    own.setting("outcome", lambda v: v is None or _are_outcomes(v), "one or two names of columns")
    for key in ("units", "reference"):
        own.setting(key, lambda v: are_values(v, str), "a mapping of columns to text")
    own.setting("scales", lambda v: are_values(v, int | float), "a mapping of columns to numbers")
    if own.arrays.keys() & {"noise", "freedom"}:
        own.array("noise", (), above=True)
        own.array("n", ())
        if "freedom" in own.arrays:
            own.array("freedom", (), above=True)
    if own.setting("sums", lambda v: v is None or _are_sums(v), _SUMS) is not None:
        columns = own.info["sums"]["columns"]
        if not {*names, *local} <= {*map(normalised, columns)}:
            own.refuse("sums", "of all coefficients", columns)
        q = len(columns)
        for key in ("gram", "matrix"):
            own.shaped(f"sums.{key}", (q, q))
        for key in ("moment", "origin", "largest", "prior"):
            own.shaped(f"sums.{key}", (q,))
        if "sums.squares" in own.arrays:
            own.shaped("sums.squares", ())
    if own.arrays.keys() & {*regression.LOCAL}:
        offset, gain, covariance = regression.LOCAL
        rows = max(len(np.atleast_1d(own.arrays.get(offset, []))), 1)
        own.shaped(offset, (rows, len(local)))
        own.shaped(gain, (rows, len(local), len(names)))
        own.shaped(covariance, (rows, len(local), len(local)))


_SUMS = "columns, the first of them the intercept, and deviations of the noise > 0"


def _are_sums(value: Any) -> bool:
    """Whether sums with noise have columns, and a positive deviation of each noise."""
    if not (isinstance(value, Mapping) and are_texts(value.get("columns"))):
        return False
    columns, noise = value["columns"], value.get("deviations")
    return (
        len({*columns}) == len(columns) > 0
        and columns[0] == "intercept"
        and isinstance(noise, Mapping)
        and {"gram", "moment"} <= noise.keys()
        and all(map(is_positive, noise.values()))
    )


_VARIABLES = "variables with name, dims, labels and support"


def _are_variables(value: Any) -> bool:
    """Whether there are variables of draws: texts along each dim, and a support."""
    return isinstance(value, list | tuple) and all(
        isinstance(v, Mapping)
        and isinstance(v.get("name"), str)
        and isinstance(v.get("support"), Mapping)
        and isinstance(v.get("scale", ""), str)
        and are_texts(v.get("dims"))
        and isinstance(v.get("labels"), list | tuple)
        and all(map(are_texts, v["labels"]))
        and len(v["labels"]) == len(v["dims"])
        for v in value
    )


def _components(own: Checked) -> None:
    for key in ("variables", "shared"):
        own.setting(key, _are_variables, _VARIABLES)
    own.setting("component_dims", lambda v: are_texts(v) and len(v) > 0, "names of dims")
    for key in ("weights", "transition"):
        own.setting(key, lambda v: v is None or isinstance(v, str), "the name of a variable")
    for key, shape in {"counts": (own.n,), "transition": (own.n, own.n)}.items():
        if key in own.arrays:
            own.array(key, shape)
            own.array("weight_prior" if key == "counts" else f"{key}_prior", (), above=True)
    if own.arrays.keys() & {*components.SHARED}:
        size = own.arrays.get(components.SHARED[0], np.zeros(1)).size
        for key, shape in zip(components.SHARED, [(size,), (size, size)] * 2, strict=True):
            own.shaped(key, shape)
    _features(own)


def _classes(own: Checked) -> None:
    own.setting("scales", lambda v: are_values(v, int | float), "a mapping of columns to numbers")
    if own.setting("sums", lambda v: v is None or _are_class_sums(v), _CLASS_SUMS) is not None:
        if not isinstance(own.family, NormalGamma | NormalWishart):
            own.refuse("sums", "of Gaussian classes", own.family)
        d = own.family.dim
        full = isinstance(own.family, NormalWishart)
        own.shaped("sums.classes", (own.n, 1 + d, 1 + d) if full else (own.n, 1 + 2 * d))
        own.shaped("sums.centre", (d,))
        own.array("sums.half", (d,), above=True)


_CLASS_SUMS = "the deviation of the noise and the largest square, both > 0"


def _are_class_sums(value: Any) -> bool:
    keys = ("deviation", "largest")
    return isinstance(value, Mapping) and all(is_positive(value.get(key)) for key in keys)


def _head(own: Checked) -> None:
    if not isinstance(own.family, IsotropicNormalGamma):
        expected = "expected classes of a head to be IsotropicNormalGamma"
        raise InvalidPosteriorError(f"{own.where}: {expected}, got {own.family}")
    dim = own.family.dim
    own.shaped(head.SCATTER, (packed_size(dim),))
    own.shaped(head.MEAN, (dim,))
    own.array(head.ROWS, (1,), above=True)
    own.shaped(head.PROBE, (dim,) if own.arrays.get(head.PROBE, np.ones(1)).size else (0,))
    if head.CALIBRATION in own.arrays:
        own.shaped(head.CALIBRATION, (own.n + 1, own.n))
    named = lambda v: isinstance(v, Mapping) and isinstance(v.get("class"), str)  # noqa: E731
    own.setting("map", named, "a feature map with the name of its class")
    own.setting("n_inputs", lambda v: v is None or (is_integer(v) and v > 0), "an integer > 0")


def _are_columns(value: Any) -> bool:
    """Whether there is nothing, or a list of columns with different names."""
    if value is None:
        return True
    named = isinstance(value, list) and all(isinstance(own, Mapping) for own in value)
    names = [own.get("name") for own in value] if named else []
    return bool(names) and are_texts(names) and len({*names}) == len(names)


_CHECKS: dict[str, Callable[[Checked], None]] = {
    "mixture": _mixture,
    "hmm": _hmm,
    "topics": _topics,
    "layers": _layers,
    "sites": _sites,
    regression.KIND: _regression,
    components.KIND: _components,
    "classes": _classes,
    head.KIND: _head,
}
