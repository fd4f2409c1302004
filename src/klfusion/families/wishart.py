"""Wishart, of precision matrices, and Normal-Wishart, of a Gaussian's mean and precision.

Of a symmetric matrix the upper triangle is kept, its off-diagonal entries times sqrt(2), so that
the inner product of two packed matrices is the trace inner product of the matrices.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import digamma, gammaln

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.families.capabilities import (
    Tempered,
    group_means,
    reliability,
    variance_between_silos,
)
from klfusion.families.family import DimensionalFamily, check_offset, rows, stack
from klfusion.families.gaussian import LOG_2PI, GaussianPosterior, matrices
from klfusion.families.positive_definite import inverse_and_log_det, log_det, smallest_pivot

_LOG_2 = float(np.log(2.0))
_LOG_PI = float(np.log(np.pi))


def packed_size(dim: int) -> int:
    """Number of entries of a packed symmetric matrix."""
    return dim * (dim + 1) // 2


@lru_cache(maxsize=64)
def _packing(dim: int) -> tuple[IntArray, FloatArray, IntArray, FloatArray]:
    """Entry of the flattened matrix of each packed number, and its scale; then the inverse."""
    row, col = np.triu_indices(dim)
    scale = np.where(row == col, 1.0, np.sqrt(2.0))
    back = np.empty((dim, dim), dtype=np.intp)
    back[row, col] = back[col, row] = np.arange(len(row))
    return row * dim + col, scale, back.ravel(), (1.0 / scale)[back.ravel()]


def pack(matrices: FloatArray) -> FloatArray:
    """``(..., d, d) -> (..., d (d + 1) / 2)``."""
    dim = matrices.shape[-1]
    upper, scale, *_ = _packing(dim)
    return np.take(matrices.reshape(*matrices.shape[:-2], dim * dim), upper, axis=-1) * scale


def unpack(packed: FloatArray, dim: int) -> FloatArray:
    """``(..., d (d + 1) / 2) -> (..., d, d)``."""
    *_, flat, scale = _packing(dim)
    return (np.take(packed, flat, axis=-1) * scale).reshape(*packed.shape[:-1], dim, dim)


@final
@dataclass(frozen=True)
class Wishart(DimensionalFamily, Tempered):
    """``L ~ Wishart(inv(scale_inv), dof)``, with ``E[L] = dof inv(scale_inv)``.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> kf.families.Wishart(dim=2).natural(scale_inv=np.eye(2)[None], dof=[4.0])
    array([[1., 0., 1., 4.]])
    """

    name: ClassVar[str] = "wishart"

    @property
    def size(self) -> int:
        """``p = d (d + 1) / 2 + 1``."""
        return packed_size(self.dim) + 1

    def natural(self, scale_inv: Any, dof: Any) -> FloatArray:
        """From ``scale_inv`` (n, d, d) and ``dof`` (n,)."""
        return stack(pack(matrices(scale_inv, self.dim, "scale_inv")), rows(dof, 1, "dof"))

    def _split(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Scale_inv (n, d, d), dof (n,)."""
        return unpack(natural[:, :-1], self.dim), natural[:, -1]

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``scale_inv`` and ``dof``."""
        scale_inv, dof = self._split(natural)
        return {"scale_inv": scale_inv, "dof": dof.copy()}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        scale_inv, dof = self._split(natural)
        gammas = _log_gamma_multivariate(0.5 * dof, self.dim)
        return np.asarray(0.5 * dof * (self.dim * _LOG_2 - log_det(scale_inv)) + gammas)

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[-L / 2], E[log|L| / 2]``."""
        precision, log_dets = _expectations(*self._split(natural))
        return stack(-0.5 * pack(precision), 0.5 * log_dets)

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """``dof - (dim - 1)`` and the pivots of ``scale_inv``."""
        return _matrix_domain(*self._split(natural))

    @property
    def least_count(self) -> float:
        """A covariance matrix takes ``d + 1`` points."""
        return self.dim + 1.0

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """A covariance matrix."""
        return np.full(len(natural), float(packed_size(self.dim)))

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``dof`` beyond its lower limit."""
        return natural[:, -1] - (self.dim - 1)

    def tempered(self, natural: FloatArray, factor: FloatArray) -> FloatArray:
        """Scale the excess of ``dof``; the expected precision stays."""
        dof = natural[:, -1:]
        new_dof = _tempered_dof(dof, factor[:, None], self.dim)
        return stack(natural[:, :-1] * (new_dof / dof), new_dof)


@final
@dataclass(frozen=True)
class NormalWishart(GaussianPosterior):
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

    @property
    def size(self) -> int:
        """``p = d + 1 + d (d + 1) / 2 + 1``."""
        return self.dim + packed_size(self.dim) + 2

    def natural(self, mean: Any, kappa: Any, scale_inv: Any, dof: Any) -> FloatArray:
        """From ``mean`` (n, d), ``kappa`` (n,), ``scale_inv`` (n, d, d), ``dof`` (n,)."""
        mean, kappa = rows(mean, self.dim, "mean"), rows(kappa, 1, "kappa")
        scatter, dof = matrices(scale_inv, self.dim, "scale_inv"), rows(dof, 1, "dof")
        stack(mean, kappa, scatter, dof)  # refuses batches of different length
        check_offset(mean, kappa, np.einsum("nii->ni", scatter))
        return self._joined(mean, kappa[:, 0], scatter, dof[:, 0])

    def _split(self, natural: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean (n, d), kappa (n,), scale_inv (n, d, d), dof (n,)."""
        d = self.dim
        kappa = natural[:, d]
        mean = natural[:, :d] / kappa[:, None]
        scale_inv = unpack(natural[:, d + 1 : -1], d)
        square = mean[:, :, None] * mean[:, None, :]  # exactly symmetric
        square *= kappa[:, None, None]
        scale_inv -= square
        return mean, kappa, scale_inv, natural[:, -1]

    def location(self, natural: FloatArray) -> FloatArray:
        """The mean, without the matrices."""
        return np.asarray(natural[:, : self.dim] / natural[:, self.dim, None])

    def _joined(
        self, mean: FloatArray, kappa: FloatArray, scatter: FloatArray, weight: FloatArray
    ) -> FloatArray:
        kappa, weight = kappa[:, None], weight[:, None]
        moment = scatter + kappa[:, :, None] * (mean[:, :, None] * mean[:, None, :])
        return np.concatenate([kappa * mean, kappa, pack(moment), weight], axis=1)

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``mean``, ``kappa``, ``scale_inv`` and ``dof``."""
        mean, kappa, scale_inv, dof = self._split(natural)
        return {"mean": mean, "kappa": kappa.copy(), "scale_inv": scale_inv, "dof": dof.copy()}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        d, dof = self.dim, natural[:, -1]
        log_kappa = np.log(natural[:, d])
        # scale_inv is the Schur complement of kappa in [[moment, s], [s', kappa]], s = kappa mean:
        # the determinant of that matrix, whose entries are given, is that of scale_inv times kappa.
        where, scale = _bordered_layout(d)
        bordered = np.take(natural, where, axis=1)
        bordered *= scale
        log_dets = log_det(bordered.reshape(-1, d + 1, d + 1)) - log_kappa
        total = 0.5 * d * (LOG_2PI - log_kappa + dof * _LOG_2) - 0.5 * dof * log_dets
        return np.asarray(total + _log_gamma_multivariate(0.5 * dof, d))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[L mu], E[-mu' L mu / 2], E[-L / 2], E[log|L| / 2]``."""
        mean, kappa, scale_inv, dof = self._split(natural)
        precision, log_dets = _expectations(scale_inv, dof)
        first = np.einsum("nij,nj->ni", precision, mean)
        square = self.dim / kappa + np.einsum("ni,ni->n", first, mean)
        return stack(first, -0.5 * square, -0.5 * pack(precision), 0.5 * log_dets)

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """``kappa``, ``dof - (dim - 1)`` and the pivots of ``scale_inv``."""
        kappa = natural[:, self.dim]
        safe = natural.copy()
        safe[:, self.dim] = np.where(kappa > 0, kappa, 1.0)
        _, _, scale_inv, dof = self._split(safe)
        return {"kappa": kappa, **_matrix_domain(scale_inv, dof)}

    def observed(self, mean: FloatArray, covariance: FloatArray, n: FloatArray) -> FloatArray:
        """The moments times ``n``."""
        return self._joined(mean, n, covariance * n[:, None, None], n)

    def of_points(self, points: FloatArray) -> FloatArray:
        """Squares and products of each, packed at once; each is contiguous in memory."""
        d, low = self.dim, self.dim + 1
        columns = np.ascontiguousarray(points.T)
        scaled = np.sqrt(2.0) * columns
        out = np.empty((self.size, len(points)))
        out[:d], out[d], out[-1] = columns, 1.0, 1.0
        for k in range(d):
            np.multiply(columns[k], columns[k], out=out[low])
            np.multiply(columns[k + 1 :], scaled[k], out=out[low + 1 : low + d - k])
            low += d - k
        return out.T

    def _kappa(self, observed: FloatArray, covariance: FloatArray) -> FloatArray:
        """Such that a draw with that covariance is at the expected Mahalanobis distance."""
        return np.asarray(self.dim / np.einsum("nii->n", np.linalg.solve(observed, covariance)))

    @property
    def least_count(self) -> float:
        """A mean and a covariance matrix take ``d + 2`` points."""
        return self.dim + 2.0

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """A mean and a covariance matrix."""
        return np.full(len(natural), float(self.dim + packed_size(self.dim)))

    def tempered(self, natural: FloatArray, factor: FloatArray) -> FloatArray:
        """Scale ``kappa`` and the excess of ``dof``; mean and expected precision stay."""
        mean, kappa, scale_inv, dof = self._split(natural)
        new_dof = _tempered_dof(dof, factor, self.dim)
        scatter = scale_inv * (new_dof / dof)[:, None, None]
        return self._joined(mean, factor * kappa, scatter, new_dof)

    @property
    def variation_size(self) -> int:
        """Variances and reliabilities of means and of covariances, and a reference covariance."""
        return 4 + packed_size(self.dim)

    def variation(self, natural: FloatArray, labels: IntArray) -> FloatArray:
        """``1 / kappa`` and ``1 / dof`` of the variation, reliabilities, a geometric mean."""
        d = self.dim
        mean, kappa, scale_inv, dof = self._split(natural)
        covariance = scale_inv / dof[:, None, None]
        reference = _of_eigenvalues(np.exp, _of_eigenvalues(np.log, covariance).mean(axis=0))
        root = np.linalg.cholesky(np.linalg.inv(reference))
        in_group = group_means(covariance, labels)
        relative = np.linalg.solve(in_group, covariance)
        residual = mean - group_means(mean, labels)
        scaled = np.linalg.solve(in_group, residual[..., None])[..., 0]
        of_means = np.einsum("ni,ni->n", residual, scaled) / d
        trace = np.einsum("nii->n", relative)
        # |R - I|^2 of a Wishart with mean I is d (d + 1) / dof on average.
        of_shapes = np.einsum("nij,nji->n", relative, relative) - 2.0 * trace + d
        numbers = [
            variance_between_silos(of_means, 1.0 / kappa, labels),
            variance_between_silos(of_shapes / (d * (d + 1)), 1.0 / (dof - (d - 1)), labels),
            reliability(mean @ root, labels),
            reliability(pack(_of_eigenvalues(np.log, root.T @ covariance @ root)), labels),
        ]
        return np.concatenate([numbers, pack(reference)])

    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        """Less certain means, and covariances shrunk geometrically, each by its reliability."""
        of_means, of_shapes, means_reliable, shapes_reliable = variation[:4]
        mean, kappa, scale_inv, dof = self._split(natural)
        floor = self.dim - 1.0
        new_dof = floor + 1.0 / (1.0 / (dof - floor) + of_shapes)
        root = np.linalg.cholesky(np.linalg.inv(unpack(variation[4:], self.dim)))
        back = np.linalg.inv(root)
        relative = root.T @ (scale_inv / dof[:, None, None]) @ root
        covariance = back.T @ _of_eigenvalues(lambda own: own**shapes_reliable, relative) @ back
        covariance = 0.5 * (covariance + covariance.swapaxes(-1, -2))
        kappa = means_reliable / (1.0 / kappa + of_means)
        return self._joined(mean, kappa, covariance * new_dof[:, None, None], new_dof)


