"""Wishart: posterior of a precision matrix whose mean is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families.capabilities import Tempered
from klfusion.families.numerics import symmetric as sym
from klfusion.families.parameters import positive_dimension, rows, stack

_LOG_2 = np.log(2.0)


@final
@dataclass(frozen=True)
class Wishart(Tempered):
    """``L ~ Wishart(inv(scale_inv), dof)``, with ``E[L] = dof inv(scale_inv)``.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> wishart = kf.families.Wishart(dim=2)
    >>> wishart.natural(scale_inv=np.eye(2)[None], dof=[4.0])
    array([[1., 0., 1., 4.]])
    """

    name: ClassVar[str] = "wishart"
    dim: int

    def __post_init__(self) -> None:
        positive_dimension(self, self.dim)

    @property
    def size(self) -> int:
        """``p = d (d + 1) / 2 + 1``."""
        return sym.packed_size(self.dim) + 1

    def natural(self, scale_inv: Any, dof: Any) -> FloatArray:
        """From ``scale_inv`` (n, d, d) and ``dof`` (n,)."""
        packed = sym.pack(sym.matrices(scale_inv, self.dim, "scale_inv"))
        return stack(packed, rows(dof, 1, "dof"))

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``scale_inv`` and ``dof``."""
        return {"scale_inv": sym.unpack(natural[:, :-1], self.dim), "dof": natural[:, -1].copy()}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        dof = natural[:, -1]
        log_det = sym.log_det(sym.unpack(natural[:, :-1], self.dim))
        return np.asarray(
            0.5 * dof * (self.dim * _LOG_2 - log_det)
            + sym.log_gamma_multivariate(0.5 * dof, self.dim)
        )

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[-L / 2], E[log|L| / 2]``."""
        scale_inv, dof = sym.unpack(natural[:, :-1], self.dim), natural[:, -1]
        precision = dof[:, None, None] * np.linalg.inv(scale_inv)
        log_det = sym.digamma_multivariate(0.5 * dof, self.dim) + self.dim * _LOG_2
        log_det -= sym.log_det(scale_inv)
        return stack(-0.5 * sym.pack(precision), 0.5 * log_det)

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """``dof - (dim - 1)`` and the pivots of ``scale_inv``."""
        scale_inv = sym.unpack(natural[:, :-1], self.dim)
        return {
            "dof - (dim - 1)": natural[:, -1] - (self.dim - 1),
            "smallest eigenvalue of scale_inv": sym.smallest_pivot(scale_inv),
        }

    @property
    def least_count(self) -> float:
        """Enough to tell a covariance matrix."""
        return self.dim + 1.0

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``dof`` beyond its lower limit."""
        return natural[:, -1] - (self.dim - 1)

    def tempered(self, natural: FloatArray, factor: FloatArray) -> FloatArray:
        """Scale the excess of ``dof``; the expected precision stays."""
        dof = natural[:, -1:]
        new_dof = (self.dim - 1) + factor[:, None] * (dof - (self.dim - 1))
        return stack(natural[:, :-1] * (new_dof / dof), new_dof)
