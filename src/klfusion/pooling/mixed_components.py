"""Observations of local components that are mixtures of global ones.

Such a component is matched to none of them, and shapes none. But its observations are theirs:
without them the weights of the global mixture would be those of the other silos.
"""

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, blocks
from klfusion.families.gaussian import GaussianPosterior
from klfusion.pooling.moments import Units
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.kinds import MIXTURE


def observations_of_mixed(
    silos: Sequence[Posterior], mixed: Sequence[IntArray], natural: FloatArray
) -> FloatArray:
    """Observations of each global component among those of the ``mixed`` ones of silos, (G,).

    The shares of global components explain the moments of local ones. They are known for mixtures
    of Gaussians; other models have none.
    """
    family, size = silos[0].family, len(natural)
    rows, counts = list[FloatArray](), list[FloatArray]()
    for silo, own in zip(silos, mixed, strict=True):
        if len(own) and silo.structure is not None and silo.structure.kind == MIXTURE:
            rows.append(silo.natural[own])
            counts.append(silo.structure.arrays["counts"][own])
    if not rows or not isinstance(family, GaussianPosterior):
        return np.zeros(size)
    local, number = np.concatenate(rows), np.concatenate(counts)
    units, share = Units.of(family, natural, np.ones(size)), np.empty((len(local), size))
    moments = units.augmented(*family.observation_moments(natural))
    for some in blocks((len(local), *moments.shape[1:])):
        target = units.augmented(*family.observation_moments(local[some]))
        equal = np.full((len(target), size), 1.0 / size)
        share[some] = units.likelier(target, moments, equal)
    return np.asarray(number @ share)
