"""The baselines as functions, called like `klfusion.fuse`."""

from typing import Any

from klfusion._fuse import fuse
from klfusion.baselines.baseline import Amps, DPClustering, Models
from klfusion.baselines.beta_process import Spahm
from klfusion.fusion.result import Fusion


def spahm(models: Models, *, random_state: int = 0, **settings: Any) -> Fusion:
    """Fuse point estimates by SPAHM (Yurochkin et al., NeurIPS 2019).

    Parameters
    ----------
    models, random_state
        As for `klfusion.fuse`.
    **settings
        Fields of `Spahm`, such as ``gamma``.

    Examples
    --------
    >>> import klfusion as kf
    >>> normal = kf.families.DiagonalNormal(2)
    >>> sites = [kf.Posterior(normal, normal.natural([[0, 0], [9, d]], [[1, 1], [1, 1]]), name=n)
    ...          for n, d in {"a": 9.0, "b": 9.1, "c": 9.2}.items()]
    >>> kf.baselines.spahm(sites).n_components
    2
    """
    return fuse(models, method=Spahm(**settings), pooling="average", random_state=random_state)


def dp_clustering(models: Models, *, random_state: int = 0, **settings: Any) -> Fusion:
    """Cluster the components' point estimates with a Dirichlet-process mixture.

    Arguments are those of `spahm`; settings are fields of `DPClustering`, such as ``truncation``.

    Examples
    --------
    >>> import klfusion as kf
    >>> normal = kf.families.DiagonalNormal(1)
    >>> site = kf.Posterior(normal, normal.natural([[0.0], [9.0]], [[1.0], [1.0]]))
    >>> kf.baselines.dp_clustering({"a": site, "b": site, "c": site}).n_components
    2
    """
    return fuse(
        models, method=DPClustering(**settings), pooling="average", random_state=random_state
    )


def amps(models: Models, *, random_state: int = 0, **settings: Any) -> Fusion:
    """Merge posteriors of equal size with symmetry (Campbell and How, UAI 2014).

    Arguments are those of `spahm`; settings are fields of `Amps`, such as ``n_init``.

    Examples
    --------
    >>> from klfusion import Posterior, baselines, families
    >>> rates = families.Gamma()
    >>> a = Posterior(rates, rates.natural(shape=[30, 900], rate=[10, 10]), name="a")
    >>> b = Posterior(rates, rates.natural(shape=[910, 32], rate=[10, 10]), name="b")
    >>> [labels.tolist() for labels in baselines.amps([a, b]).labels]
    [[0, 1], [1, 0]]
    """
    return fuse(models, method=Amps(**settings), pooling="average", random_state=random_state)
