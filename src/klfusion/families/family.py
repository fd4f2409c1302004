"""What a family of distributions defines, and what follows for every family.

A batch of ``n`` distributions is one float64 array of natural parameters ``(n, p)``. A family
defines what those numbers mean; KL matrices, barycenters, checks and storage are written here once.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Self, final

import numpy as np

from klfusion._utils.arrays import ROUNDING, BoolArray, FloatArray
from klfusion._utils.text import brief
from klfusion.errors import InvalidPosteriorError, KLFusionError
from klfusion.families.kl_matrix import kl_matrix

_REGISTRY: dict[str, type[Family]] = {}
_MAX_LOSS = 1e-3  # share of the scatter that rounding may change
CHECKED_ROWS = 1 << 10  # checked together; a bad row takes the time of a thousand, not of all

Known = tuple[FloatArray, FloatArray]  # A, (n,), and mean parameters, (n, p), of distributions


@dataclasses.dataclass(frozen=True)
class Family(ABC):
    """An exponential family ``q(x) = h(x) exp(<eta, T(x)> - A(eta))``.

    A subclass is a frozen dataclass whose fields are its sizes; it defines ``size``, `natural`,
    `params`, `log_partition`, `mean` and `positive`. Choose the natural parameters so that they
    grow in proportion to the data behind a posterior (``eta = prior + sum of statistics``).
    A family with more methods declares them by a base class of `klfusion.families.capabilities`.
    """

    name: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register the family under its name, so that files can refer to it."""
        super().__init_subclass__(**kwargs)
        if not inspect.isabstract(cls) and isinstance(cls.__dict__.get("name"), str):
            known = _REGISTRY.get(cls.name, cls)
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise KLFusionError(
                    f"a family named {cls.name!r} exists already: {known.__module__}."
                    f"{known.__qualname__}; give {cls.__qualname__} another name"
                )
            _REGISTRY[cls.name] = cls

    # What a family defines ------------------------------------------------------------------

    @property
    @abstractmethod
    def size(self) -> int:
        """Number ``p`` of natural parameters of one distribution."""

    @abstractmethod
    def natural(self, *args: Any, **params: Any) -> FloatArray:
        """Natural parameters ``(n, p)`` from named ones, such as means and variances."""

    @abstractmethod
    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """Named parameters from natural ones ``(n, p)``; ``natural(**params)`` undoes it."""

    @abstractmethod
    def log_partition(self, natural: FloatArray) -> FloatArray:
        """Log-partition ``A`` of each distribution, ``(n, p) -> (n,)``."""

    def log_partition_of_average(self, sums: FloatArray, mass: FloatArray) -> FloatArray:
        """``A(sums / mass)`` of sums ``(n, p)`` and masses ``(n,)``; may overwrite the sums."""
        sums /= mass[:, None]
        return self.log_partition(sums)

    def least_gaps(self, natural: FloatArray, weights: FloatArray) -> FloatArray | None:
        """Lower bounds, soon computed, of the Jensen gaps of all pairs, (n, n); None: no bounds."""
        del natural, weights
        return None

    @abstractmethod
    def mean(self, natural: FloatArray) -> FloatArray:
        """Mean parameters ``E[T(x)]``, the gradient of ``A``, ``(n, p) -> (n, p)``."""

    @abstractmethod
    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """Quantities by name, ``(n,)`` or ``(n, k)``, that are > 0 exactly inside the domain."""

    def _margins(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """`positive`, where no error names the numbers."""
        return self.positive(natural)

    @property
    def least_count(self) -> float:
        """Observations below which a posterior is hardly more than its prior."""
        return 1.0

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """Number of parameters that observations estimate, of each posterior, ``(n,)``."""
        return np.full(len(natural), float(self.size))

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Standard deviations between ``first[i]`` and ``second[i]``, ``(m, p), (m, p) -> (m,)``.

        It is the root of the symmetrised divergence, ``<eta - eta', mu - mu'>``, as for Normals of
        one covariance.
        """
        difference = self.mean(first) - self.mean(second)
        square = np.einsum("mp,mp->m", first - second, difference)
        return np.asarray(np.sqrt(np.maximum(square, 0.0)))

    # What follows -----------------------------------------------------------------------------

    @final
    def kl(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """``KL(first[i] || second[j])`` of all pairs, ``(n, p), (m, p) -> (n, m)``; never negative.

        Examples
        --------
        >>> import klfusion as kf
        >>> rates = kf.families.Gamma()
        >>> eta = rates.natural(shape=[2.0, 5.0], rate=[1.0, 1.0])
        >>> rates.kl(eta, eta).round(3)
        array([[0.  , 1.91],
               [1.34, 0.  ]])
        """
        return self.kl_from(first, second).T

    @final
    def kl_from(
        self,
        centres: FloatArray,
        locals_: FloatArray,
        log_partition: FloatArray | None = None,
        known: Known | None = None,
    ) -> FloatArray:
        """The same of centres ``g`` and locals ``i``, (i, g); ``log_partition`` is the locals'.

        Where the same centres come again, ``known`` is what `known` gives for them.
        """
        if log_partition is None:
            log_partition = self.log_partition(locals_)
        of_centres = centres, *(known or self.known(centres))
        return kl_matrix(self.mean, of_centres, (locals_, log_partition))

    @final
    def known(self, centres: FloatArray) -> Known:
        """Log-partitions and mean parameters."""
        return self.log_partition(centres), self.mean(centres)

    @final
    def barycenter(self, natural: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        """The distribution ``(p,)`` that minimises ``sum_i w_i KL(q || q_i)``: a plain average."""
        if weights is None:
            return np.asarray(natural.mean(axis=0))
        return np.asarray(weights @ natural / weights.sum())

    @final
    def check(self, natural: FloatArray, where: str = "posterior") -> None:
        """Raise `InvalidPosteriorError` naming the first component outside the domain."""
        if natural.ndim != 2 or natural.shape[1] != self.size:
            raise InvalidPosteriorError(
                f"{where}: expected natural parameters of shape (n, {self.size}) for {self}, "
                f"got {natural.shape}"
            )
        for first in range(0, len(natural), CHECKED_ROWS):
            self._check_rows(natural[first : first + CHECKED_ROWS], where, first)

    def _check_rows(self, natural: FloatArray, where: str, first: int) -> None:
        """Check components from number ``first`` on."""
        finite = np.isfinite(natural)
        if not finite.all():
            i, k = np.argwhere(~finite)[0]
            expected = f"{where}, component {first + i}: expected finite natural parameters"
            raise InvalidPosteriorError(f"{expected}, got {natural[i, k]} at position {k}")
        with np.errstate(all="ignore"):
            quantities = self.positive(natural)
        for quantity, values in quantities.items():
            if not values.min(initial=np.inf) > 0:  # without a copy: posteriors can be large
                worst = values.min(axis=tuple(range(1, values.ndim)), initial=np.inf)
                bad = np.flatnonzero(~(worst > 0))[0]
                expected = f"{where}, component {first + bad}: expected {quantity} > 0 for {self}"
                raise InvalidPosteriorError(f"{expected}, got {worst[bad]:.6g}")

    @final
    def inside(self, natural: FloatArray) -> BoolArray:
        """Whether each row is a distribution of this family, ``(n, p) -> (n,)``."""
        with np.errstate(all="ignore"):
            positive = self._margins(natural).values()
        found = np.isfinite(natural).all(axis=1)
        for values in positive:
            found &= values.min(axis=tuple(range(1, values.ndim)), initial=np.inf) > 0
        return np.asarray(found)

    @final
    def in_domain(self, natural: FloatArray) -> bool:
        """Whether every row is a distribution of this family."""
        return bool(self.inside(natural).all())

    # Files ------------------------------------------------------------------------------------

    def to_config(self) -> dict[str, Any]:
        """JSON-able description, understood by `family_from_config`."""
        return {"name": self.name, **dataclasses.asdict(self)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The family that `to_config` described (without its ``name``)."""
        names = {field.name for field in dataclasses.fields(cls)}
        if set(config) != names:
            raise KLFusionError(
                f"family {cls.name!r}: expected the sizes {sorted(names)}, got {sorted(config)}"
            )
        return cls(**config)

    def __str__(self) -> str:
        sizes = ", ".join(f"{k}={v}" for k, v in dataclasses.asdict(self).items())
        return f"{type(self).__name__}({sizes})"


@dataclasses.dataclass(frozen=True)
class DimensionalFamily(Family):
    """A family whose only size is its dimension."""

    dim: int

    @property
    def size(self) -> int:
        """``p = d``, unless the family says otherwise."""
        return self.dim

    def __post_init__(self) -> None:
        dim: object = self.dim
        if not isinstance(dim, int | np.integer) or isinstance(dim, bool) or dim < 1:
            raise KLFusionError(
                f"{type(self).__name__}: expected dim to be a positive integer, got {dim!r}"
            )
        object.__setattr__(self, "dim", int(dim))  # for JSON


def family_from_config(config: Mapping[str, Any]) -> Family:
    """The family that a JSON description, such as ``{"name": "gamma", "dim": 3}``, names."""
    given: Any = config
    if not isinstance(given, Mapping):
        expected = "expected the description of a family to be a mapping with its name"
        raise KLFusionError(f"{expected}, got {brief(given)}")
    rest = dict(config)
    name = rest.pop("name", None)
    if not isinstance(name, str) or name not in _REGISTRY:
        raise KLFusionError(f"unknown family {name!r}; known: {', '.join(sorted(_REGISTRY))}")
    if all(type(size) is int for size in rest.values()):
        return _of_sizes(_REGISTRY[name].from_config, **rest)
    return _REGISTRY[name].from_config(rest)


@lru_cache
def _of_sizes(made: Callable[[Mapping[str, int]], Family], /, **sizes: int) -> Family:
    """Made once: a file may name a family for every silo and factor."""
    return made(sizes)


def registered_families() -> dict[str, type[Family]]:
    """Every family by name, a user's own included."""
    return dict(_REGISTRY)


def numbers(value: Any, name: str) -> FloatArray:
    """A parameter as a float64 array."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise KLFusionError(f"{name}: expected an array of numbers ({error})") from error


def rows(value: Any, dim: int, name: str, *, shared: bool = False) -> FloatArray:
    """A parameter given as ``(n, dim)``; ``(n,)`` if ``dim`` is 1 or it may be ``shared``."""
    array = numbers(value, name)
    if array.ndim == 1 and (dim == 1 or shared):
        array = np.repeat(array[:, None], dim, axis=1)
    if array.ndim != 2 or array.shape[1] != dim:
        raise KLFusionError(f"{name}: expected shape (n, {dim}), got {np.shape(value)}")
    return array


def stack(*columns: FloatArray) -> FloatArray:
    """Parameter blocks side by side; refuses batches of different length."""
    if len({len(c) for c in columns}) != 1:
        raise KLFusionError(
            f"parameters describe different numbers of components: {[len(c) for c in columns]}"
        )
    return np.concatenate([c.reshape(len(c), math.prod(c.shape[1:])) for c in columns], axis=1)


def geometric_mean(columns: FloatArray) -> FloatArray:
    """Of each row, ``(n, k) -> (n,)``."""
    return np.asarray(np.exp(np.log(columns).mean(axis=1)))


class OffsetError(InvalidPosteriorError):
    """A mean that float64 cannot hold together with the spread around it."""

    component = dimension = 0

    @classmethod
    def at(cls, component: int, dimension: int, where: str) -> Self:
        """With ``where`` as the name of the dimension."""
        error = cls(
            f"component {component}: the mean {where} lies so far from the origin, compared with "
            "the spread, that float64 cannot hold both: subtract a common offset from the data at "
            "every silo"
        )
        error.component, error.dimension = component, dimension
        return error


def check_offset(mean: FloatArray, kappa: FloatArray, scatter: FloatArray) -> None:
    """Refuse means so far from the origin that rounding of ``kappa mean^2`` exceeds the scatter."""
    with np.errstate(over="ignore"):  # infinite: all is lost
        offset = kappa * mean**2
    lost = (scatter > 0) & (ROUNDING * offset > _MAX_LOSS * scatter)
    if lost.any():
        component, dimension = np.argwhere(lost)[0].tolist()
        raise OffsetError.at(component, dimension, f"in dimension {dimension}")
