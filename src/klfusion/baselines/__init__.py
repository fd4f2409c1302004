"""Published alternatives to `klfusion.fuse`, with the same arguments and the same result type."""

from klfusion.baselines.baseline import Amps, DPClustering, amps, dp_clustering
from klfusion.baselines.beta_process import Pfnm, Spahm, spahm
from klfusion.baselines.mixtures import concatenation, fedgen_gmm
from klfusion.baselines.networks import (
    Ensemble,
    coordinate_average,
    fisher_average,
    ot_average,
    pfnm,
    plain_average,
)

__all__ = ["Amps", "DPClustering", "Ensemble", "Pfnm", "Spahm"]
__all__ += ["amps", "concatenation", "coordinate_average", "dp_clustering", "fedgen_gmm"]
__all__ += ["fisher_average", "ot_average", "pfnm", "plain_average", "spahm"]
