"""What a family of distributions defines, and what follows for every family.

A batch of ``n`` distributions is one float64 array of natural parameters ``(n, p)``. A family
defines what those numbers mean; KL matrices, barycenters, Jensen gaps, checks and storage are
written here once.
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, final

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.errors import InvalidPosteriorError, KLFusionError
from klfusion.families.numerics.kl_matrix import kl_matrix

_REGISTRY: dict[str, type[Family]] = {}


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
    def jensen_gap(self, natural: FloatArray, weights: FloatArray | None = None) -> float:
        """``min_q sum_i w_i KL(q || q_i)``, the cost of one cluster, from ``A`` alone."""
        w = np.ones(len(natural)) if weights is None else weights
        centre = self.barycenter(natural, w)[None]
        gap = w @ self.log_partition(natural) - w.sum() * self.log_partition(centre)[0]
        return float(np.maximum(gap, 0.0))  # unlike max(), keeps a NaN

    @final
    def check(self, natural: FloatArray, where: str = "posterior") -> None:
        """Raise `InvalidPosteriorError` naming the first component outside the domain."""
        if natural.ndim != 2 or natural.shape[1] != self.size:
            raise InvalidPosteriorError(
                f"{where}: expected natural parameters of shape (n, {self.size}) for {self}, "
                f"got {natural.shape}"
            )
        finite = np.isfinite(natural)
        if not finite.all():
            i, k = np.argwhere(~finite)[0]
            raise InvalidPosteriorError(
                f"{where}, component {i}: expected finite natural parameters, "
                f"got {natural[i, k]} at position {k}"
            )
        with np.errstate(all="ignore"):
            quantities = self.positive(natural)
        for quantity, values in quantities.items():
            if not values.min(initial=np.inf) > 0:  # without a copy: posteriors can be large
                worst = values.min(axis=tuple(range(1, values.ndim)), initial=np.inf)
                bad = np.flatnonzero(~(worst > 0))
                raise InvalidPosteriorError(
                    f"{where}, component {bad[0]}: expected {quantity} > 0 for {self}, "
                    f"got {worst[bad[0]]:.6g}"
                )

    @final
    def in_domain(self, natural: FloatArray) -> bool:
        """Whether every row is a distribution of this family."""
        try:
            self.check(natural)
        except InvalidPosteriorError:
            return False
        return True

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
