"""Gamma, of rates and of precisions, and inverse Gamma, of variances."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import digamma, gammaln

from klfusion._utils.arrays import FloatArray
from klfusion.families.capabilities import Tempered
from klfusion.families.family import DimensionalFamily, geometric_mean, rows, stack


@dataclass(frozen=True)
class TwoParameters(DimensionalFamily, Tempered):
    """Independent dimensions; natural parameters are those named by ``parameters``."""

    parameters: ClassVar[tuple[str, str]]
    dim: int = 1

    @property
    def size(self) -> int:
        """``p = 2 d``."""
        return 2 * self.dim

    def _joined(self, *values: Any) -> FloatArray:
        """Natural parameters from the two, each (n, d), or (n,) in one dimension."""
        named = zip(values, self.parameters, strict=True)
        return stack(*(rows(value, self.dim, name) for value, name in named))

    def _split(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The two, each (n, d); views."""
        return natural[:, : self.dim], natural[:, self.dim :]

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """One per dimension; the other natural parameter is a sample size."""
        return np.full(len(natural), float(self.dim))

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """Both parameters by name."""
        copies = (part.copy() for part in self._split(natural))
        return dict(zip(self.parameters, copies, strict=True))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """Both parameters."""
        return self.params(natural)


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


@final
@dataclass(frozen=True)
class InverseGamma(GammaLike):
    """``x_k ~ InverseGamma(shape_k, scale_k)``: ``1 / x_k`` is ``Gamma(shape_k, rate=scale_k)``.

    Examples
    --------
    >>> import klfusion as kf
    >>> kf.families.InverseGamma().natural(shape=[3.0], scale=[2.0])
    array([[3., 2.]])
    """

    name: ClassVar[str] = "inverse-gamma"
    parameters: ClassVar[tuple[str, str]] = ("shape", "scale")

    def natural(self, shape: Any, scale: Any) -> FloatArray:
        """From ``shape`` and ``scale``, each (n, d), or (n,) in one dimension."""
        return self._joined(shape, scale)
