"""Normal-Wishart: posterior of the mean and precision of a Gaussian."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.families.capabilities import (
    Centred,
    GaussianObservations,
    SiloVariation,
    Tempered,
    UncertainLocation,
)
from klfusion.families.numerics import symmetric as sym
from klfusion.families.parameters import check_offset, positive_dimension, rows, stack
from klfusion.families.random_effects import group_means, reliability, variance_between_silos

_RIDGE = 1e-9  # relative to the variances: of constant columns
_LOG_2 = np.log(2.0)
_LOG_2PI = np.log(2.0 * np.pi)


@lru_cache(maxsize=64)
def _bordered_layout(dim: int) -> tuple[IntArray, FloatArray]:
    """Which natural parameter, times what, each entry of ``[[moment, s], [s', kappa]]`` is."""
    where, scale = np.empty((dim + 1, dim + 1), dtype=np.intp), np.ones((dim + 1, dim + 1))
    inner, inner_scale = sym.unpacking(dim)
    where[:dim, :dim] = dim + 1 + inner.reshape(dim, dim)
    scale[:dim, :dim] = inner_scale.reshape(dim, dim)
    where[dim, :dim] = where[:dim, dim] = np.arange(dim)
    where[dim, dim] = dim
    return where.ravel(), scale.ravel()


@final
@dataclass(frozen=True)
class NormalWishart(Tempered, Centred, UncertainLocation, GaussianObservations, SiloVariation):
    """``mu | L ~ N(mean, (kappa L)^-1)``, ``L ~ Wishart(inv(scale_inv), dof)``.

    The natural parameters are ``kappa mean``, ``kappa``, ``scale_inv + kappa mean mean'`` (packed)
    and ``dof``: each grows with the data, so that averages are averages of pseudo-data.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> nw = kf.families.NormalWishart(dim=2)
    >>> eta = nw.natural(mean=[[0, 1]], kappa=[10], scale_inv=10 * np.eye(2)[None], dof=[12])
    >>> nw.params(eta)["mean"]
    array([[0., 1.]])
    """

    name: ClassVar[str] = "normal-wishart"
    dim: int

    def __post_init__(self) -> None:
        positive_dimension(self, self.dim)

    @property
    def size(self) -> int:
        """``p = d + 1 + d (d + 1) / 2 + 1``."""
        return self.dim + sym.packed_size(self.dim) + 2

    def natural(self, mean: Any, kappa: Any, scale_inv: Any, dof: Any) -> FloatArray:
        """From ``mean`` (n, d), ``kappa`` (n,), ``scale_inv`` (n, d, d), ``dof`` (n,)."""
        mean = rows(mean, self.dim, "mean")
        kappa = rows(kappa, 1, "kappa")
        scatter = sym.matrices(scale_inv, self.dim, "scale_inv")
        dof = rows(dof, 1, "dof")
        stack(mean, kappa, scatter, dof)  # refuses batches of different length
        check_offset(mean, kappa, np.einsum("nii->ni", scatter))
        moment = sym.pack(scatter + kappa[:, :, None] * sym.outer(mean))
        return stack(kappa * mean, kappa, moment, dof)

    def _split(self, natural: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean (n, d), kappa (n,), scale_inv (n, d, d), dof (n,)."""
        d = self.dim
        kappa = natural[:, d]
        mean = natural[:, :d] / kappa[:, None]
        moment = sym.unpack(natural[:, d + 1 : -1], d)
        scale_inv = moment - kappa[:, None, None] * sym.outer(mean)  # exactly symmetric
        return mean, kappa, scale_inv, natural[:, -1]

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``mean``, ``kappa``, ``scale_inv`` and ``dof``."""
        mean, kappa, scale_inv, dof = self._split(natural)
        return {"mean": mean, "kappa": kappa.copy(), "scale_inv": scale_inv, "dof": dof.copy()}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        d, dof = self.dim, natural[:, -1]
        log_kappa = np.log(natural[:, d])
        # scale_inv is the Schur complement of kappa in [[moment, s], [s', kappa]], s = kappa mean:
        # that matrix is there already, and its determinant is that of scale_inv times kappa.
        where, scale = _bordered_layout(d)
        bordered = np.take(natural, where, axis=1)
        bordered *= scale
        log_det = sym.log_det(bordered.reshape(-1, d + 1, d + 1)) - log_kappa
        return np.asarray(
            0.5 * d * (_LOG_2PI - log_kappa + dof * _LOG_2)
            - 0.5 * dof * log_det
            + sym.log_gamma_multivariate(0.5 * dof, d)
        )

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[L mu], E[-mu' L mu / 2], E[-L / 2], E[log|L| / 2]``."""
        mean, kappa, scale_inv, dof = self._split(natural)
        precision = dof[:, None, None] * np.linalg.inv(scale_inv)
        first = np.einsum("nij,nj->ni", precision, mean)
        square = self.dim / kappa + np.einsum("ni,ni->n", first, mean)
        log_det = sym.digamma_multivariate(0.5 * dof, self.dim) + self.dim * _LOG_2
        log_det -= sym.log_det(scale_inv)
        return stack(first, -0.5 * square, -0.5 * sym.pack(precision), 0.5 * log_det)

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """``kappa``, ``dof - (dim - 1)`` and the pivots of ``scale_inv``."""
        kappa = natural[:, self.dim]
        safe = natural.copy()
        safe[:, self.dim] = np.where(kappa > 0, kappa, 1.0)
        _, _, scale_inv, dof = self._split(safe)
        return {
            "kappa": kappa,
            "dof - (dim - 1)": dof - (self.dim - 1),
            "smallest eigenvalue of scale_inv": sym.smallest_pivot(scale_inv),
        }

    def location(self, natural: FloatArray) -> FloatArray:
        """The mean."""
        return self._split(natural)[0]

    def relocated(
        self, natural: FloatArray, location: FloatArray, covariance: FloatArray | None = None
    ) -> FloatArray:
        """Another mean; with a covariance, another ``kappa``; the rest unchanged.

        The covariance of the mean has the shape of the component's: ``kappa`` is such that a draw
        with the covariance given is as many deviations off, on average, as it should be.
        """
        _, kappa, scale_inv, dof = self._split(natural)
        if covariance is not None:
            ratio = np.linalg.solve(scale_inv / dof[:, None, None], covariance)
            kappa = self.dim / np.einsum("nii->n", ratio)
        return self.natural(location, kappa, scale_inv, dof)

    def location_covariance(self, natural: FloatArray) -> FloatArray:
        """Covariance of the mean at the expected precision."""
        _, kappa, scale_inv, dof = self._split(natural)
        return scale_inv / (kappa * dof)[:, None, None]

    def observation_moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means, and covariances as the precisions' expectations tell them."""
        mean, _, scale_inv, dof = self._split(natural)
        return mean, scale_inv / dof[:, None, None]

    def separation(self, natural: FloatArray, a: IntArray, b: IntArray) -> FloatArray:
        """Mahalanobis distance of the means, ``(m,)``."""
        mean, _, scale_inv, dof = self._split(natural)
        covariance = (scale_inv[a] + scale_inv[b]) / (dof[a] + dof[b])[:, None, None]
        covariance += _RIDGE * np.einsum("nii->n", covariance)[:, None, None] * np.eye(self.dim)
        between = mean[a] - mean[b]
        scaled = np.linalg.solve(covariance, between[:, :, None])[:, :, 0]
        square = np.einsum("nd,nd->n", between, scaled)
        return np.sqrt(np.where(square >= 0, square, np.nan))

    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Means minus their average."""
        mean, kappa, scale_inv, dof = self._split(natural)
        origin = (mean if like is None else self._split(like)[0]).mean(axis=0)
        return self.natural(mean - origin, kappa, scale_inv, dof)

    @property
    def least_count(self) -> float:
        """Enough to tell a covariance matrix."""
        return self.dim + 2.0

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``kappa``: the data, plus the prior's pseudo-data."""
        return natural[:, self.dim]

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """A mean and a covariance matrix."""
        return np.full(len(natural), float(self.dim + sym.packed_size(self.dim)))

    def tempered(self, natural: FloatArray, factor: FloatArray) -> FloatArray:
        """Scale ``kappa`` and the excess of ``dof``; mean and expected precision stay."""
        mean, kappa, scale_inv, dof = self._split(natural)
        floor = self.dim - 1.0
        new_dof = floor + factor * (dof - floor)
        return self.natural(
            mean, factor * kappa, scale_inv * (new_dof / dof)[:, None, None], new_dof
        )

    @property
    def variation_size(self) -> int:
        """Variances and reliabilities of means and of covariances, and a usual covariance."""
        return 4 + sym.packed_size(self.dim)

    def variation(self, natural: FloatArray, labels: IntArray) -> FloatArray:
        """``1 / kappa`` and ``1 / dof`` of silo-to-silo variation, and what means and shapes tell.

        Shapes are logarithms of covariances relative to a usual one, which comes last.
        """
        d = self.dim
        mean, kappa, scale_inv, dof = self._split(natural)
        covariance = scale_inv / dof[:, None, None]
        usual = sym.exp(sym.log(covariance).mean(axis=0))
        root = np.linalg.cholesky(np.linalg.inv(usual))
        in_group = group_means(covariance, labels)
        relative = np.linalg.solve(in_group, covariance)
        residual = mean - group_means(mean, labels)
        scaled = np.linalg.solve(in_group, residual[..., None])[..., 0]
        of_means = np.einsum("ni,ni->n", residual, scaled) / d
        trace = np.einsum("nii->n", relative)
        # |R - I|^2 of a Wishart with mean I is d (d + 1) / dof on average.
        of_shapes = np.einsum("nij,nji->n", relative, relative) - 2.0 * trace + d
        return np.concatenate(
            [
                [
                    variance_between_silos(of_means, 1.0 / kappa, labels),
                    variance_between_silos(
                        of_shapes / (d * (d + 1)), 1.0 / (dof - (d - 1)), labels
                    ),
                    reliability(mean @ root, labels),
                    reliability(sym.pack(sym.log(root.T @ covariance @ root)), labels),
                ],
                sym.pack(usual),
            ]
        )

    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        """Less certain means and covariances; means count, and shapes differ, as reliable.

        Covariances are drawn to the usual one: geometrically, as far as they are unreliable.
        """
        of_means, of_shapes, means_tell, shapes_tell = variation[:4]
        mean, kappa, scale_inv, dof = self._split(natural)
        floor = self.dim - 1.0
        new_dof = floor + 1.0 / (1.0 / (dof - floor) + of_shapes)
        usual = sym.unpack(variation[4:], self.dim)
        root = np.linalg.cholesky(np.linalg.inv(usual))
        back = np.linalg.inv(root)
        shape = sym.log(root.T @ (scale_inv / dof[:, None, None]) @ root)
        covariance = back.T @ sym.exp(shapes_tell * shape) @ back
        covariance = 0.5 * (covariance + covariance.swapaxes(-1, -2))
        return self.natural(
            mean,
            means_tell / (1.0 / kappa + of_means),
            covariance * new_dof[:, None, None],
            new_dof,
        )
