"""A new last layer for a fused network, in one more round."""

from typing import Any

import numpy as np

from klfusion._fuse import fuse
from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import check_flag, naming_silo
from klfusion._utils.text import brief
from klfusion.adapters import extract, rebuild
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.learners import BayesianHead
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import network


class FusedNetworkFeatures:
    """The last hidden layer of a fused network, and the inputs beside it if they are wanted."""

    def __init__(self, fusion: Fusion | Posterior, *, inputs: bool) -> None:
        fused = fusion.posterior if isinstance(fusion, Fusion) else fusion
        structure = fused.structure if isinstance(fused, Posterior) else None
        if structure is None or structure.kind != network.KIND:
            raise KLFusionError(f"expected a fusion of networks, got {brief(fusion)}")
        self.network, self.inputs = rebuild(fused), inputs

    def transform(self, X: Any) -> FloatArray:
        """Features (n, d) of rows."""
        found = self.network.features(X)
        return np.hstack([found, np.asarray(X)]) if self.inputs else np.asarray(found)


def head_statistics(
    fusion: Fusion | Posterior, X: Any, y: Any, *, name: str, inputs: bool = True
) -> Posterior:
    """What a site sends so that a fused network gets a head of all sites' data.

    The site computes means and deviations of the last hidden layer of the fused network for its own
    rows. It sends counts and sums by class and a scatter, as `klfusion.learners.BayesianHead`
    does.

    Parameters
    ----------
    fusion : Fusion or Posterior
        Of networks; all sites have the same. The fused posterior will do.
    X, y
        Rows (n, d) and labels (n,) of the site.
    name : str
        Of the site.
    inputs : bool
        Whether the inputs are features of the head, too. Few classes per site leave hidden units
        that ignore much of them; very many inputs take bytes with their square.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> rng = np.random.default_rng(0)
    >>> shapes = {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (3, 8), "fc2.bias": (3,)}
    >>> net = {key: (rng.normal(size=s), np.full(s, 0.1)) for key, s in shapes.items()}
    >>> fusion, x = kf.fuse({"a": net}), rng.normal(size=(90, 4))
    >>> y = x[:, :3].argmax(axis=1)
    >>> sent = [kf.head_statistics(fusion, x[y == k], y[y == k], name=f"{k}") for k in range(3)]
    >>> kf.refit_head(fusion, sent).predict(x).shape
    (90,)
    """
    check_flag("inputs", inputs)
    head = BayesianHead(FusedNetworkFeatures(fusion, inputs=inputs))
    with naming_silo(name):
        return extract(head.fit(X, y), name=name)


def refit_head(fusion: Fusion | Posterior, statistics: Any) -> BayesianHead:
    """A classifier on the last hidden layer of a fused network, exact for every partition.

    The last layer of networks whose sites have different classes never compared them. This one is
    the posterior of all sites' data, given the layers before it.

    Parameters
    ----------
    fusion : Fusion or Posterior
        Of networks.
    statistics
        List or mapping of what `head_statistics` returned, a Fusion of it, or its posterior.
    """
    features = FusedNetworkFeatures(fusion, inputs=False)
    if not isinstance(statistics, Fusion | Posterior):
        statistics = fuse(statistics)
    head = rebuild(statistics.posterior if isinstance(statistics, Fusion) else statistics)
    if not isinstance(head, BayesianHead):
        raise KLFusionError(f"expected what head_statistics returned, got {brief(statistics)}")
    n_units = 2 * features.network.layers[-1].shape[1]
    features.inputs = head.statistics_.sums.shape[1] > n_units
    head.features = features
    head.check_map()
    return head
