"""Variables of a model by name: their dims, coords and supports, and draws as one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import brief, few
from klfusion.draws.supports import Support, guessed, unbounded
from klfusion.draws.transforms import shape_of
from klfusion.errors import InvalidPosteriorError, KLFusionError

_FRACTIONS = 2.0**23  # numbers above have none in float32


@dataclass(frozen=True)
class Variable:
    """A variable: a name, the labels along each named axis, and a support.

    Coordinates are in units of the variable ``scale``, where there is one.
    """

    name: str
    dims: tuple[str, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()
    support: Support = field(default_factory=Support)
    scale: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one draw."""
        return tuple(len(own) for own in self.labels)

    @property
    def free_shape(self) -> tuple[int, ...]:
        """Of the unconstrained coordinates of one draw."""
        batch = len(self.shape) - self.support.event_dim
        return (*self.shape[:batch], *self.support.transform.free_shape(self.shape[batch:]))

    @property
    def size(self) -> int:
        """Number of unconstrained coordinates."""
        return prod(self.free_shape)

    @property
    def coordinates(self) -> list[str]:
        """Names of the unconstrained coordinates."""
        return self._called(self.support.transform.label + (f"/{self.scale}" if self.scale else ""))

    @property
    def names(self) -> list[str]:
        """What coordinates are called in messages: as the user calls the variable."""
        return self._called("{}")

    def _called(self, label: str) -> list[str]:
        batch = len(self.shape) - self.support.event_dim
        axes = [*self.labels[:batch]]
        axes += [tuple(map(str, range(n))) for n in self.free_shape[batch:]]
        where = (f"[{', '.join(at)}]" if at else "" for at in product(*axes))
        if self.support.event_dim == 0:
            return [label.format(f"{self.name}{at}") for at in where]
        return [f"{label.format(self.name)}{at}" for at in where]

    def without(self, dim: str) -> Variable:
        """The variable of one label of a dim."""
        kept = [k for k, own in enumerate(self.dims) if own != dim]
        dims = tuple(self.dims[k] for k in kept)
        return replace(self, dims=dims, labels=tuple(self.labels[k] for k in kept))

    def along(self, unit: Variable, values: Any, xp: Any = np) -> Any:
        """Values of a unit, which has some of the dims, with an axis for each of this variable."""
        lead = shape_of(values)[: len(shape_of(values)) - len(unit.shape)]
        sizes = zip(self.dims, self.shape, strict=True)
        return xp.reshape(values, (*lead, *(n if dim in unit.dims else 1 for dim, n in sizes)))

    def unconstrain(self, values: FloatArray) -> FloatArray:
        """Values ``(..., *shape)`` as coordinates ``(..., size)``."""
        lead = values.shape[: values.ndim - len(self.shape)]
        return self.support.transform.unconstrain(values).reshape(*lead, self.size)

    def constrain(self, x: Any, xp: Any = np) -> Any:
        """Values ``(..., *shape)`` at coordinates ``(..., size)``."""
        lead = shape_of(x)[:-1]
        return self.support.transform.constrain(xp.reshape(x, (*lead, *self.free_shape)), xp)

    def log_jacobian(self, x: FloatArray) -> FloatArray:
        """Of coordinates (n, size): (n, size) for a support without events, else (n,)."""
        free = self.support.transform.log_jacobian(x.reshape(len(x), *self.free_shape))
        if self.support.event_dim == 0:
            return free.reshape(len(x), -1)
        return np.asarray(free.reshape(len(x), -1).sum(axis=1))

    def to_json(self) -> dict[str, Any]:
        """A mapping for files."""
        labels = [list(own) for own in self.labels]
        support = self.support.to_json()
        own = {"name": self.name, "dims": [*self.dims], "labels": labels, "support": support}
        return own if self.scale is None else {**own, "scale": self.scale}

    @classmethod
    def of(cls, given: Any, where: str) -> Variable:
        """From what `to_json` wrote, checked because files are not trusted."""
        try:
            dims, labels = tuple(map(str, given["dims"])), given["labels"]
            names = tuple(tuple(map(str, own)) for own in labels)
            support, scale = Support.of(given["support"], where), given.get("scale")
            found = cls(str(given["name"]), dims, names, support, scale)
            if len(dims) != len(names) or len(dims) < found.support.event_dim:
                raise ValueError
        except (KeyError, TypeError, ValueError) as error:
            expected = "expected a variable with name, dims, labels and support"
            raise InvalidPosteriorError(f"{where}: {expected}, got {brief(given)}") from error
        return found