@lru_cache(maxsize=64)
def _halves(dim: int) -> FloatArray:
    """``0, 1/2, ..., (dim - 1) / 2``."""
    return np.asarray(0.5 * np.arange(dim))


@lru_cache(maxsize=64)
def _bordered_layout(dim: int) -> tuple[IntArray, FloatArray]:
    """Which natural parameter, times what, each entry of ``[[moment, s], [s', kappa]]`` is."""
    where, scale = np.empty((dim + 1, dim + 1), dtype=np.intp), np.ones((dim + 1, dim + 1))
    *_, inner, inner_scale = _packing(dim)
    where[:dim, :dim] = dim + 1 + inner.reshape(dim, dim)
    scale[:dim, :dim] = inner_scale.reshape(dim, dim)
    where[dim, :dim] = where[:dim, dim] = np.arange(dim)
    where[dim, dim] = dim
    return where.ravel(), scale.ravel()


def _expectations(scale_inv: FloatArray, dof: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``E[L]`` (n, d, d) and ``E[log|L|]`` (n,)."""
    dim = scale_inv.shape[1]
    digammas = np.asarray(digamma(0.5 * dof[:, None] - _halves(dim)).sum(axis=1))
    precision, log_dets = inverse_and_log_det(scale_inv)
    precision *= dof[:, None, None]
    return precision, digammas + dim * _LOG_2 - log_dets


def _matrix_domain(scale_inv: FloatArray, dof: FloatArray) -> dict[str, FloatArray]:
    """Quantities by name that must be > 0."""
    return {
        "dof - (dim - 1)": dof - (scale_inv.shape[1] - 1),
        "smallest eigenvalue of scale_inv": smallest_pivot(scale_inv),
    }


def _tempered_dof(dof: FloatArray, factor: FloatArray, dim: int) -> FloatArray:
    """``dof`` with its excess over the lower limit, ``dim - 1``, scaled."""
    return np.asarray((dim - 1) + factor * (dof - (dim - 1)))


def _log_gamma_multivariate(a: FloatArray, dim: int) -> FloatArray:
    """``log Gamma_d(a)`` of each entry of a vector."""
    gammas = gammaln(a[:, None] - _halves(dim)).sum(axis=1)
    gammas += 0.25 * dim * (dim - 1) * _LOG_PI
    return np.asarray(gammas)


def _of_eigenvalues(
    function: Callable[[FloatArray], FloatArray], symmetric: FloatArray
) -> FloatArray:
    """Matrix function of each, such as the logarithm."""
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * function(values)[..., None, :]) @ vectors.swapaxes(-1, -2))
