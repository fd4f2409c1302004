"""Gamma: posterior of rates (Poisson, exponential) and of precisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import digamma, gammaln

from klfusion._utils.arrays import FloatArray
from klfusion.families.capabilities import Tempered
from klfusion.families.parameters import positive_dimension, rows, stack

_TINY = np.finfo(np.float64).tiny


@final
@dataclass(frozen=True)
class Gamma(Tempered):
    """``x_k ~ Gamma(shape_k, rate_k)``, independently in each of ``dim`` dimensions.

    The posterior of a Poisson rate after ``n`` counts that sum to ``s`` is
    ``Gamma(shape0 + s, rate0 + n)``: fuse a model of event rates with this family.

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma(dim=2)                  # events a day of two kinds
    >>> eta = rates.natural(shape=[[12.0, 3.0]], rate=[[10.0, 10.0]])
    >>> rates.params(eta)["shape"] / rates.params(eta)["rate"]
    array([[1.2, 0.3]])
    """

    name: ClassVar[str] = "gamma"
    dim: int = 1

    def __post_init__(self) -> None:
        positive_dimension(self, self.dim)

    @property
    def size(self) -> int:
        """``p = 2 d``."""
        return 2 * self.dim

    def natural(self, shape: Any, rate: Any) -> FloatArray:
        """From ``shape`` and ``rate``, each (n, d), or (n,) in one dimension."""
        return stack(rows(shape, self.dim, "shape"), rows(rate, self.dim, "rate"))

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``shape`` and ``rate``."""
        return {"shape": natural[:, : self.dim].copy(), "rate": natural[:, self.dim :].copy()}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        shape, rate = natural[:, : self.dim], natural[:, self.dim :]
        return np.asarray((gammaln(shape) - shape * np.log(rate)).sum(axis=1))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[log x], E[-x]``."""
        shape, rate = natural[:, : self.dim], natural[:, self.dim :]
        return stack(digamma(shape) - np.log(rate), -shape / rate)

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """``shape`` and ``rate``."""
        return self.params(natural)

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``shape``, its geometric mean over dimensions."""
        return np.asarray(np.exp(np.log(natural[:, : self.dim]).mean(axis=1)))
