"""The price of a global component for silos that are compared with a fusion."""

import numpy as np

from klfusion._utils.arrays import merge_saving
from klfusion.fusion.result import Fusion
from klfusion.methods import Auto
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem


def price_of(fusion: Fusion, clusters: Clusters) -> float:
    """The fusion's penalty; of the default, one between those of *same* and of *different*.

    At the fusion's penalty the last components that are the same merge. At another, one component
    at the centre of a cluster would join the nearest other cluster. The price is their geometric
    mean.
    """
    penalty = fusion.penalty
    if penalty == 0 or clusters.size == 1 or not isinstance(fusion.settings.method, Auto):
        return penalty
    size, mass = clusters.size, clusters.mass / clusters.counts
    family, silo = clusters.problem.family, np.zeros(size, dtype=np.intp)
    typical = FusionProblem(family, clusters.centres, silo, mass)
    of_joining = clusters.increases(slice(0, size), typical) / merge_saving(1, clusters.counts)
    different = float(of_joining[~np.eye(size, dtype=bool)].min())
    return float(np.sqrt(penalty * max(different, penalty)))
