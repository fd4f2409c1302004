"""Beta: posterior of one or more independent probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import betaln, digamma

from klfusion._utils.arrays import FloatArray
from klfusion.families.categorical import deviations_between_frequencies
from klfusion.families.dirichlet import SMOOTHING
from klfusion.families.gamma import TwoParameters
from klfusion.families.parameters import geometric_mean, stack


@final
@dataclass(frozen=True)
class Beta(TwoParameters):
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
    parameters: ClassVar[tuple[str, str]] = ("a", "b")

    def natural(self, a: Any, b: Any) -> FloatArray:
        """From ``a`` and ``b``, each (n, d), or (n,) in one dimension."""
        return self._joined(a, b)

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        return np.asarray(betaln(*self._split(natural)).sum(axis=1))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[log x], E[log(1 - x)]``."""
        a, b = self._split(natural)
        total = digamma(a + b)
        return stack(digamma(a) - total, digamma(b) - total)

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``a + b``, its geometric mean over dimensions."""
        a, b = self._split(natural)
        return geometric_mean(a + b)

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Of smoothed frequencies, squares added up over dimensions."""
        shares = []
        for eta in (first, second):
            counts = np.stack(self._split(eta), axis=2) + SMOOTHING
            shares.append(counts / counts.sum(axis=2, keepdims=True))
        squares = deviations_between_frequencies(*shares) ** 2
        return np.asarray(np.sqrt(squares.sum(axis=1)))
