"""What a family of distributions must know, and all that follows from it.

A batch of ``n`` distributions is one float64 array of natural parameters ``(n, p)``. A family says
what those numbers mean; KL matrices, barycenters, Jensen gaps, checks and storage are written here
once, for every family.
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, final

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import InvalidPosteriorError, KLFusionError
from klfusion.families.numerics.kl_matrix import kl_matrix

_REGISTRY: dict[str, type[Family]] = {}


@dataclasses.dataclass(frozen=True)
class Family(ABC):
    """An exponential family ``q(x) = h(x) exp(<eta, T(x)> - A(eta))``.

    A subclass is a frozen dataclass whose fields are its sizes; it defines ``size``, `natural`,
    `params`, `log_partition`, `mean` and `positive`. Choose the natural parameters so that they
    grow in proportion to the data behind a posterior (``eta = prior + sum of statistics``).
    `sample` and `statistics` are optional; `effective_size`, `tempered` and `comparable` let
    posteriors of silos of very different size be compared.
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
        """Natural parameters ``(n, p)`` from the usual ones."""

    @abstractmethod
    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """Usual parameters from natural ones ``(n, p)``; ``natural(**params)`` undoes it."""

    @abstractmethod
    def log_partition(self, natural: FloatArray) -> FloatArray:
        """Log-partition ``A`` of each distribution, ``(n, p) -> (n,)``."""

    def log_partition_of_average(self, sums: FloatArray, mass: FloatArray) -> FloatArray:
        """``A(sums / mass)`` of sums ``(n, p)`` by masses ``(n,)``; may use up the sums."""
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
        """Observations without which a posterior is hardly more than its prior."""
        return 1.0

    def effective_size(self, natural: FloatArray) -> FloatArray | None:
        """How many observations each posterior is worth ``(n,)``; None if it cannot be told."""
        return None

    def n_told(self, natural: FloatArray) -> FloatArray:
        """How many parameters the observations behind each posterior tell, ``(n,)``.

        Two samples of one distribution differ by chance: by half a nat for each, in all.
        """
        return np.full(len(natural), float(self.size))

    def seen(self, natural: FloatArray) -> FloatArray:
        """Posteriors of the observations without what the prior adds, as far as that shows."""
        return natural

    @property
    def merged_by_loss(self) -> bool:
        """Whether components shade into each other, so that at a given size prediction decides.

        Locations are then the probabilities of what may be observed.
        """
        return False

    def coarser(
        self, natural: FloatArray, weights: FloatArray, most: int
    ) -> tuple[Family, FloatArray]:
        """The same components over fewer outcomes, where there are more than about ``most``."""
        return self, natural

    def tempered(self, natural: FloatArray, factor: FloatArray) -> FloatArray:
        """The same location and shape, as certain as ``factor`` ``(n,)`` times the data."""
        return natural * factor[:, None]

    def location(self, natural: FloatArray) -> FloatArray:
        """A point estimate ``(n, k)``, for methods that know no uncertainty."""
        return self.mean(natural)

    def relocated(
        self, natural: FloatArray, location: FloatArray, covariance: FloatArray | None = None
    ) -> FloatArray:
        """Elsewhere, as certain as before: `location` of the result is the one given.

        With a ``covariance`` ``(n, k, k)``, that uncertain: it is the `location_covariance` of the
        result, or what the family can express that is nearest to it.
        """
        raise KLFusionError(f"the family {self.name!r} cannot be moved to a given point estimate")

    def location_covariance(self, natural: FloatArray) -> FloatArray:
        """How uncertain `location` is: ``(n, k, k)``, or ``(n, k)`` for a diagonal matrix."""
        raise KLFusionError(f"the family {self.name!r} does not say how uncertain its location is")

    def observed(self, natural: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """The Normals that each posterior expects observations of; None if it expects others.

        Their means ``(n, d)`` and covariances ``(n, d, d)``, or ``(n, d)`` for diagonal ones.
        """
        return None

    def separation(self, natural: FloatArray, a: IntArray, b: IntArray) -> FloatArray | None:
        """How many deviations of their observations lie between the locations of pairs, ``(m,)``.

        The deviations are those of both, pooled. None for a family that describes no observations
        by a location and a spread, NaN where they tell no spread.
        """
        return None

    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """The origin moved amid the locations, where a family has any: no divergence changes.

        Far from the origin natural parameters are large and their differences lose digits. The
        locations are those of ``like``, if given: parts of a batch then get the same origin.
        """
        return natural

    def comparable(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Posteriors brought halfway (geometrically) to a common certainty, for matching only.

        A posterior from ten times the data is ten times as concentrated, and KL counts that as
        difference; location and shape are what should be compared. The common certainty is that
        of ``like``, if given.
        """
        size = self.effective_size(natural)
        if size is None:
            return natural
        others = size if like is None else self.effective_size(like)
        assert others is not None  # a family tells or does not
        common = np.exp(np.log(others).mean())
        return self.tempered(natural, np.sqrt(common / size))

    @property
    def variation_size(self) -> int:
        """How many numbers `variation` is; 0 for a family that compares components as they are."""
        return 0

    def variation(self, natural: FloatArray, labels: IntArray) -> FloatArray:
        """How components with one label differ between silos, ``(variation_size,)``.

        Some label must be there twice. What the numbers are is the family's own affair.
        """
        return np.zeros(0)

    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        """What posteriors say of global components if silos vary so much, for matching only."""
        return natural

    # What follows -----------------------------------------------------------------------------

    @final
    def kl(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """KL divergences between all pairs.

        Parameters
        ----------
        first : array of shape (n, p)
        second : array of shape (m, p)

        Returns
        -------
        array of shape (n, m)
            ``KL(first[i] || second[j])``, never negative.

        Examples
        --------
        >>> import numpy as np, klfusion as kf
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
    ) -> FloatArray:
        """``KL(centres[g] || locals_[i])`` as an ``(i, g)`` matrix, by one matrix product.

        ``log_partition``, that of ``locals_``, may be passed where it is known already.
        """
        if log_partition is None:
            log_partition = self.log_partition(locals_)
        return kl_matrix(self, centres, locals_, log_partition)

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
            # Over whatever axes it has, without a copy: posteriors can be large.
            axes = tuple(range(1, values.ndim))
            worst = values.min(axis=axes, initial=np.inf)
            bad = np.flatnonzero(~(worst > 0))
            if len(bad):
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


def family_from_config(config: Mapping[str, Any]) -> Family:
    """The family that a JSON description names.

    Examples
    --------
    >>> family_from_config({"name": "gamma", "dim": 3})
    Gamma(dim=3)
    """
    rest = dict(config)
    name = rest.pop("name", None)
    if not isinstance(name, str) or name not in _REGISTRY:
        raise KLFusionError(f"unknown family {name!r}; known: {', '.join(sorted(_REGISTRY))}")
    return _REGISTRY[name].from_config(rest)


def registered_families() -> dict[str, type[Family]]:
    """Every family by name, a user's own included."""
    return dict(_REGISTRY)
