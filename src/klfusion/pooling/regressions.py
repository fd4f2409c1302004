"""Coefficients of silos pooled, of one silo, and of a new one.

Silo ``j`` has coefficients ``b_j ~ N(b, T)``, where ``T`` is diagonal, and zero where silos share a
coefficient. What its data say about ``b_j`` is a Gaussian with precision ``A``. About ``b``
it says ``inv(I + A T) A``, which is `blurred`. So the global posterior is the prior plus the
blurred likelihoods of all silos; a new silo has the global posterior blurred; and silo ``j`` has
what the others say, blurred, plus its own likelihood. ``T`` is estimated. Few silos leave it
uncertain, so that a silo's coefficients are as uncertain as its upper limit makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families import Family, Normal
from klfusion.pooling.meta_analysis import (
    ConfidenceDistribution,
    normal_factor,
    paule_mandel,
    width,
)
from klfusion.pooling.noisy_sums import of_silo, sums_of
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.regression import KIND, LOCAL, Information

VARYING = ("random-effects", "hierarchical")  # poolings that estimate the variation
# A silo says nothing about a coefficient if its data give this share of the precision of its
# posterior: the square root of float64's precision, below which a difference has few right digits.
NOTHING = 1e-8


@dataclass(frozen=True, eq=False)
class Silos:
    """What the data of silos say, without priors, the prior, and how much silos vary, (d,)."""

    likelihoods: Sequence[Information]
    prior: Information
    variation: FloatArray
    varies: bool = False  # whether pooling lets coefficients vary

    @classmethod
    def of(cls, posteriors: Sequence[Posterior], weights: FloatArray, pooling: str) -> Silos:
        """From aligned silos."""
        naturals = np.stack([p.natural[0] for p in posteriors])
        priors = np.stack([np.asarray(p.prior) for p in posteriors])
        return cls.of_natural(posteriors[0].family, naturals, priors, weights, pooling)

    @classmethod
    def of_natural(
        cls,
        family: Family,
        naturals: FloatArray,
        priors: FloatArray,
        weights: FloatArray,
        pooling: str,
    ) -> Silos:
        """From natural parameters and priors, (J, p), of Normals."""
        assert isinstance(family, Normal)
        parts = [Information.of(own, family.dim) for own in (naturals - priors) * weights[:, None]]
        prior = Information.of(np.average(priors, axis=0, weights=weights), family.dim)
        none = np.zeros(family.dim)
        found = cls(parts, prior, none)
        if pooling not in VARYING:
            return found
        return replace(found, variation=found.estimated(), varies=True)

    @property
    def dim(self) -> int:
        """Number of coefficients."""
        return len(self.prior.shift)

    def estimates(self, k: int) -> tuple[list[int], FloatArray, FloatArray]:
        """Silos whose data say more about coefficient ``k`` than the prior; estimates, variances.

        The prior of this coefficient is left out of them. Others keep it, for a silo may lack data
        about them. Where data say less than the prior, the Gaussian that stands for them says what
        they look like within the prior, and nothing about where they would put the coefficient.
        """
        centre, variance = self._marginals
        own = float(self.prior.precision[k, k])
        precision = 1.0 / variance[:, k] - own
        silos = np.flatnonzero(precision > np.maximum(own, NOTHING / variance[:, k]))
        shift = (centre[:, k] / variance[:, k] - self.prior.shift[k])[silos]
        return silos.tolist(), shift / precision[silos], 1.0 / precision[silos]

    @cached_property
    def _marginals(self) -> tuple[FloatArray, FloatArray]:
        """Means and variances (J, d) of the coefficients at each silo, with the prior."""
        centre, variance = np.empty((2, len(self.likelihoods), self.dim))
        for j, part in enumerate(self.likelihoods):
            covariance = np.linalg.inv(part.precision + self.prior.precision)
            centre[j] = covariance @ (part.shift + self.prior.shift)
            variance[j] = np.diag(covariance)
        return centre, variance

    def estimated(self) -> FloatArray:
        """Variance of each coefficient between silos, as Paule and Mandel estimate it."""
        return np.array([paule_mandel(*self.estimates(k)[1:]) for k in range(self.dim)])

    def pooled(self, without: int | None = None) -> Information:
        """What silos, but one, say about the mean over silos; the prior is counted once."""
        parts = [p for j, p in enumerate(self.likelihoods) if j != without]
        return added(self.prior, *(blurred(part, self.variation) for part in parts))

    def of_silo(self, silo: int | None) -> Information:
        """Coefficients of one silo, or of a new one: what others say, and its own data."""
        others = blurred(self.pooled(silo), self.variation)
        return others if silo is None else added(others, self.likelihoods[silo])

    def of_varying_silo(self, silo: int | None) -> Information:
        """The same, as uncertain as few silos leave the variation."""
        around = self.of_silo(silo)
        possible = np.zeros(self.dim)
        for k in range(self.dim):
            silos, mean, variance = self.estimates(k)
            if len(silos) > 1:
                found = ConfidenceDistribution.of(mean, variance)
                possible[k] = found.for_a_new_silo if silo is None else found.limit
        precision = replace(self, variation=possible).of_silo(silo).precision
        return Information(precision @ np.linalg.solve(around.precision, around.shift), precision)

    def widened(self) -> Information:
        """`pooled`, as uncertain as few silos leave ``T``.

        The estimate of ``b`` varies by ``C`` in all, of which ``C sum_j P_j T P_j C`` is due to
        ``T``; here ``P_j`` is the blurred precision of silo ``j``. This part alone is estimated, so
        it alone has the interval of Student's t.
        """
        found = self.pooled()
        if not self.variation.any():
            return found
        silos = [len(self.estimates(k)[0]) for k in range(self.dim)]
        more = self.variation * (np.array([normal_factor(n) for n in silos]) ** 2 - 1.0)
        precisions = [blurred(part, self.variation).precision for part in self.likelihoods]
        added_ = sum((p * more) @ p for p in precisions)
        covariance = np.linalg.inv(found.precision)
        centre = covariance @ found.shift
        precision = np.linalg.inv(covariance + covariance @ added_ @ covariance)
        return Information(precision @ centre, precision)

    def corrected(self, information: Information) -> Information:
        """As wide per coefficient as the interval that few silos allow."""
        found = [self.estimates(k)[1:] for k in range(self.dim)]
        wide = [width(*own, float(tau2)) for own, tau2 in zip(found, self.variation, strict=True)]
        centre = np.linalg.solve(information.precision, information.shift)
        precision = information.precision / np.outer(wide, wide)
        return Information(precision @ centre, precision)


def added(*parts: Information) -> Information:
    """The product of densities."""
    return Information(sum(p.shift for p in parts), sum(p.precision for p in parts))  # type: ignore[arg-type]


def blurred(information: Information, variation: FloatArray) -> Information:
    """The same Gaussian with the covariance plus ``diag(variation)``."""
    if not variation.any():
        return information
    mixing = np.eye(len(variation)) + information.precision * variation
    shift = np.asarray(np.linalg.solve(mixing, information.shift), dtype=np.float64)
    precision = np.linalg.solve(mixing, information.precision)
    return Information(shift, np.asarray(precision, dtype=np.float64))


def silo_posterior(
    fused: Posterior,
    posteriors: Sequence[Posterior] | None,
    weights: FloatArray,
    pooling: str,
    silo: int | None,
) -> Posterior:
    """All coefficients of one of the aligned silos, or of a new one: shared, then local."""
    assert isinstance(fused.family, Normal) and fused.structure is not None
    shared = Information.of(fused.natural[0], fused.family.dim)
    if posteriors is not None and pooling in (*VARYING, "auto", "product"):
        sums = None if pooling in VARYING else sums_of(posteriors, weights)
        if sums is not None and silo is not None:
            return _as_posterior(fused, *of_silo(*sums, posteriors[silo].name))
        if sums is None and pooling != "product":  # a product is that of every silo
            silos = Silos.of(posteriors, weights, pooling)
            shared = silos.of_varying_silo(silo) if silos.varies else silos.of_silo(silo)
    return _with_local(fused, shared, silo)


def _with_local(fused: Posterior, shared: Information, silo: int | None) -> Posterior:
    """Shared coefficients and the local ones given them."""
    structure = fused.structure
    assert structure is not None
    information, names = shared, list(structure.info["coordinates"])
    if LOCAL[0] in structure.arrays:
        offset, gain, covariance = (structure.arrays[key] for key in LOCAL)
        if silo is None:
            mean = np.asarray(np.linalg.solve(shared.precision, shared.shift), dtype=np.float64)
            offset, gain, covariance = _new_silo(offset, gain, covariance, mean)
        else:
            offset, gain, covariance = offset[silo], gain[silo], covariance[silo]
        information = joint(shared, offset, gain, covariance)
        names += structure.info["local"]
    return _as_posterior(fused, information, names)


def _as_posterior(fused: Posterior, information: Information, names: list[str]) -> Posterior:
    """Coefficients of one silo, none of them local."""
    structure = fused.structure
    assert structure is not None
    info = {**structure.info, "local": [], "coordinates": names}
    arrays = {key: a for key, a in structure.arrays.items() if key not in LOCAL}
    family = Normal(len(names))
    natural, prior = information.natural()[None], np.zeros(family.size)
    structure = Structure(KIND, arrays, info)
    made: Any = {"prior": prior, "counts": fused.counts, "structure": structure}
    return Posterior(family, natural, name=fused.name, **made)


def joint(
    shared: Information, offset: FloatArray, gain: FloatArray, covariance: FloatArray
) -> Information:
    """Of shared and local coefficients: the latter are ``N(offset + gain s, covariance)``."""
    own = np.linalg.inv(covariance)
    across = -own @ gain
    shift = np.concatenate([shared.shift + across.T @ offset, own @ offset])
    top = np.hstack([shared.precision + gain.T @ own @ gain, across.T])
    return Information(shift, np.vstack([top, np.hstack([across, own])]))


def _new_silo(
    offset: FloatArray, gain: FloatArray, covariance: FloatArray, shared: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Local coefficients of a new silo, given shared ones: those of all silos vary around a mean.

    The variation is that of the silos' local coefficients at the global ``shared`` ones.
    """
    means, own = offset + gain @ shared, np.einsum("jll->jl", covariance)
    size = means.shape[1]
    variation = np.array([paule_mandel(means[:, k], own[:, k]) for k in range(size)])
    weights = np.linalg.inv(covariance + np.diag(variation))
    spread = np.linalg.inv(weights.sum(axis=0))
    return (
        spread @ np.einsum("jkl,jl->k", weights, offset),
        np.einsum("kl,jlm,jms->ks", spread, weights, gain),
        spread + np.diag(variation),
    )
