"""Published alternatives to `klfusion.fuse`, with the same arguments and the same result type."""

from klfusion.baselines.baseline import Amps, DPClustering, amps, dp_clustering
from klfusion.baselines.beta_process import Pfnm, Spahm, spahm
from klfusion.baselines.networks import Ensemble, coordinate_average, pfnm, plain_average

__all__ = ["Amps", "DPClustering", "Ensemble", "Pfnm", "Spahm"]
__all__ += ["amps", "coordinate_average", "dp_clustering", "pfnm", "plain_average", "spahm"]
