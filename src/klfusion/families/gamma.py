"""Gamma: posterior of rates (Poisson, exponential) and of precisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import digamma, gammaln

from klfusion._utils.arrays import FloatArray
from klfusion.families.parameters import geometric_mean, stack
from klfusion.families.two_parameters import TwoParameters


class GammaLike(TwoParameters):
    """A Gamma distribution, of ``x`` or of ``1 / x``: no divergence differs."""

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        shape, rate = self._split(natural)
        return np.asarray((gammaln(shape) - shape * np.log(rate)).sum(axis=1))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[log x], E[-x]``; of an inverse Gamma ``E[-log x], E[-1 / x]``."""
        shape, rate = self._split(natural)
        return stack(digamma(shape) - np.log(rate), -shape / rate)

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``shape``, its geometric mean over dimensions."""
        return geometric_mean(self._split(natural)[0])


@final
@dataclass(frozen=True)
class Gamma(GammaLike):
    """``x_k ~ Gamma(shape_k, rate_k)``, independently in each of ``dim`` dimensions.

    The posterior of a Poisson rate after ``n`` counts that sum to ``s`` is
    ``Gamma(shape0 + s, rate0 + n)``: fuse a model of event rates with this family.

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma(dim=2)                  # events per day of two kinds
    >>> eta = rates.natural(shape=[[12.0, 3.0]], rate=[[10.0, 10.0]])
    >>> rates.params(eta)["shape"] / rates.params(eta)["rate"]
    array([[1.2, 0.3]])
    """

    name: ClassVar[str] = "gamma"
    parameters: ClassVar[tuple[str, str]] = ("shape", "rate")

    def natural(self, shape: Any, rate: Any) -> FloatArray:
        """From ``shape`` and ``rate``, each (n, d), or (n,) in one dimension."""
        return self._joined(shape, rate)
