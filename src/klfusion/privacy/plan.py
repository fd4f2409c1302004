"""What a release of any model is: bounded statistics of rows, and a posterior of their sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import brief, few
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior
from klfusion.privacy.bounds import Bounds
from klfusion.privacy.mechanism import Noised, Statistic


@dataclass(frozen=True, eq=False)
class Request:
    """What `klfusion.privatize` was asked for."""

    name: str
    x: FloatArray
    y: Any
    features: tuple[str, ...]
    named: bool  # whether columns have names of their own
    bounds: Mapping[str, Any]
    norm: float | None
    prior_sd: Any
    local: Sequence[str]
    classes: Sequence[Any] | None
    at: Mapping[str, float] | None = None  # coefficients, public, by name

    @property
    def where(self) -> str:
        """For errors."""
        return f"silo {self.name!r}"

    def check_bounds(self, names: Sequence[str]) -> None:
        """Refuse bounds of others: a name that is misspelt would leave its column without."""
        if not isinstance(self.bounds, Mapping):
            raise KLFusionError(
                f"{self.where}: expected bounds to be a mapping of columns to (low, high), known "
                f"without looking at the data, got {brief(self.bounds)}"
            )
        others = [key for key in self.bounds if key not in names]
        if others:
            of = f"bounds of {few(names)} alone" if names else "no bounds, for norm has them"
            raise KLFusionError(f"{self.where}: expected {of}, got {few(others)}")

    def of_columns(self) -> Bounds:
        """Bounds of the columns."""
        return Bounds.of(self.bounds, self.features, self.norm, self.where)

    def labels(self) -> tuple[list[Any], FloatArray]:
        """All classes, which are public, and rows of ones and zeros, (n, classes)."""
        try:
            given = () if self.classes is None or isinstance(self.classes, str) else self.classes
            labels = np.array(sorted({*given})).tolist()
        except TypeError:  # no sequence, or of classes that cannot be compared
            labels = []
        if len(labels) < 2:
            raise KLFusionError(
                f"{self.where}: expected classes=, a list of all classes there may be, of one "
                f"type, got {brief(self.classes)}: those of the data are private"
            )
        y = np.asarray(self.y).reshape(-1)
        hot = y[:, None] == np.array(labels)[None]
        others = ~hot.any(axis=1)
        if others.any():
            got = y[others][:1].tolist()[0]
            raise KLFusionError(f"{self.where}: expected y to be one of {labels}, got {got!r}")
        return labels, hot.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Plan:
    """Statistics to be summed with noise, the posterior given these sums, and what is public."""

    statistics: Mapping[str, Statistic]
    posterior: Callable[[Noised], Posterior]
    public: Mapping[str, Any]


def library_class(model: Any) -> str:
    """The library's class, of which a model of the fusion will be."""
    return next(c.__name__ for c in type(model).__mro__ if c.__module__.startswith("sklearn"))
