"""Mean-field products: a component described by several independent distributions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.families.family import Family, family_from_config
from klfusion.families.parameters import rows, stack


@final
@dataclass(frozen=True, init=False)
class Product(Family):
    """Independent factors, each of its own family; log-partitions and divergences add up.

    Parameters of a factor are named ``factor.parameter``; `natural` also takes a mapping, or the
    natural parameters, under the factor's own name.

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

    def __init__(self, /, **factors: Family) -> None:
        if not factors:
            raise KLFusionError("Product: expected at least one factor, got none")
        for name, factor in factors.items():
            if not isinstance(factor, Family):
                raise KLFusionError(f"Product: expected {name} to be a family, got {factor!r}")
            if "." in name:
                raise KLFusionError(f"Product: expected a factor's name without '.', got {name!r}")
        object.__setattr__(self, "factors", tuple(factors.items()))

    @property
    def size(self) -> int:
        """The factors' sizes added up."""
        return sum(factor.size for _, factor in self.factors)

    def _parts(self, natural: FloatArray) -> Iterator[tuple[str, Family, FloatArray]]:
        """Each factor's name, family and columns."""
        low = 0
        for name, factor in self.factors:
            yield name, factor, natural[..., low : low + factor.size]
            low += factor.size

    def _beside(
        self, natural: FloatArray, like: FloatArray | None
    ) -> Iterator[tuple[Family, tuple[FloatArray, ...]]]:
        """Each factor with its columns, and with those of ``like`` if there is one."""
        both = [natural] if like is None else [natural, like]
        for of_factor in zip(*map(self._parts, both), strict=True):
            yield of_factor[0][1], tuple(part for _, _, part in of_factor)

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
            if isinstance(given, Mapping):
                blocks.append(factor.natural(**given))
            else:
                blocks.append(rows(given, factor.size, name))
        if params:
            raise KLFusionError(
                f"unknown parameters {sorted(params)}; the factors are "
                f"{[name for name, _ in self.factors]}"
            )
        return stack(*blocks)

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """Every factor's parameters, named ``factor.parameter``."""
        return {
            f"{name}.{key}": value
            for name, factor, part in self._parts(natural)
            for key, value in factor.params(part).items()
        }

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``, the sum over factors."""
        parts = [factor.log_partition(part) for _, factor, part in self._parts(natural)]
        return np.asarray(np.sum(parts, axis=0))

    def mean(self, natural: FloatArray) -> FloatArray:
        """The factors' mean parameters side by side."""
        return stack(*(factor.mean(part) for _, factor, part in self._parts(natural)))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """What each factor needs positive."""
        return {
            f"{name}: {key}": value
            for name, factor, part in self._parts(natural)
            for key, value in factor.positive(part).items()
        }

    @property
    def least_count(self) -> float:
        """What the most demanding factor needs."""
        return max(factor.least_count for _, factor in self.factors)

    def effective_size(self, natural: FloatArray) -> FloatArray | None:
        """Geometric mean over the factors that can tell; None if none can."""
        known = [factor.effective_size(part) for _, factor, part in self._parts(natural)]
        sizes = [np.log(size) for size in known if size is not None]
        return np.asarray(np.exp(np.mean(sizes, axis=0))) if sizes else None

    def tempered(self, natural: FloatArray, factor: FloatArray) -> FloatArray:
        """Temper the factors that can tell their size; the rest stay."""
        return stack(
            *(
                part if f.effective_size(part) is None else f.tempered(part, factor)
                for _, f, part in self._parts(natural)
            )
        )

    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Each factor centred."""
        return stack(*(f.centred(*parts) for f, parts in self._beside(natural, like)))

    def comparable(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Each factor made comparable in its own way."""
        return stack(*(f.comparable(*parts) for f, parts in self._beside(natural, like)))

    @property
    def variation_size(self) -> int:
        """The factors' together."""
        return sum(factor.variation_size for _, factor in self.factors)

    def variation(self, natural: FloatArray, labels: IntArray) -> FloatArray:
        """The factors' variations, one after the other."""
        return np.concatenate(
            [factor.variation(part, labels) for _, factor, part in self._parts(natural)]
        )

    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        """Each factor varied by its own."""
        edges = np.cumsum([factor.variation_size for _, factor in self.factors])[:-1]
        own = np.split(variation, edges)
        parts = self._parts(natural)
        return stack(*(f.varied(part, v) for (_, f, part), v in zip(parts, own, strict=True)))

    def to_config(self) -> dict[str, Any]:
        """JSON-able description, with the factors' own."""
        return {
            "name": self.name,
            "factors": [[name, factor.to_config()] for name, factor in self.factors],
        }

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
