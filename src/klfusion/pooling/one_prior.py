"""One prior for silos that were fitted without any.

Point estimates and numbers of observations are sufficient statistics. To compare them, an adapter
adds a prior to them, which follows the silo's data. The average over silos is that of the pooled
data: its natural parameters are moments. With the same prior everywhere, a fused component is this
prior plus statistics. So the prior can be taken out again, and what is left is the estimate from
the pooled observations.

``"robust"`` and the barycenters of other divergences do not add statistics, and a silo's prior is a
claim. There each silo keeps its own, and so does what is fused.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families.gaussian import GaussianPosterior
from klfusion.objective.divergences import KL
from klfusion.pooling.reduction import tied
from klfusion.posteriors.compatibility import Silo
from klfusion.posteriors.posterior import Posterior, less_prior
from klfusion.posteriors.structure.structure import is_point, is_tied


def under_one_prior(
    silos: Sequence[Posterior], pooling: str, divergence: str = KL.name
) -> list[Posterior]:
    """Silos of point estimates as if the average of their priors were each one's."""
    given = [p.prior for p in silos if p.prior is not None and is_point(p.structure)]
    if len(given) < len(silos) or not _adds(pooling, divergence) or _have_one(silos):
        return list(silos)
    priors, family = np.stack(given), silos[0].family
    natural = np.concatenate([p.natural for p in silos])
    silo = np.repeat(np.arange(len(silos)), [p.n_components for p in silos])
    one = priors.mean(axis=0)
    moved = natural + (one - priors)[silo]
    if not family.inside(moved).all():  # some silo's components are not from its prior
        return list(silos)
    parts = np.split(moved, np.flatnonzero(np.diff(silo)) + 1)
    return [replace(p, natural=own, prior=one) for p, own in zip(silos, parts, strict=True)]


def is_removable(silos: Sequence[Silo], pooling: str, divergence: str = KL.name) -> bool:
    """Whether a fused component is the prior of all silos plus statistics."""
    return _adds(pooling, divergence) and _have_one(silos)


def observed_alone(posterior: Posterior, natural: FloatArray | None = None) -> FloatArray:
    """What the observations of point estimates add to their prior, (n, p); see `less_prior`.

    By default of the posterior's own natural parameters.
    """
    family, prior, structure = posterior.family, posterior.prior, posterior.structure
    natural = posterior.natural if natural is None else natural
    if prior is None or structure is None:
        return natural
    assert isinstance(family, GaussianPosterior)
    if not is_tied(structure):
        return less_prior(family, family.as_observed(natural, prior), prior)
    counts = structure.arrays["counts"]
    natural = family.as_observed(natural, prior, counts / counts.sum())
    return less_prior(family, prior + tied(family, natural - prior), prior)


def _adds(pooling: str, divergence: str) -> bool:
    return pooling != "robust" and divergence == KL.name


def _have_one(silos: Sequence[Silo]) -> bool:
    first = silos[0].prior
    return first is not None and all(
        p.prior is first or (p.prior is not None and np.array_equal(p.prior, first)) for p in silos
    )
