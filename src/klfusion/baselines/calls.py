"""The baselines as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from klfusion._fuse import fuse
from klfusion.baselines.amps import Amps
from klfusion.baselines.dp_clustering import DPClustering
from klfusion.baselines.spahm import Spahm
from klfusion.fusion.result import Fusion

Models = Sequence[Any] | Mapping[str, Any]


def spahm(models: Models, *, random_state: int = 0, **settings: Any) -> Fusion:
    """Fuse point estimates by SPAHM (Yurochkin et al., NeurIPS 2019).

    Parameters
    ----------
    models : sequence or mapping
        As for `klfusion.fuse`.
    random_state : int
    **settings
        Of `Spahm`.

    Examples
    --------
    >>> import klfusion as kf
    >>> normal = kf.families.DiagonalNormal(2)
    >>> sites = [kf.Posterior(normal, normal.natural([[0, 0], [9, d]], [[1, 1], [1, 1]]), name=n)
    ...          for n, d in {"a": 9.0, "b": 9.1, "c": 9.2}.items()]
    >>> kf.baselines.spahm(sites).n_components
    2
    """
    return fuse(models, method=Spahm(**settings), random_state=random_state)


def dp_clustering(models: Models, *, random_state: int = 0, **settings: Any) -> Fusion:
    """Cluster the components' point estimates with a Dirichlet-process mixture.

    Takes what `spahm` takes; settings are those of `DPClustering`.
    """
    return fuse(models, method=DPClustering(**settings), random_state=random_state)


def amps(models: Models, *, random_state: int = 0, **settings: Any) -> Fusion:
    """Merge posteriors of equal size with symmetry (Campbell and How, UAI 2014).

    Takes what `spahm` takes; settings are those of `Amps`.
    """
    return fuse(models, method=Amps(**settings), random_state=random_state)
