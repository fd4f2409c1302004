"""Variation between silos of means and covariance matrices; see `NormalWishart`."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from klfusion._utils.arrays import CACHED_ENTRIES, FloatArray, IntArray, blocks
from klfusion.families.capabilities import (
    Varying,
    group_means,
    reliability,
    variance_between_silos,
)
from klfusion.families.matrix_powers import many_powers, power
from klfusion.families.triangles import congruence, pack, packing, unpack


@dataclass(frozen=True, eq=False)
class VaryingMatrices(Varying):
    """Components whose logarithms of covariances are computed once for all matchings."""

    mean: FloatArray  # (n, d)
    kappa: FloatArray  # (n,)
    scatter: FloatArray  # packed, (n, d (d + 1) / 2)
    dof: FloatArray  # (n,)
    joined: Callable[..., FloatArray]  # natural parameters of all of these

    @cached_property
    def _covariance(self) -> FloatArray:
        return unpack(self.scatter / self.dof[:, None], self.mean.shape[1])

    @cached_property
    def _reference(self) -> FloatArray:
        """Geometric mean of the covariances, (d, d)."""
        of_logs = _joined(np.log, *np.linalg.eigh(self._covariance)).mean(axis=0)
        return _joined(np.exp, *np.linalg.eigh(of_logs))

    @cached_property
    def _relative(self) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues and -vectors of the covariances relative to their reference."""
        return self._relative_to(self._reference)

    def _relative_to(self, reference: FloatArray) -> tuple[FloatArray, FloatArray]:
        relative = self.scatter @ congruence(_root(reference).T)
        values, vectors = np.linalg.eigh(unpack(relative, len(reference)))
        return values / self.dof[:, None], vectors

    def variation(self, labels: IntArray) -> FloatArray:
        """``1 / kappa`` and ``1 / dof`` of the variation, reliabilities, the reference."""
        d, covariance, mean = self.mean.shape[1], self._covariance, self.mean
        in_group = group_means(covariance, labels)
        relative = np.linalg.solve(in_group, covariance)
        residual = mean - group_means(mean, labels)
        scaled = np.linalg.solve(in_group, residual[..., None])[..., 0]
        of_means = np.einsum("ni,ni->n", residual, scaled) / d
        trace = np.einsum("nii->n", relative)
        # |R - I|^2 of a Wishart with mean I is d (d + 1) / dof on average.
        of_shapes = np.einsum("nij,nji->n", relative, relative) - 2.0 * trace + d
        own = 1.0 / (self.dof - (d - 1))
        numbers = [
            variance_between_silos(of_means, 1.0 / self.kappa, labels),
            variance_between_silos(of_shapes / (d * (d + 1)), own, labels),
            reliability(mean @ _root(self._reference), labels),
            reliability(self._log_relative, labels),
        ]
        return np.concatenate([numbers, pack(self._reference)])

    @cached_property
    def _log_relative(self) -> FloatArray:
        return pack(_joined(np.log, *self._relative))

    def varied(self, variation: FloatArray) -> FloatArray:
        """Less certain means, and covariances shrunk geometrically, each by its reliability."""
        of_means, of_shapes, means_reliable, shapes_reliable = variation[:4]
        d, reference = self.mean.shape[1], unpack(variation[4:], self.mean.shape[1])
        new_dof = d - 1.0 + 1.0 / (1.0 / (self.dof - (d - 1.0)) + of_shapes)
        back = np.asarray(np.linalg.inv(_root(reference)).T, dtype=np.float64)
        scatter = self._powers(variation[4:], float(shapes_reliable)) @ congruence(back)
        scatter *= new_dof[:, None]
        kappa = means_reliable / (1.0 / self.kappa + of_means)
        return self.joined(self.mean, kappa, scatter, new_dof)

    def _powers(self, packed: FloatArray, exponent: float) -> FloatArray:
        """Powers of the covariances relative to a reference, all packed."""
        (n, d), reference = self.mean.shape, unpack(packed, self.mean.shape[1])
        known = "_reference" in vars(self) and (pack(self._reference) == packed).all()
        if not known and many_powers(n, d):
            relative = congruence(_root(reference).T)
            with suppress(np.linalg.LinAlgError):
                some = blocks((n, d * d), CACHED_ENTRIES)
                return np.concatenate([self._powers_of(own, relative, exponent) for own in some])
        values, vectors = self._relative if known else self._relative_to(reference)
        return pack(_joined(lambda own: own**exponent, values, vectors))

    def _powers_of(self, some: slice, relative: FloatArray, exponent: float) -> FloatArray:
        """The same of some, at once."""
        d = self.mean.shape[1]
        upper, scale, flat, back = packing(d)
        columns = relative.T @ self.scatter[some].T
        columns /= self.dof[some]
        matrices = columns.take(flat, axis=0)
        matrices *= back[:, None]
        found = power(matrices.reshape(d, d, -1), exponent).reshape(d * d, -1)[upper]
        return np.asarray((found * scale[:, None]).T)


def _root(reference: FloatArray) -> FloatArray:
    """A matrix ``R`` such that ``R' reference R`` is the identity."""
    return np.asarray(np.linalg.cholesky(np.linalg.inv(reference)), dtype=np.float64)


def _joined(
    function: Callable[[FloatArray], FloatArray], values: FloatArray, vectors: FloatArray
) -> FloatArray:
    """Matrix function, such as the logarithm, from eigenvalues and -vectors."""
    changed = vectors * function(values)[..., None, :]
    return np.asarray(changed @ vectors.swapaxes(-1, -2))
