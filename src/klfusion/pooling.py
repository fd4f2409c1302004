"""Where a global component lies, if silos differ by more than their posteriors say.

A posterior's precision tells how well a silo knows *its own* component. If components vary from
silo to silo, a large silo knows the global one hardly better than a small one. The random-effects
model says so: ``m_j ~ N(m, V_j + T)`` with ``V_j`` the posterior covariance of the location at silo
``j`` and ``T`` the variation between silos, estimated from all matched components together.
"""

from __future__ import annotations

import numpy as np

from klfusion._typing import FloatArray, IntArray
from klfusion.problem import FusionProblem

_PASSES = 20
_TOLERANCE = 1e-6


def random_effects_location(
    problem: FusionProblem, labels: IntArray, n_components: int
) -> FloatArray:
    """Generalised least squares estimate of each global component's location.

    Parameters
    ----------
    problem : FusionProblem
        Of a family with a `location_covariance`.
    labels : int array of shape (n,)
    n_components : int

    Returns
    -------
    array of shape (n_components, k)
    """
    location = problem.family.location(problem.natural)
    own = problem.family.location_covariance(problem.natural)
    if own.ndim == 2:
        own = own[:, :, None] * np.eye(own.shape[1])
    variation = np.zeros(location.shape[1])
    centres = _least_squares(location, own, variation, problem.weights, labels, n_components)
    for _ in range(_PASSES):
        previous = variation
        variation = _variation(location - centres[labels], own, variation, n_components)
        centres = _least_squares(location, own, variation, problem.weights, labels, n_components)
        if np.abs(variation - previous).max() <= _TOLERANCE * variation.max(initial=_TOLERANCE):
            break
    return centres


def _least_squares(
    location: FloatArray,
    own: FloatArray,
    variation: FloatArray,
    weights: FloatArray,
    labels: IntArray,
    n_components: int,
) -> FloatArray:
    """Averages weighted by ``(V_j + T)^-1``."""
    precision = np.linalg.inv(own + np.diag(variation)) * weights[:, None, None]
    total = np.zeros((n_components, *precision.shape[1:]))
    moment = np.zeros((n_components, location.shape[1]))
    np.add.at(total, labels, precision)
    np.add.at(moment, labels, np.einsum("nij,nj->ni", precision, location))
    return np.asarray(np.linalg.solve(total, moment[..., None])[..., 0])


def _variation(
    residual: FloatArray, own: FloatArray, variation: FloatArray, n_components: int
) -> FloatArray:
    """One step of expectation-maximisation for the diagonal of ``T``, (k,)."""
    within = np.linalg.inv(own + np.diag(variation))
    effect = variation * np.einsum("nij,nj->ni", within, residual)
    left = variation - variation**2 * np.einsum("nii->ni", within)
    n = len(residual)
    if not variation.any():  # the first step: by moments
        moments = (residual**2).sum(axis=0) / max(n - n_components, 1)
        return np.asarray(np.maximum(moments - np.einsum("nii->i", own) / n, 0.0))
    return np.asarray((effect**2 + left).sum(axis=0) / max(n - n_components, 1))
