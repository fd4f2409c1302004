"""The noise and prior of linear regressions: what each silo estimates, and what all of them do.

A silo that estimates the variance of its noise from few rows may be far too certain of its
coefficients by luck. Variances of silos are scaled inverse chi-square with ``nu`` degrees of
freedom around a common one (Smyth 2004). Then an estimate ``s2`` from ``f`` degrees of freedom is
the common variance times an F variate, and given it the variance of the silo is about
``(nu common + f s2) / (nu + f)``. The common variance and ``nu`` have the largest likelihood. Where
estimates differ by no more than chance, ``nu`` is infinite, and all silos have one variance, as in
a regression of the pooled rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import betaln, gammaln

from klfusion._utils.arrays import TINY, FloatArray
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.regression import Information

FREEDOM = "freedom"  # array of a structure: residual degrees of freedom of an estimated noise


def shared_noise(posteriors: Sequence[Posterior]) -> list[Posterior]:
    """Regressions whose noise is as all silos estimate it; others are returned unchanged."""
    structures = [p.structure for p in posteriors]
    if len(posteriors) < 2 or not all(s is not None and FREEDOM in s.arrays for s in structures):
        return list(posteriors)
    rows = [(s.arrays["noise"], s.arrays[FREEDOM]) for s in structures if s is not None]
    noise, freedom = np.array(rows, dtype=np.float64).T
    with np.errstate(over="ignore", under="ignore"):
        own_variances = noise**2
    if not (np.isfinite(own_variances).all() and (own_variances >= TINY).all()):
        return list(posteriors)  # beyond what floats can compare
    variances = moderated(own_variances, freedom)
    return [
        _with_variance(p, float(own), float(before))
        for p, own, before in zip(posteriors, variances, own_variances, strict=True)
    ]


def shared_prior(posteriors: Sequence[Posterior]) -> list[Posterior]:
    """Regressions that estimated their priors, with one whose variances are the average of theirs.

    A silo may estimate from few rows that all coefficients are zero. An average of precisions would
    take its word for all others. Silos with other coefficients are returned unchanged.
    """
    infos = [{} if p.structure is None else p.structure.info for p in posteriors]
    names = {tuple(info.get("coordinates", ())) for info in infos}
    if len(names) > 1 or not all(info.get("estimated_prior") for info in infos):
        return list(posteriors)
    dim = len(infos[0]["coordinates"])
    precisions = [np.diag(Information.of(np.asarray(p.prior), dim).precision) for p in posteriors]
    flat = np.min(precisions, axis=0) <= 0.0
    variance = np.mean(1.0 / np.where(flat, 1.0, precisions), axis=0)
    prior = Information(np.zeros(dim), np.diag(np.where(flat, 0.0, 1.0 / variance))).natural()
    return [
        replace(p, natural=p.natural + (prior - np.asarray(p.prior)), prior=prior)
        for p in posteriors
    ]


def _with_variance(posterior: Posterior, variance: float, before: float) -> Posterior:
    """The posterior of a regression if the noise had another variance.

    The prior of a ``ridge`` regression is relative to the noise.
    """
    structure, prior = posterior.structure, posterior.prior
    assert structure is not None and prior is not None
    factor = before / variance
    prior_then = factor * prior if structure.info.get("ridge") else prior
    natural = prior_then + factor * (posterior.natural - prior)
    arrays = {key: a for key, a in structure.arrays.items() if key != FREEDOM}
    arrays["noise"] = np.asarray(np.sqrt(variance))
    structure = Structure(structure.kind, arrays, structure.info)
    return replace(posterior, natural=natural, prior=prior_then, structure=structure)


def moderated(variances: FloatArray, freedom: FloatArray) -> FloatArray:
    """Variances of the silos (J,), from estimates with so many degrees of freedom, (J,).

    Examples
    --------
    >>> import numpy as np
    >>> from klfusion.posteriors.noise import moderated
    >>> moderated(np.array([1.0, 1.1, 0.1]), np.array([100.0, 100.0, 2.0])).round(2)
    array([1.04, 1.04, 1.04])
    >>> moderated(np.array([1.0, 100.0]), np.array([50.0, 50.0])).round(1)
    array([ 1. , 98.4])
    """
    pooled = float(np.average(variances, weights=freedom))
    half, logs = 0.5 * freedom, np.log(np.maximum(variances, TINY))
    one = gammaln(half) - half * np.log(half / pooled) + half * variances / pooled

    def misfit(nu: float, common: float) -> float:
        """Less the log-likelihood, up to a constant."""
        ratio = freedom / (nu * common)
        each = betaln(half, 0.5 * nu) - half * np.log(ratio)
        return float((each + (half + 0.5 * nu) * np.log1p(ratio * variances)).sum())

    def best(nu: float) -> tuple[float, float]:
        """The common variance of the largest likelihood, and the misfit there."""
        bounds = float(logs.min()), float(logs.max())
        found = minimize_scalar(lambda at: misfit(nu, np.exp(at)), bounds=bounds, method="bounded")
        return float(np.exp(found.x)), float(found.fun)

    typical = float(freedom.mean())

    def nu_of(share: float) -> float:
        """Of a typical silo's variance, the share that is the common one."""
        return typical * share / (1.0 - share)

    found = minimize_scalar(lambda at: best(nu_of(at))[1], bounds=(0.0, 1.0), method="bounded")
    if logs.min() == logs.max() or not found.fun < one.sum():
        return np.full(len(variances), pooled)
    nu = nu_of(float(found.x))
    return np.asarray((nu * best(nu)[0] + freedom * variances) / (nu + freedom))
