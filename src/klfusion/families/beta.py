"""Beta: posterior of one or more independent probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import betaln, digamma

from klfusion._utils.arrays import FloatArray
from klfusion.families.capabilities import Tempered
from klfusion.families.parameters import positive_dimension, rows, stack

_TINY = np.finfo(np.float64).tiny
_BELOW_ONE = np.nextafter(1.0, 0.0)


@final
@dataclass(frozen=True)
class Beta(Tempered):
    """``x_k ~ Beta(a_k, b_k)``, independently in each of ``dim`` dimensions.

    Examples
    --------
    >>> import klfusion as kf
    >>> beta = kf.families.Beta()
    >>> beta.natural(a=[2.0, 3.0], b=[1.0, 1.0])
    array([[2., 1.],
           [3., 1.]])
    """

    name: ClassVar[str] = "beta"
    dim: int = 1

    def __post_init__(self) -> None:
        positive_dimension(self, self.dim)

    @property
    def size(self) -> int:
        """``p = 2 d``."""
        return 2 * self.dim

    def natural(self, a: Any, b: Any) -> FloatArray:
        """From ``a`` and ``b``, each (n, d), or (n,) in one dimension."""
        return stack(rows(a, self.dim, "a"), rows(b, self.dim, "b"))

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``a`` and ``b``."""
        return {"a": natural[:, : self.dim].copy(), "b": natural[:, self.dim :].copy()}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        return np.asarray(betaln(natural[:, : self.dim], natural[:, self.dim :]).sum(axis=1))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[log x], E[log(1 - x)]``."""
        a, b = natural[:, : self.dim], natural[:, self.dim :]
        total = digamma(a + b)
        return stack(digamma(a) - total, digamma(b) - total)

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """``a`` and ``b``."""
        return self.params(natural)

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``a + b``, its geometric mean over dimensions."""
        total = natural[:, : self.dim] + natural[:, self.dim :]
        return np.asarray(np.exp(np.log(total).mean(axis=1)))
