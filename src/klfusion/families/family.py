"""What a family of distributions defines, and what follows for every family.

A batch of ``n`` distributions is one float64 array of natural parameters ``(n, p)``. A family
defines what those numbers mean; KL matrices, barycenters, checks and storage are written here once.

``KL(g || i) = A(eta_i) - A(eta_g) - <mu(eta_g), eta_i - eta_g>``, for all pairs one matrix product,
is a small difference of large terms where the two are near; those entries are computed again, by an
integral.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, final

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion.errors import InvalidPosteriorError, KLFusionError

_REGISTRY: dict[str, type[Family]] = {}
_EPSILON = float(np.finfo(np.float64).eps)
_MAX_LOSS = 1e-3  # share of the scatter that rounding may change
# Entries are differences of large terms; below this share of them, cancellation took their digits.
_CANCELLATION = 1e-9
# Gauss-Legendre nodes and weights on [0, 1].
_NODES, _NODE_WEIGHTS = (0.5 * v for v in np.polynomial.legendre.leggauss(5))
_NODES = _NODES + 0.5
# This rule minus the cubic through 0 and every other node: how far from linear an integrand is.
_CURVATURE = _NODE_WEIGHTS.copy()
_CURVATURE[::2] -= np.linalg.solve(_NODES[::2] ** [[1], [2], [3]], [1 / 2, 1 / 3, 1 / 4])
# Rows are made in blocks of about this many entries, which stay in cache; near pairs are computed
# again in batches of about this many natural parameters.
_BLOCK_ENTRIES = 1 << 16
_BATCH_ENTRIES = 1 << 20
CHECKED_ROWS = 1 << 10  # checked together; a bad row takes the time of a thousand, not of all

_Mean = Callable[[FloatArray], FloatArray]  # the gradient of A, (n, p) -> (n, p)
_WithA = tuple[FloatArray, FloatArray]  # natural parameters, (n, p), and their A, (n,)


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

    @abstractmethod
    def mean(self, natural: FloatArray) -> FloatArray:
        """Mean parameters ``E[T(x)]``, the gradient of ``A``, ``(n, p) -> (n, p)``."""

    @abstractmethod
    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """Quantities by name, ``(n,)`` or ``(n, k)``, that are > 0 exactly inside the domain."""

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
        self, centres: FloatArray, locals_: FloatArray, log_partition: FloatArray | None = None
    ) -> FloatArray:
        """The same of centres ``g`` and locals ``i``, (i, g); ``log_partition`` is the locals'."""
        if log_partition is None:
            log_partition = self.log_partition(locals_)
        of_centres = centres, self.log_partition(centres)
        return kl_matrix(self.mean, of_centres, (locals_, log_partition))

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
            positive = self.positive(natural).values()
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
    rest = dict(config)
    name = rest.pop("name", None)
    if not isinstance(name, str) or name not in _REGISTRY:
        raise KLFusionError(f"unknown family {name!r}; known: {', '.join(sorted(_REGISTRY))}")
    return _REGISTRY[name].from_config(rest)


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


def check_offset(mean: FloatArray, kappa: FloatArray, scatter: FloatArray) -> None:
    """Refuse means so far from the origin that rounding of ``kappa mean^2`` exceeds the scatter."""
    with np.errstate(over="ignore"):  # infinite: all is lost
        offset = kappa * mean**2
    lost = (scatter > 0) & (_EPSILON * offset > _MAX_LOSS * scatter)
    if lost.any():
        component, dimension = np.argwhere(lost)[0]
        raise InvalidPosteriorError(
            f"component {component}: the mean in dimension {dimension} lies so far from the "
            "origin, compared with the spread, that float64 cannot hold both: "
            "subtract a common offset from the data at every silo"
        )


def kl_matrix(mean_map: _Mean, of_centres: _WithA, of_locals: _WithA) -> FloatArray:
    """``KL(centres[g] || locals_[i])`` as an ``(i, g)`` matrix, from ``A`` of both."""
    (centres, log_partition_centres), (locals_, log_partition) = of_centres, of_locals
    mean = mean_map(centres)
    offset = np.einsum("gp,gp->g", mean, centres) - log_partition_centres
    scale = np.abs(log_partition_centres) + np.einsum("gp,gp->g", np.abs(mean), np.abs(centres))
    out = np.empty((len(locals_), len(centres)))
    step = max(1, _BLOCK_ENTRIES // max(1, len(centres)))
    batch = max(1, _BATCH_ENTRIES // max(1, centres.shape[1]))
    threshold = _CANCELLATION * (scale + np.abs(log_partition).max(initial=0.0))
    mean_t = np.ascontiguousarray(mean.T)
    for low in range(0, len(locals_), step):
        rows = slice(low, low + step)
        block = np.matmul(locals_[rows], mean_t, out=out[rows])
        np.subtract(log_partition[rows, None], block, out=block)
        block += offset
        near = block < threshold
        if near.any():
            i, g = near.nonzero()
            terms = scale[g] + np.abs(log_partition[low + i])
            lost = block[i, g] < _CANCELLATION * terms
            i, g, terms = i[lost], g[lost], terms[lost]
            for k in range(0, len(i), batch):
                pairs = i[k : k + batch], g[k : k + batch]
                ends = centres[pairs[1]], locals_[low + pairs[0]]
                block[pairs] = _near_pairs(mean_map, *ends, block[pairs], terms[k : k + batch])
    return out


def _near_pairs(
    mean_map: _Mean, first: FloatArray, second: FloatArray, rough: FloatArray, terms: FloatArray
) -> FloatArray:
    """``KL(first[i] || second[i])`` with an error that vanishes with their distance.

    It is the integral over t in [0, 1] of ``<mu(first + t d) - mu(first), d>``. Where the integrand
    is not nearly linear, the ``rough`` value stays: a difference of ``terms``.
    """
    d = second - first
    kl = np.zeros(len(first))
    moved = d.any(axis=1)
    if not moved.any():
        return kl
    first, d = first[moved], d[moved]
    mean = mean_map(first)
    slopes = np.stack(
        [np.einsum("np,np->n", mean_map(first + t * d) - mean, d) for t in _NODES], axis=1
    )
    total = np.maximum(slopes @ _NODE_WEIGHTS, 0.0)
    # The cubic's error squared, relative to the total: a cautious estimate of this rule's.
    straight = (slopes @ _CURVATURE) ** 2 <= total * _EPSILON * terms[moved]
    kl[moved] = np.where(straight, total, np.maximum(rough[moved], 0.0))
    return kl