def variables_of(structure: Any, where: str) -> list[Variable]:
    """The variables of a structure's ``info``."""
    given = structure.info.get("variables") if structure is not None else None
    if not isinstance(given, list | tuple) or not given:
        raise KLFusionError(f"{where}: expected a posterior of draws, as kf.from_draws makes it")
    return [Variable.of(one, where) for one in given]


def names_of(structure: Any, coordinates: Sequence[str]) -> list[str]:
    """What the user calls these coordinates, each once; those of other models stay as they are."""
    given = structure.info.get("variables") if structure is not None else None
    made = [Variable.of(one, "variables") for one in given or ()]
    known = {key: name for v in made for key, name in zip(v.coordinates, v.names, strict=True)}
    return list(dict.fromkeys(known.get(key, key) for key in coordinates))


def columns_of(variables: Sequence[Variable]) -> Iterator[tuple[Variable, slice]]:
    """Each variable and its columns in a table of coordinates."""
    low = 0
    for variable in variables:
        yield variable, slice(low, low + variable.size)
        low += variable.size


def constrained(variables: Sequence[Variable], table: Any, xp: Any = np) -> dict[str, Any]:
    """Values of all variables at coordinates ``(..., d)``, out of units of scales."""
    found = {v.name: v.constrain(table[..., own], xp) for v, own in columns_of(variables)}
    units = {v.name: v for v in variables}
    for variable in variables:
        if variable.scale is not None:
            scale = variable.along(units[variable.scale], found[variable.scale], xp)
            found[variable.name] = found[variable.name] * scale
    return found


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of several variables: arrays ``(chains, draws, *shape)`` by variable.

    Values of a variable with a scale are in its units.
    """

    variables: tuple[Variable, ...]
    values: Mapping[str, FloatArray]
    n_divergent: int = 0

    @property
    def coordinates(self) -> list[str]:
        """Names of all unconstrained coordinates."""
        return [name for v in self.variables for name in v.coordinates]

    def table(self) -> FloatArray:
        """Unconstrained coordinates, ``(chains, draws, d)``."""
        parts = [v.unconstrain(self.values[v.name]) for v in self.variables]
        return np.concatenate(parts, axis=-1)

    def doubts(self) -> list[str]:
        """What is doubtful about the supports of real variables."""
        real = [v for v in self.variables if v.support.kind == "real" and v.scale is None]
        values = {v.name: self.values[v.name].reshape(-1, v.size) for v in real}
        return [text for name, own in values.items() for text in unbounded(name, own)]

    def columns(self) -> Iterator[tuple[Variable, slice]]:
        """Each variable and its columns in the table."""
        return columns_of(self.variables)

    def scaled_by(
        self, scales: Mapping[str, str], where: str, components: Sequence[str] = ()
    ) -> Draws:
        """Variables in units of others, one per component: ``{"beta": "sigma"}``."""
        made, values = {v.name: v for v in self.variables}, dict(self.values)
        for name, scale in scales.items():
            here = f"{where}: scales"
            if name not in made or scale not in made:
                missing = few([key for key in (name, scale) if key not in made])
                raise KLFusionError(f"{here}: expected names of {few([*made])}, got {missing}")
            own, unit = made[name], made[scale]
            alone = unit.support.event_dim == 0 and {*unit.dims} <= {*components} & {*own.dims}
            if own.support.kind != "real" or not alone or not (values[scale] > 0).all():
                each = " per component" if components else ""
                raise KLFusionError(
                    f"{here}: expected a real variable and a positive number{each}, got {name!r} "
                    f"({own.support.kind}) and {scale!r} of shape {unit.shape}"
                )
            made[name] = replace(own, scale=scale)
            made[scale] = replace(unit, support=Support("inverse"))
            values[name] = values[name] / own.along(unit, values[scale])
        return replace(self, variables=tuple(made.values()), values=values)


def read_draws(
    draws: Mapping[str, Any],
    where: str,
    *,
    variables: Sequence[str] | None = None,
    supports: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    diverging: Any = None,
) -> Draws:
    """Check draws by name; see `klfusion.from_draws`."""
    if not isinstance(draws, Mapping) or not draws:
        expected = "expected a mapping of names to arrays (chain, draw, ...)"
        raise KLFusionError(f"{where}: {expected}, got {brief(draws)}")
    names = [str(name) for name in draws] if variables is None else [*variables]
    for what, given in {"variables": names, "supports": supports, "dims": dims}.items():
        unknown = [key for key in given or () if key not in draws]
        if unknown:
            known, got = few([*draws]), few(unknown)
            raise KLFusionError(f"{where}: {what}: expected names of {known}, got {got}")
    values = {name: _array(name, draws[name], where) for name in names}
    first = names[0]
    for name, array in values.items():
        if array.shape[:2] != values[first].shape[:2]:
            expected = f"{values[first].shape[:2]} chains and draws as of {first!r}"
            raise KLFusionError(f"{where}: {name!r}: expected {expected}, got {array.shape[:2]}")
    labels = {str(dim): tuple(map(str, own)) for dim, own in (coords or {}).items()}
    made = tuple(
        _variable(name, own, (supports or {}).get(name), (dims or {}).get(name), labels, where)
        for name, own in values.items()
    )
    n_divergent = 0 if diverging is None else int(np.count_nonzero(np.asarray(diverging)))
    return Draws(made, values, n_divergent)


def _array(name: str, given: Any, where: str) -> FloatArray:
    array = np.asarray(given)
    if array.dtype.kind in "iub" or _whole(array):
        got = "whole numbers" if array.dtype.kind == "f" else array.dtype
        raise KLFusionError(
            f"{where}: {name!r}: expected draws of a continuous variable, got {got}: "
            "marginalise discrete variables out, and name the others in variables="
        )
    if array.dtype.kind != "f":
        raise KLFusionError(f"{where}: {name!r}: expected an array of numbers, got {array.dtype}")
    if array.ndim < 2 or 0 in array.shape:
        expected = "expected an array (chain, draw, ...)"
        raise KLFusionError(f"{where}: {name!r}: {expected}, got shape {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        at = f"{len(bad)} NaN or infinite, the first in chain {bad[0][0]}, draw {bad[0][1]}"
        raise KLFusionError(f"{where}: {name!r}: expected finite draws, got {at}")
    return np.asarray(array, dtype=np.float64)


def _whole(array: Any) -> bool:
    """Whether floats are of a discrete variable, as files of Stan have it: all whole numbers."""
    if array.dtype.kind != "f" or array.size == 0 or not np.isfinite(array).all():
        return False
    fractions = np.abs(array).max() < _FRACTIONS and np.ptp(array) > 0
    return bool(fractions and (array == np.rint(array)).all())


def _variable(
    name: str,
    values: FloatArray,
    support: Any,
    dims: Sequence[str] | None,
    labels: Mapping[str, tuple[str, ...]],
    where: str,
) -> Variable:
    """The variable, checked against its draws."""
    shape, here = values.shape[2:], f"{where}: {name!r}"
    if dims is None and values.shape[0] > values.shape[1]:  # an InferenceData names its axes
        raise KLFusionError(
            f"{here}: expected an array (chain, draw, ...), got shape {values.shape}, with more "
            "chains than draws: array[None] is one chain, array.swapaxes(0, 1) has chains first"
        )
    flat = values.reshape(-1, *shape)
    found = guessed(name, flat) if support is None else Support.of(support, here)
    own = [f"{name}_dim_{k}" for k in range(len(shape))] if dims is None else [*dims]
    if len(own) != len(shape):
        raise KLFusionError(f"{here}: expected {len(shape)} dims, got {len(own)}")
    if len(shape) < found.event_dim:
        expected = f"expected {found.event_dim} axes of a {found.kind} or more"
        raise KLFusionError(f"{here}: {expected}, got shape {shape}")
    axes = [labels.get(dim, tuple(map(str, range(n)))) for dim, n in zip(own, shape, strict=True)]
    for dim, names, n in zip(own, axes, shape, strict=True):
        if len(names) != n or len(set(names)) != n:
            raise KLFusionError(
                f"{here}: expected {n} different coords of {dim!r}, got {few([*names])}"
            )
    if not found.inside(flat):
        support_text = f"{found.kind} (supports= gives another)"
        raise KLFusionError(f"{here}: expected draws within its support, {support_text}")
    return Variable(name, tuple(own), tuple(axes), found)
