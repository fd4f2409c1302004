"""Wishart: posterior of a precision matrix whose mean is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families.capabilities import Tempered
from klfusion.families.family import DimensionalFamily
from klfusion.families.numerics import symmetric as sym
from klfusion.families.parameters import rows, stack

LOG_2 = np.log(2.0)


@final
@dataclass(frozen=True)
class Wishart(DimensionalFamily, Tempered):
    """``L ~ Wishart(inv(scale_inv), dof)``, with ``E[L] = dof inv(scale_inv)``.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> wishart = kf.families.Wishart(dim=2)
    >>> wishart.natural(scale_inv=np.eye(2)[None], dof=[4.0])
    array([[1., 0., 1., 4.]])
    """

    name: ClassVar[str] = "wishart"

    @property
    def size(self) -> int:
        """``p = d (d + 1) / 2 + 1``."""
        return sym.packed_size(self.dim) + 1

    def natural(self, scale_inv: Any, dof: Any) -> FloatArray:
        """From ``scale_inv`` (n, d, d) and ``dof`` (n,)."""
        packed = sym.pack(sym.matrices(scale_inv, self.dim, "scale_inv"))
        return stack(packed, rows(dof, 1, "dof"))

    def _split(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Scale_inv (n, d, d), dof (n,)."""
        return sym.unpack(natural[:, :-1], self.dim), natural[:, -1]

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``scale_inv`` and ``dof``."""
        scale_inv, dof = self._split(natural)
        return {"scale_inv": scale_inv, "dof": dof.copy()}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        scale_inv, dof = self._split(natural)
        return np.asarray(
            0.5 * dof * (self.dim * LOG_2 - sym.log_det(scale_inv))
            + sym.log_gamma_multivariate(0.5 * dof, self.dim)
        )

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[-L / 2], E[log|L| / 2]``."""
        precision, log_det = expectations(*self._split(natural))
        return stack(-0.5 * sym.pack(precision), 0.5 * log_det)

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """``dof - (dim - 1)`` and the pivots of ``scale_inv``."""
        return matrix_domain(*self._split(natural))

    @property
    def least_count(self) -> float:
        """A covariance matrix takes ``d + 1`` points."""
        return self.dim + 1.0

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """A covariance matrix."""
        return np.full(len(natural), float(sym.packed_size(self.dim)))

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``dof`` beyond its lower limit."""
        return natural[:, -1] - (self.dim - 1)

    def tempered(self, natural: FloatArray, factor: FloatArray) -> FloatArray:
        """Scale the excess of ``dof``; the expected precision stays."""
        dof = natural[:, -1:]
        new_dof = tempered_dof(dof, factor[:, None], self.dim)
        return stack(natural[:, :-1] * (new_dof / dof), new_dof)


# The Wishart part of this family and of the Normal-Wishart ----------------------------------------


def expectations(scale_inv: FloatArray, dof: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``E[L]`` (n, d, d) and ``E[log|L|]`` (n,)."""
    dim = scale_inv.shape[1]
    log_det = sym.digamma_multivariate(0.5 * dof, dim) + dim * LOG_2 - sym.log_det(scale_inv)
    return dof[:, None, None] * np.linalg.inv(scale_inv), log_det


def matrix_domain(scale_inv: FloatArray, dof: FloatArray) -> dict[str, FloatArray]:
    """Quantities by name that must be > 0."""
    return {
        "dof - (dim - 1)": dof - (scale_inv.shape[1] - 1),
        "smallest eigenvalue of scale_inv": sym.smallest_pivot(scale_inv),
    }


def tempered_dof(dof: FloatArray, factor: FloatArray, dim: int) -> FloatArray:
    """``dof`` with its excess over the lower limit, ``dim - 1``, scaled."""
    return np.asarray((dim - 1) + factor * (dof - (dim - 1)))
