"""`FuseSettings`: how a fusion was made, typed, and plain JSON in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import is_integer, is_number
from klfusion.errors import KLFusionError
from klfusion.families import Family, SiloVariation
from klfusion.methods import Auto, Method, method_from_config
from klfusion.pooling.pool import Pooling


@dataclass(frozen=True)
class FuseSettings:
    """What `klfusion.fuse` was asked for, and what it estimated to compare components.

    Parameters
    ----------
    method : Method
        The method with all its settings.
    weights : tuple of float
        How much each silo counts.
    pooling : str
        How matched components become one, as asked for.
    pooled : str, optional
        How they became one: what ``pooling="auto"`` means for these silos.
    n_components : tuple of int or None
        Size asked for, of the components and of each later layer of a network.
    random_state : int
        Seed; 0 where a generator was given.
    min_support : int
        Fewest silos that a global component has.
    certainty : float, optional
        Effective sample size at which components are compared, once silos were added or removed.
    variation : tuple of float, optional
        Variation between silos, as the family estimates it.

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> site = kf.Posterior(rates, rates.natural(shape=[3, 40], rate=[10, 10]), name="a")
    >>> kf.fuse([site], random_state=3).settings
    FuseSettings(method=Auto(...), weights=(1.0,), pooling='auto', pooled=..., random_state=3, ...)
    """

    method: Method = field(default_factory=Auto)
    weights: tuple[float, ...] = ()
    pooling: str = "auto"
    pooled: str | None = None
    n_components: tuple[int | None, ...] = (None,)
    random_state: int = 0
    min_support: int = 1
    certainty: float | None = None
    variation: tuple[float, ...] | None = None

    def weight_array(self) -> FloatArray:
        """Weights of the silos, (J,)."""
        return np.array(self.weights, dtype=np.float64)

    def variation_array(self, family: Family) -> FloatArray | None:
        """Variation between silos, where it is what the family needs."""
        if self.variation is None or not isinstance(family, SiloVariation):
            return None
        if len(self.variation) != family.variation_size:
            return None
        return np.array(self.variation, dtype=np.float64)

    def with_weights(self, weights: FloatArray) -> FuseSettings:
        """For other silos."""
        return replace(self, weights=tuple(map(float, weights)))

    def to_config(self) -> dict[str, Any]:
        """JSON-able description, understood by `from_config`."""
        fields = {**vars(self), "method": self.method.to_config()}
        return {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], n_silos: int) -> FuseSettings:
        """The settings that `to_config` described, checked."""
        config = {"pooled": None, **config}  # files of version 2.0 are without
        for key, valid in _valid(n_silos).items():
            if key not in config or not valid(config[key]):
                raise KLFusionError(f"settings: unexpected {key}, got {config.get(key)!r}")
        fields, variation = {key: config[key] for key in _valid(n_silos)}, config["variation"]
        fields["method"] = method_from_config(config["method"])
        fields["weights"] = tuple(map(float, config["weights"]))
        fields["n_components"] = tuple(config["n_components"])
        fields["variation"] = None if variation is None else tuple(map(float, variation))
        return cls(**fields)


def _valid(n_silos: int) -> dict[str, Any]:
    """A check of each setting of a file."""

    def positive(value: Any) -> bool:
        return is_number(value) and 0 < value < np.inf

    def numbers(value: Any, above: float = -np.inf) -> bool:
        plain = isinstance(value, list) and {*map(type, value)} <= {int, float}
        return plain and all(above < number < np.inf for number in value)

    def size(value: Any) -> bool:
        return value is None or (is_integer(value) and value >= 1)

    return {
        "method": lambda v: isinstance(v, Mapping),
        "weights": lambda v: numbers(v, above=0.0) and len(v) == n_silos,
        "pooling": lambda v: v in get_args(Pooling),
        "pooled": lambda v: v is None or isinstance(v, str),
        "n_components": lambda v: isinstance(v, list) and all(map(size, v)) and len(v) >= 1,
        "random_state": lambda v: is_integer(v) and v >= 0,
        "min_support": lambda v: is_integer(v) and v >= 1,
        "certainty": lambda v: v is None or positive(v),
        "variation": lambda v: v is None or numbers(v),
    }
