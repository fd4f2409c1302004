"""Mean-field products: a component described by several independent distributions."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.families import capabilities as can
from klfusion.families.family import Family, family_from_config, rows, stack


@dataclass(frozen=True, init=False)
class Product(Family):
    """Independent factors, each of its own family; log-partitions and divergences add up.

    Parameters of a factor are named ``factor.parameter``; `natural` also takes a mapping, or the
    natural parameters, under the factor's own name. A product has the capabilities of its factors:
    a product of one factor can do what the factor can.

    Examples
    --------
    >>> import klfusion as kf
    >>> family = kf.families.Product(place=kf.families.DiagonalNormal(2), rate=kf.families.Gamma())
    >>> eta = family.natural(place={"mean": [[0, 1]], "variance": [[1, 1]]},
    ...                      rate={"shape": [3], "rate": [2]})
    >>> sorted(family.params(eta))
    ['place.mean', 'place.variance', 'rate.rate', 'rate.shape']
    """

    name: ClassVar[str] = "product"
    factors: tuple[tuple[str, Family], ...]

    def __new__(cls, /, **factors: Family) -> Product:
        """A product of the class that declares what these factors can do."""
        kinds = frozenset(map(type, factors.values()))
        return super().__new__(_class_of(kinds) if factors else cls)

    def __init__(self, /, **factors: Family) -> None:
        if not factors:
            raise KLFusionError("Product: expected at least one factor, got none")
        for name, factor in factors.items():
            if not isinstance(factor, Family):
                raise KLFusionError(f"Product: expected {name} to be a family, got {factor!r}")
            if "." in name:
                raise KLFusionError(f"Product: expected a factor's name without '.', got {name!r}")
        object.__setattr__(self, "factors", tuple(factors.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Product, **dict(self.factors)), ()  # its class depends on the factors

    @property
    def size(self) -> int:
        """The factors' sizes added up."""
        return sum(factor.size for _, factor in self.factors)

    def parts(self, natural: FloatArray) -> Iterator[tuple[str, Family, FloatArray]]:
        """Each factor's name, family and columns."""
        low = 0
        for name, factor in self.factors:
            yield name, factor, natural[..., low : low + factor.size]
            low += factor.size

    def natural(self, /, **params: Any) -> FloatArray:
        """From ``factor=...`` or ``factor.parameter`` entries."""
        blocks = []
        for name, factor in self.factors:
            given = params.pop(name, None)
            if given is None:
                prefix = f"{name}."
                own = [key for key in params if key.startswith(prefix)]
                given = {key.removeprefix(prefix): params.pop(key) for key in own}
            if isinstance(given, Mapping) and not given:
                raise KLFusionError(
                    f"expected parameters of the factor {name!r} ({factor}), got none: "
                    f"pass {name}={{...}}"
                )
            named = isinstance(given, Mapping)
            blocks.append(factor.natural(**given) if named else rows(given, factor.size, name))
        if params:
            names = [name for name, _ in self.factors]
            raise KLFusionError(f"unknown parameters {sorted(params)}; the factors are {names}")
        return stack(*blocks)

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """Every factor's parameters, named ``factor.parameter``."""
        return {
            f"{name}.{key}": value
            for name, factor, part in self.parts(natural)
            for key, value in factor.params(part).items()
        }

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``, the sum over factors."""
        return np.asarray(np.sum([f.log_partition(x) for _, f, x in self.parts(natural)], axis=0))

    def log_partition_of_average(self, sums: FloatArray, mass: FloatArray) -> FloatArray:
        """The sum over factors."""
        parts = [f.log_partition_of_average(part, mass) for _, f, part in self.parts(sums)]
        return np.asarray(np.sum(parts, axis=0))

    def mean(self, natural: FloatArray) -> FloatArray:
        """The factors' mean parameters side by side."""
        return stack(*(factor.mean(part) for _, factor, part in self.parts(natural)))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """Each factor's quantities, named ``factor: quantity``."""
        return {
            f"{name}: {key}": value
            for name, factor, part in self.parts(natural)
            for key, value in factor.positive(part).items()
        }

    @property
    def least_count(self) -> float:
        """The largest of the factors' counts."""
        return max(factor.least_count for _, factor in self.factors)

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """The factors' numbers added up."""
        return np.asarray(np.sum([f.n_parameters(x) for _, f, x in self.parts(natural)], axis=0))

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Factors are independent: squares of their separations add up."""
        both = zip(self.parts(first), self.parts(second), strict=True)
        squares = [factor.separation(a, b) ** 2 for (_, factor, a), (_, _, b) in both]
        return np.asarray(np.sqrt(np.sum(squares, axis=0)))

    def to_config(self) -> dict[str, Any]:
        """JSON-able description, with the factors' own."""
        factors = [[name, factor.to_config()] for name, factor in self.factors]
        return {"name": self.name, "factors": factors}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The product that `to_config` described."""
        factors = config.get("factors")
        if set(config) != {"factors"} or not isinstance(factors, list):
            raise KLFusionError(f"family 'product': expected 'factors', got {sorted(config)}")
        try:
            named = {name: family_from_config(factor) for name, factor in factors}
            if len(named) < len(factors):
                raise KLFusionError("two factors have one name")
            return cls(**named)
        except (TypeError, ValueError) as error:
            raise KLFusionError(f"family 'product': malformed factors ({error})") from error

    def __str__(self) -> str:
        return f"Product({', '.join(f'{name}={factor}' for name, factor in self.factors)})"

    # For the capabilities below ---------------------------------------------------------------

    def _each(
        self, capability: type[can.Capability], natural: FloatArray
    ) -> Iterator[tuple[Any, FloatArray]]:
        """The factors with a capability, and their columns."""
        for _, factor, part in self.parts(natural):
            if isinstance(factor, capability):
                yield factor, part

    def _changed(
        self,
        capability: type[can.Capability],
        change: Callable[..., FloatArray],
        *arrays: FloatArray | None,
    ) -> FloatArray:
        """Parameters with factors of a capability changed, given their columns of each array."""
        given, blocks = [self.parts(array) for array in arrays if array is not None], []
        for of_factor in zip(*given, strict=True):
            factor, own = of_factor[0][1], [part for _, _, part in of_factor]
            blocks.append(change(factor, *own) if isinstance(factor, capability) else own[0])
        return stack(*blocks)


# Capabilities of products -------------------------------------------------------------------------


class _TemperedProduct(Product, can.Tempered):
    """Factors without an effective sample size stay as they are."""

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """Geometric mean over the factors that have one."""
        sizes = [np.log(f.effective_size(part)) for f, part in self._each(can.Tempered, natural)]
        return np.asarray(np.exp(np.mean(sizes, axis=0)))

    def tempered(self, natural: FloatArray, factor: FloatArray) -> FloatArray:
        return self._changed(can.Tempered, lambda f, part: f.tempered(part, factor), natural)

    def comparable(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        return self._changed(can.Tempered, lambda f, *own: f.comparable(*own), natural, like)


class _CentredProduct(Product, can.Centred):
    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        return self._changed(can.Centred, lambda f, *own: f.centred(*own), natural, like)


class _LocatedProduct(Product, can.Located):
    def location(self, natural: FloatArray) -> FloatArray:
        return np.concatenate([f.location(x) for f, x in self._each(can.Located, natural)], axis=1)

    def relocated(
        self, natural: FloatArray, location: FloatArray, covariance: FloatArray | None = None
    ) -> FloatArray:
        """Each factor relocated; with a covariance, by its block of the diagonal."""
        low, blocks = 0, []
        for factor, part in self._each(can.Located, natural):
            own = slice(low, low + factor.location(part).shape[1])
            low = own.stop
            given = []
            if covariance is not None:
                full = covariance.ndim == 3
                given = [covariance[:, own, own] if full else covariance[:, own]]
            blocks.append(factor.relocated(part, location[:, own], *given))
        return stack(*blocks)


class _UncertainProduct(_LocatedProduct, can.UncertainLocation):
    def location_covariance(
        self, natural: FloatArray, like: FloatArray | None = None
    ) -> FloatArray:
        given = (self._each(can.UncertainLocation, x) for x in (natural, like) if x is not None)
        blocks = []
        for of_factor in zip(*given, strict=True):
            factor, own = of_factor[0][0], [part for _, part in of_factor]
            blocks.append(factor.location_covariance(*own))
        return _block_diagonal(blocks)


class _GaussianProduct(Product, can.GaussianObservations):
    def observation_moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        parts = self._each(can.GaussianObservations, natural)
        means, covariances = zip(*(f.observation_moments(x) for f, x in parts), strict=True)
        return np.concatenate(means, axis=1), _block_diagonal(covariances)


def _block_diagonal(blocks: Sequence[FloatArray]) -> FloatArray:
    """Covariances ``(n, k, k)`` of all factors; ``(n, k)`` if those of all are diagonal."""
    if all(block.ndim == 2 for block in blocks):
        return np.concatenate(blocks, axis=1)
    edges = np.cumsum([0, *(block.shape[1] for block in blocks)])
    out = np.zeros((len(blocks[0]), edges[-1], edges[-1]))
    for block, low, high in zip(blocks, edges[:-1], edges[1:], strict=True):
        full = block if block.ndim == 3 else block[:, :, None] * np.eye(high - low)
        out[:, low:high, low:high] = full
    return out


class _LearningProduct(Product, can.EmpiricalPrior):
    def with_empirical_prior(
        self, natural: FloatArray, prior: FloatArray, silo: IntArray, tied: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        found = [
            f.with_empirical_prior(x, y, silo, tied)
            if isinstance(f, can.EmpiricalPrior)
            else (x, y)
            for (_, f, x), (_, _, y) in zip(self.parts(natural), self.parts(prior), strict=True)
        ]
        components, priors = zip(*found, strict=True)
        return stack(*components), stack(*priors)

    def typical_prior(self, prior: FloatArray) -> FloatArray:
        found = [
            f.typical_prior(x) if isinstance(f, can.EmpiricalPrior) else x.mean(axis=0)
            for _, f, x in self.parts(prior)
        ]
        return np.concatenate(found)


class _DiscreteProduct(Product, can.DiscreteOutcomes):
    def coarser(
        self, natural: FloatArray, weights: FloatArray, most: int
    ) -> tuple[Family, FloatArray]:
        found = {
            name: f.coarser(x, weights, most) if isinstance(f, can.DiscreteOutcomes) else (f, x)
            for name, f, x in self.parts(natural)
        }
        family = Product(**{name: factor for name, (factor, _) in found.items()})
        return family, stack(*(block for _, block in found.values()))

    def without_prior(self, natural: FloatArray) -> FloatArray:
        return self._changed(can.DiscreteOutcomes, lambda f, part: f.without_prior(part), natural)


class _VaryingProduct(Product, can.SiloVariation):
    @property
    def variation_size(self) -> int:
        return sum(f.variation_size for _, f in self.factors if isinstance(f, can.SiloVariation))

    def variation(self, natural: FloatArray, labels: IntArray) -> FloatArray:
        parts = self._each(can.SiloVariation, natural)
        return np.concatenate([f.variation(part, labels) for f, part in parts])

    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        rest = iter(variation)

        def change(factor: can.SiloVariation, part: FloatArray) -> FloatArray:
            return factor.varied(part, np.array([*islice(rest, factor.variation_size)]))

        return self._changed(can.SiloVariation, change, natural)


# A capability, whether all factors must have it or any, and what a product then does.
_DERIVED: tuple[tuple[type[can.Capability], Callable[..., bool], type[Product]], ...] = (
    (can.Tempered, any, _TemperedProduct),
    (can.Centred, any, _CentredProduct),
    (can.UncertainLocation, all, _UncertainProduct),
    (can.Located, all, _LocatedProduct),
    (can.GaussianObservations, all, _GaussianProduct),
    (can.EmpiricalPrior, any, _LearningProduct),
    (can.DiscreteOutcomes, any, _DiscreteProduct),
    (can.SiloVariation, any, _VaryingProduct),
)


@lru_cache(maxsize=1024)
def _class_of(kinds: frozenset[type]) -> type[Product]:
    """The class of products of factors of these classes."""
    return _class_with(
        tuple(
            derived
            for capability, of_factors, derived in _DERIVED
            if of_factors(issubclass(kind, capability) for kind in kinds)
        )
    )


@cache  # one of each subset of what can be derived
def _class_with(derived: tuple[type[Product], ...]) -> type[Product]:
    """The class of products that do what each of these do."""
    if not derived:
        return Product
    made: Any = ABCMeta("Product", derived, {"__module__": __name__, "__doc__": Product.__doc__})
    found: type[Product] = dataclass(frozen=True, init=False)(made)
    return found
