"""A variational mixture of any conjugate family, with a prior per component."""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, softmax

import klfusion as kf
from experiments.simulation import FloatArray
from klfusion.updates.rounds import LocalFit

_STARTS = 10


def fit(
    family: kf.families.Family,
    prior: FloatArray,
    statistics: FloatArray,
    start: FloatArray,
    tol: float = 1e-10,
    max_iter: int = 2000,
) -> tuple[FloatArray, FloatArray]:
    """Natural parameters (G, p) from ``start``, and the expected count of each.

    An observation adds its ``statistics`` (N, p) to a component's natural parameters, so its
    expected log-likelihood is their inner product with the mean parameters.
    """
    natural, counts = start, np.full(len(prior), len(statistics) / len(prior))
    for _ in range(max_iter):
        log_weight = digamma(1.0 + counts)
        share = softmax(statistics @ family.mean(natural).T + log_weight, axis=1)
        new, counts = prior + share.T @ statistics, share.sum(axis=0)
        moved = np.abs(new - natural).max() / np.abs(new).max()
        natural = new
        if moved < tol:
            break
    return natural, counts


def site(
    family: kf.families.Family,
    prior: FloatArray,
    statistics: FloatArray,
    n_components: int,
    seed: int,
) -> LocalFit:
    """A silo: first from several random starts, later from the given start and prior."""

    def local_fit(start: kf.Posterior | None, given: FloatArray | None) -> kf.Posterior:
        if start is not None and given is not None:
            natural, counts = fit(family, given, statistics, start.natural)
            return kf.Posterior(family, natural, counts=counts)
        own = np.repeat(prior[None], n_components, axis=0)
        fits = []
        for attempt in range(_STARTS):
            rng = np.random.default_rng([seed, attempt])
            seeds = statistics[rng.choice(len(statistics), n_components, replace=False)]
            natural, counts = fit(family, own, statistics, own + 5.0 * seeds, tol=1e-8)
            fits.append((_evidence(family, natural, own, statistics, counts), natural, counts))
        _, natural, counts = max(fits, key=lambda found: found[0])
        return kf.Posterior(family, natural, counts=counts, prior=prior)

    return local_fit


def _evidence(
    family: kf.families.Family,
    natural: FloatArray,
    prior: FloatArray,
    statistics: FloatArray,
    counts: FloatArray,
) -> float:
    """The lower bound at the optimal responsibilities, up to a constant."""
    log_p = statistics @ family.mean(natural).T + digamma(1.0 + counts)
    fitted = np.logaddexp.reduce(log_p, axis=1).sum()
    return float(fitted - np.diag(family.kl(natural, prior)).sum())
