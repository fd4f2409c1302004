"""Wishart, of precision matrices, and Normal-Wishart, of a Gaussian's mean and precision."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, in_blocks
from klfusion.families import multivariate_gamma, triangles
from klfusion.families.capabilities import Tempered
from klfusion.families.family import DimensionalFamily, check_offset, rows, stack
from klfusion.families.gaussian import LOG_2PI, GaussianPosterior, matrices
from klfusion.families.positive_definite import inverse_and_log_det, log_det, smallest_pivot
from klfusion.families.triangles import (
    bordered_layout,
    pack,
    packed_size,
    packing,
    products_with,
    squares,
    unpack,
)
from klfusion.families.varying_matrices import VaryingMatrices

_LOG_2 = float(np.log(2.0))


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
        gammas = multivariate_gamma.log_gamma(0.5 * dof, self.dim)
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
        return self._log_partition(natural, natural[:, -1], np.zeros(1))

    def log_partition_of_average(self, sums: FloatArray, mass: FloatArray) -> FloatArray:
        """``A(sums / mass)``, without dividing so many numbers."""
        return self._log_partition(sums, sums[:, -1] / mass, np.log(mass))

    def _log_partition(
        self, natural: FloatArray, dof: FloatArray, log_mass: FloatArray
    ) -> FloatArray:
        """Of natural parameters over a mass; ``dof`` has been divided."""
        d, half_dof = self.dim, 0.5 * dof
        # scale_inv is the Schur complement of kappa in [[kappa, s'], [s, moment]], s = kappa mean:
        # the determinant of that matrix, whose entries are given, is that of scale_inv times kappa.
        if triangles.many_determinants(len(natural), d + 1):
            log_dets = triangles.log_det_of(self._bordered(natural), d + 1)
        else:
            where, scale = bordered_layout(d)
            bordered = natural.take(where, axis=1)
            bordered *= scale
            log_dets = log_det(bordered.reshape(-1, d + 1, d + 1))
        log_kappa = np.log(natural[:, d])
        log_kappa -= log_mass
        log_dets -= log_kappa
        log_dets += -d * _LOG_2 - (d + 1) * log_mass
        log_dets *= half_dof
        log_kappa -= LOG_2PI
        log_kappa *= -0.5 * d
        log_kappa -= log_dets
        log_kappa += multivariate_gamma.log_gamma(half_dof, d)
        return log_kappa

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[L mu], E[-mu' L mu / 2], E[-L / 2], E[log|L| / 2]``."""
        if triangles.many_inverses(len(natural), self.dim + 1):
            return self._mean_of_many(natural)
        mean, kappa, scale_inv, dof = self._split(natural)
        precision, log_dets = _expectations(scale_inv, dof)
        first = np.einsum("nij,nj->ni", precision, mean)
        square = self.dim / kappa + np.einsum("ni,ni->n", first, mean)
        return stack(first, -0.5 * square, -0.5 * pack(precision), 0.5 * log_dets)

    def _mean_of_many(self, natural: FloatArray) -> FloatArray:
        """The same by the inverse of that matrix, [[1 / kappa + m' P m, -m' P], [-P m, P]]."""
        d, kappa, dof = self.dim, natural[:, self.dim], natural[:, -1]
        bordered, out = self._bordered(natural), np.empty((self.size, len(natural)))
        log_dets = triangles.invert(bordered, d + 1) - np.log(kappa)
        np.multiply(bordered[1 : d + 1], -dof, out=out[:d])
        out[d] = -0.5 * (d / kappa + dof * (bordered[0] - 1.0 / kappa))
        np.multiply(bordered[d + 1 :], -0.5 * packing(d)[1][:, None], out=out[d + 1 : -1])
        out[d + 1 : -1] *= dof
        out[-1] = 0.5 * _expected_log_det(dof, log_dets, d)
        return np.ascontiguousarray(out.T)

    def _bordered(self, natural: FloatArray) -> FloatArray:
        """Upper triangles of ``[[kappa, s'], [s, moment]]``, one matrix per column."""
        d, out = self.dim, np.empty((self.size - 1, len(natural)))
        out[0], out[1 : d + 1] = natural[:, d], natural[:, :d].T
        np.divide(natural[:, d + 1 : -1].T, packing(d)[1][:, None], out=out[d + 1 :])
        return out

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """``kappa``, ``dof - (dim - 1)`` and the pivots of ``scale_inv``."""
        return self._domain(natural)

    def _margins(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        return self._domain(natural, named=False)

    def _domain(self, natural: FloatArray, *, named: bool = True) -> Mapping[str, FloatArray]:
        kappa = natural[:, self.dim]
        safe = natural.copy()
        safe[:, self.dim] = np.where(kappa > 0, kappa, 1.0)
        _, _, scale_inv, dof = self._split(safe)
        return {"kappa": kappa, **_matrix_domain(scale_inv, dof, named=named)}

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
        d, kappa, dof = self.dim, natural[:, self.dim], natural[:, -1]
        new_dof = _tempered_dof(dof, factor, d)
        ratio, out = new_dof / dof, np.empty_like(natural)
        np.multiply(natural[:, : d + 1], factor[:, None], out=out[:, : d + 1])
        # The scatter is moment - s s' / kappa.
        np.multiply(natural[:, d + 1 : -1], ratio[:, None], out=out[:, d + 1 : -1])
        square = squares(natural[:, :d])
        square *= ((factor - ratio) / kappa)[:, None]
        out[:, d + 1 : -1] += square
        out[:, -1] = new_dof
        return out

    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Means minus their average: the moment is linear in what it was."""
        d, origin = self.dim, self.location(natural if like is None else like).mean(axis=0)
        change, square = products_with(origin), squares(origin[None])

        def moved(own: FloatArray) -> FloatArray:
            out, kappa = own.copy(), own[:, d, None]
            out[:, :d] -= kappa * origin
            out[:, d + 1 : -1] -= own[:, :d] @ change
            out[:, d + 1 : -1] += kappa * square
            return out

        return in_blocks(moved, natural)

    @property
    def variation_size(self) -> int:
        """Variances and reliabilities of means and of covariances, and a reference covariance."""
        return 4 + packed_size(self.dim)

    def variation(self, natural: FloatArray, labels: IntArray) -> FloatArray:
        """``1 / kappa`` and ``1 / dof`` of the variation, reliabilities, a geometric mean."""
        return self.varying(natural).variation(labels)

    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        """Less certain means, and covariances shrunk geometrically, each by its reliability."""
        return self.varying(natural).varied(variation)

    def varying(self, natural: FloatArray) -> VaryingMatrices:
        """With the logarithms of covariances computed once."""
        d, kappa = self.dim, natural[:, self.dim]
        mean = self.location(natural)
        scatter = natural[:, d + 1 : -1] - kappa[:, None] * squares(mean)

        def joined(
            mean: FloatArray, kappa: FloatArray, scatter: FloatArray, dof: FloatArray
        ) -> FloatArray:
            kappa = kappa[:, None]
            return stack(kappa * mean, kappa, scatter + kappa * squares(mean), dof)

        return VaryingMatrices(mean, kappa, scatter, natural[:, -1], joined)


def _expectations(scale_inv: FloatArray, dof: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``E[L]`` (n, d, d) and ``E[log|L|]`` (n,)."""
    precision, log_dets = inverse_and_log_det(scale_inv)
    precision *= dof[:, None, None]
    return precision, _expected_log_det(dof, log_dets, scale_inv.shape[1])


def _expected_log_det(dof: FloatArray, log_dets: FloatArray, dim: int) -> FloatArray:
    """``E[log|L|]``."""
    return multivariate_gamma.digammas(0.5 * dof, dim) + dim * _LOG_2 - log_dets


def _matrix_domain(
    scale_inv: FloatArray, dof: FloatArray, *, named: bool = True
) -> dict[str, FloatArray]:
    """Quantities by name that must be > 0."""
    return {
        "dof - (dim - 1)": dof - (scale_inv.shape[1] - 1),
        "smallest eigenvalue of scale_inv": smallest_pivot(scale_inv, named=named),
    }


def _tempered_dof(dof: FloatArray, factor: FloatArray, dim: int) -> FloatArray:
    """``dof`` with its excess over the lower limit, ``dim - 1``, scaled."""
    return np.asarray((dim - 1) + factor * (dof - (dim - 1)))
