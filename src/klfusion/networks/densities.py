"""Densities of classes at each site, for classes that no site compared with each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.posteriors.structure import class_densities as layout

_SMALLEST = 1e-7  # share of the mean variance added to every direction: constant inputs have none
_RANK = 1e-6  # singular values below this share of the largest are rounding of float32 weights


class _Normal:
    """Normal density (up to a constant) with a root of its precision."""

    def __init__(self, mean: FloatArray, covariance: FloatArray) -> None:
        size = len(mean)
        jitter = _SMALLEST * np.trace(covariance) / size + np.finfo(np.float64).tiny
        try:
            root = np.linalg.cholesky(covariance + jitter * np.eye(size))
            self.whiten = solve_triangular(root, np.eye(size), lower=True)
        except (np.linalg.LinAlgError, ValueError) as error:
            expected = "expected covariances of class statistics to be positive definite"
            raise KLFusionError(expected) from error
        self.mean, self.log_scale = mean, -float(np.log(np.diag(root)).sum())

    def distance(self, z: FloatArray) -> FloatArray:
        """Squared Mahalanobis distances (n,) of rows (n, r) from the mean."""
        return np.asarray((((z - self.mean) @ self.whiten.T) ** 2).sum(axis=1))

    def log_density(self, z: FloatArray) -> FloatArray:
        """Log density of rows (n, r), without the constant of the dimension."""
        return self.log_scale - 0.5 * self.distance(z)


@dataclass(frozen=True, eq=False)
class ClassDensities:
    """Normal densities of each class in the coordinates of each site's first hidden layer.

    The density of class ``k`` at site ``j`` is relative to that of all sites' inputs in the same
    coordinates, so that sites with different coordinates are comparable. Covariances are posterior
    means. The prior of a class has the weight of ``r + 2`` rows and the covariance within classes
    of the site. That covariance has a prior of one row with the covariance of all inputs.

    Log ratios are divided by the dispersion ``phi``. If the ``r`` coordinates are ``r / phi``
    independent groups of equal ones, the squared distance has ``phi`` times the variance that
    independent coordinates give.
    """

    arrays: Mapping[str, FloatArray]
    _sites: list[dict[int, _Normal]] = field(init=False)
    _inputs: list[_Normal] = field(init=False)

    def __post_init__(self) -> None:
        sites, inputs = [], []
        centre, total = self.arrays[layout.INPUT_MEAN], self.arrays[layout.INPUT_COVARIANCE]
        for site in range(self.n_sites):
            basis, n, mean, covariance = (self._of(site, p) for p in layout.PARTS[:4])
            everything = basis @ total @ basis.T
            prior, seen = len(basis) + 2.0, np.flatnonzero(n > 0)
            scatter = np.einsum("k,kab->ab", n, covariance)
            within = (scatter + everything) / (n.sum() + 1.0)
            own_centre = n @ mean / max(n.sum(), 1.0)
            own = {}
            for k in seen:
                spread = (n[k] * covariance[k] + prior * within) / (n[k] + prior)
                own[int(k)] = _Normal((n[k] * mean[k] + own_centre) / (n[k] + 1.0), spread)
            sites.append(own)
            inputs.append(_Normal(basis @ centre, everything))
        object.__setattr__(self, "_sites", sites)
        object.__setattr__(self, "_inputs", inputs)

    @classmethod
    def of_site(cls, weight: FloatArray, x: FloatArray, index: IntArray, n_out: int) -> Self:
        """The statistics of one site with first weights (h, n_in) and rows of numbered classes."""
        _, size, rows = np.linalg.svd(weight, full_matrices=False)
        basis = rows[size > _RANK * size[0]]
        rank, z = len(basis), x @ basis.T
        counts = np.bincount(index, minlength=n_out).astype(np.float64)
        mean, covariance = np.zeros((n_out, rank)), np.zeros((n_out, rank, rank))
        for k in np.flatnonzero(counts):
            own = z[index == k]
            mean[k], covariance[k] = own.mean(axis=0), np.cov(own.T, bias=True).reshape(rank, rank)
        values = (basis, counts, mean, covariance, np.ones(()))
        arrays = {layout.key(0, p): v for p, v in zip(layout.PARTS, values, strict=True)}
        arrays[layout.INPUT_MEAN] = x.mean(axis=0)
        arrays[layout.INPUT_COVARIANCE] = np.cov(x.T, bias=True).reshape(x.shape[1], -1)
        (densities,) = cls(arrays)._sites
        variances = [densities[k].distance(z[index == k]).var() for k in sorted(densities)]
        dispersion = np.average(variances, weights=counts[counts > 0]) / (2.0 * rank)
        return cls({**arrays, layout.key(0, "dispersion"): np.asarray(max(dispersion, 1.0))})

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return layout.n_sites(self.arrays)

    def _of(self, site: int, part: str) -> FloatArray:
        return self.arrays[layout.key(site, part)]

    @property
    def shares(self) -> FloatArray:
        """``a`` (sites, K): the share of the rows of each class; equal for one without rows."""
        counts = np.array([self._of(s, "counts") for s in range(self.n_sites)])
        total = counts.sum(axis=0)
        return np.where(total > 0, counts / np.where(total > 0, total, 1.0), 1.0 / len(counts))

    def log_ratios(self, x: FloatArray) -> FloatArray:
        """Log density of each class relative to that of all inputs, (n, K), over dispersion."""
        shares, out = self.shares, np.zeros((len(x), len(self._of(0, "counts"))))
        for site, densities in enumerate(self._sites):
            z = x @ self._of(site, "basis").T
            inputs = self._inputs[site].log_density(z)
            for k, density in densities.items():
                out[:, k] += shares[site, k] * (density.log_density(z) - inputs)
        rows = [self._of(s, "counts").sum() for s in range(self.n_sites)]
        each = [float(self._of(s, "dispersion")) for s in range(self.n_sites)]
        return out / max(float(np.average(each, weights=rows)), 1.0)

    def combined(self, x: FloatArray, logits: FloatArray) -> FloatArray:
        """Logits (samples, n, K) of a fused network and densities combined, for rows (n, n_in).

        Log-odds of classes ``k`` and ``l`` are those of the network with weight ``o_kl``, the sum
        over sites of the smaller of ``a_jk`` and ``a_jl``, and those of densities with the rest. A
        network compares two classes as far as sites have both. Where sites have all classes in
        equal shares, the network alone decides; where no site has both, the densities do. The odds
        of all pairs give ``p_k`` proportional to ``1 / sum_l odds_lk`` (Price et al., 1995).
        """
        shares, ratios = self.shares, self.log_ratios(x)
        overlap = np.minimum(shares[:, :, None], shares[:, None, :]).sum(axis=0)
        if not np.isfinite(ratios).all():
            raise KLFusionError("expected class statistics with finite densities of the inputs")
        out = np.empty_like(logits)
        for k, own in enumerate(overlap):
            network, density = (v - v[..., k : k + 1] for v in (logits, ratios))
            out[..., k] = -logsumexp(own * network + (1.0 - own) * density, axis=-1)
        return out
