"""Inverse Gamma: posterior of variances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from klfusion._utils.arrays import FloatArray
from klfusion.families.gamma import GammaLike


@final
@dataclass(frozen=True)
class InverseGamma(GammaLike):
    """``x_k ~ InverseGamma(shape_k, scale_k)``: ``1 / x_k`` is ``Gamma(shape_k, rate=scale_k)``.

    Examples
    --------
    >>> import klfusion as kf
    >>> variances = kf.families.InverseGamma()
    >>> variances.natural(shape=[3.0], scale=[2.0])
    array([[3., 2.]])
    """

    name: ClassVar[str] = "inverse-gamma"
    parameters: ClassVar[tuple[str, str]] = ("shape", "scale")

    def natural(self, shape: Any, scale: Any) -> FloatArray:
        """From ``shape`` and ``scale``, each (n, d), or (n,) in one dimension."""
        return self._joined(shape, scale)
