"""One more round: sites evaluate their log-likelihoods at proposed points, which are reweighted.

Points come from a Student distribution around the fused posterior. The sum of the sites'
log-likelihoods is that of all data, so importance weights remove the error of the Normals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import softmax

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import check_integer, generator
from klfusion._utils.package import provenance
from klfusion._utils.text import few
from klfusion.draws.fused import JointNormal, joint_normal
from klfusion.draws.priors import log_prior, precision_of
from klfusion.draws.variables import constrained
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.coefficients import is_regression
from klfusion.posteriors.structure.regression import Information

_DOF = 5  # of the Student distribution: tails heavier than those of any posterior of a regression


def proposals(fusion: Fusion, draws: int, random_state: Any) -> dict[str, FloatArray]:
    """See `Fusion.proposals`."""
    joint = _joint(fusion)
    return constrained(joint.variables, _points(joint, draws, random_state))


def _joint(fusion: Fusion) -> JointNormal:
    joint = joint_normal(fusion.posterior)
    info = fusion.posterior.structure.info if fusion.posterior.structure is not None else {}
    if not is_regression(fusion.posterior) or info.get("local"):
        raise KLFusionError("expected a fusion of draws without components and local variables")
    return joint


def _points(joint: JointNormal, draws: int, random_state: Any) -> FloatArray:
    check_integer("draws", draws)
    rng, dim = generator(random_state), len(joint.mean)
    noise = rng.normal(size=(draws, dim)) / np.sqrt(rng.chisquare(_DOF, (draws, 1)) / _DOF)
    return np.asarray(joint.mean + noise @ np.linalg.cholesky(joint.covariance).T)


def reweighted(
    fusion: Fusion, log_likelihoods: Mapping[str, Any], prior: Any, draws: int, random_state: Any
) -> Fusion:
    """See `Fusion.reweighted`."""
    joint = _joint(fusion)
    x = _points(joint, draws, random_state)
    missing = [name for name in fusion.silo_names if name not in log_likelihoods]
    if missing or len(log_likelihoods) != fusion.n_silos:
        got = few([*log_likelihoods])
        raise KLFusionError(f"expected log-likelihoods of {few(fusion.silo_names)}, got {got}")
    total = np.zeros(draws)
    for name, values in log_likelihoods.items():
        own = np.asarray(values, dtype=np.float64)
        if own.shape != (draws,) or np.isnan(own).any():
            expected = f"expected {draws} log-likelihoods, one per proposed point"
            raise KLFusionError(f"silo {name!r}: {expected}, got shape {own.shape} or NaN")
        total += own
    total += log_prior(joint.variables, constrained(joint.variables, x), x, prior, "reweighted")
    away = np.linalg.solve(np.linalg.cholesky(joint.covariance), (x - joint.mean).T)
    radius = np.square(away).sum(axis=0)
    total += 0.5 * (_DOF + x.shape[1]) * np.log1p(radius / _DOF)  # constants cancel
    weights = softmax(total)
    effective, dim = 1.0 / float(np.square(weights).sum()), x.shape[1]
    if not effective > dim + 2:
        raise KLFusionError(
            f"expected an effective sample size above {dim + 2}, for {dim} coordinates, got "
            f"{effective:.1f} of {draws} points: the sites' posteriors are far from Normal"
        )
    mean = weights @ x
    covariance = np.cov(x.T, aweights=weights).reshape(dim, dim)
    precision = precision_of(covariance, effective)
    posterior = fusion.posterior
    names, known = posterior.structure, joint.variables
    assert names is not None
    order = [key for v in known for key in v.coordinates]
    rows = np.array([order.index(key) for key in names.info["coordinates"]])
    natural = Information(precision @ mean, precision).some(rows).natural()[None]
    source = {**posterior.provenance, **provenance(points=draws, effective=round(effective, 1))}
    return replace(fusion, posterior=replace(posterior, natural=natural, provenance=source))
