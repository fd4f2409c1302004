"""Inverse Gamma: posterior of variances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from klfusion._utils.arrays import FloatArray
from klfusion.families.capabilities import Tempered
from klfusion.families.gamma import Gamma
from klfusion.families.parameters import positive_dimension, rows, stack


@final
@dataclass(frozen=True)
class InverseGamma(Tempered):
    """``x_k ~ InverseGamma(shape_k, scale_k)``: ``1 / x_k`` is ``Gamma(shape_k, rate=scale_k)``.

    Taking the reciprocal changes no divergence, so all but sampling is `Gamma`'s.

    Examples
    --------
    >>> import klfusion as kf
    >>> variances = kf.families.InverseGamma()
    >>> variances.natural(shape=[3.0], scale=[2.0])
    array([[3., 2.]])
    """

    name: ClassVar[str] = "inverse-gamma"
    dim: int = 1

    def __post_init__(self) -> None:
        positive_dimension(self, self.dim)

    @property
    def _reciprocal(self) -> Gamma:
        return Gamma(self.dim)

    @property
    def size(self) -> int:
        """``p = 2 d``."""
        return 2 * self.dim

    def natural(self, shape: Any, scale: Any) -> FloatArray:
        """From ``shape`` and ``scale``, each (n, d), or (n,) in one dimension."""
        return stack(rows(shape, self.dim, "shape"), rows(scale, self.dim, "scale"))

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``shape`` and ``scale``."""
        return {"shape": natural[:, : self.dim].copy(), "scale": natural[:, self.dim :].copy()}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        return self._reciprocal.log_partition(natural)

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[-log x], E[-1 / x]``."""
        return self._reciprocal.mean(natural)

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """``shape`` and ``scale``."""
        return self.params(natural)

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``shape``, its geometric mean over dimensions."""
        return self._reciprocal.effective_size(natural)
