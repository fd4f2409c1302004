"""Mixtures that predict without matching: all local components, or a refit to draws of them."""

from typing import Any

import numpy as np

from klfusion._fuse import read_silos
from klfusion._utils.checks import check_integer
from klfusion.adapters import rebuild
from klfusion.baselines.baseline import Models
from klfusion.errors import KLFusionError
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import fuse_structures
from klfusion.posteriors.structure.kinds import MIXTURE
from klfusion.posteriors.structure.structure import is_point


def fedgen_gmm(
    models: Models, *, n_components: int, n_samples: int | None = None, random_state: int = 0
) -> Any:
    """Draw from the local mixtures and fit one to the draws (Pettersson et al., 2025).

    Parameters
    ----------
    models
        Mixtures, as for `klfusion.fuse`.
    n_components : int
        Size of the global mixture.
    n_samples : int, optional
        Draws of all silos, as many of each as it has observations in proportion; default: as many
        as there are observations.
    random_state : int

    Returns
    -------
    sklearn.mixture.GaussianMixture

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from sklearn.mixture import BayesianGaussianMixture
    >>> x = np.random.default_rng(0).normal(size=(200, 2)) + [[5.0, 0.0], [-5.0, 0.0]] * 100
    >>> model = BayesianGaussianMixture(n_components=2, random_state=0).fit(x)
    >>> kf.baselines.fedgen_gmm({"a": model, "b": model}, n_components=2).weights_.round(1)
    array([0.5, 0.5])
    """
    from sklearn.mixture import GaussianMixture  # noqa: PLC0415 (slow to import)

    check_integer("n_components", n_components)
    if n_samples is not None:
        check_integer("n_samples", n_samples)
    silos = _mixtures(models)
    observed = np.array([np.asarray(p.counts).sum() for p in silos])
    wanted = observed if n_samples is None else n_samples * observed / observed.sum()
    rng, draws = np.random.RandomState(random_state), []
    for posterior, n in zip(silos, np.maximum(np.round(wanted), 1).astype(int), strict=True):
        local = rebuild(posterior)
        local.set_params(random_state=rng)
        draws.append(local.sample(int(n))[0])
    if (n_draws := sum(map(len, draws))) < n_components:
        expected = f"expected at least n_components={n_components} draws"
        raise KLFusionError(f"{expected}, got {n_draws}: pass a larger n_samples")
    kind = silos[0].structure.info["covariance_type"] if silos[0].structure else "full"
    model = GaussianMixture(n_components, covariance_type=kind, random_state=random_state)
    return model.fit(np.concatenate(draws))


def concatenation(models: Models, *, prior: bool = True) -> Any:
    """The mixture of all local components, weighted by their observations.

    Parameters
    ----------
    models
        Mixtures, as for `klfusion.fuse`.
    prior : bool
        Keep each silo's prior in its components.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from sklearn.mixture import BayesianGaussianMixture
    >>> x = np.random.default_rng(0).normal(size=(200, 2)) + [[5.0, 0.0], [-5.0, 0.0]] * 100
    >>> model = BayesianGaussianMixture(n_components=2, random_state=0).fit(x)
    >>> kf.baselines.concatenation({"a": model, "b": model}).n_components
    4
    """
    silos = _mixtures(models)
    point = all(is_point(p.structure) for p in silos)  # without a prior of their own
    keep = prior and not point
    natural = np.concatenate([(p if keep else p.likelihood()).natural for p in silos])
    sizes = [p.n_components for p in silos]
    labels = np.split(np.arange(len(natural)), np.cumsum(sizes)[:-1])
    structure = fuse_structures([p.structure for p in silos], labels, len(natural))
    common = None if point else np.mean([p.prior for p in silos if p.prior is not None], axis=0)
    return rebuild(Posterior(silos[0].family, natural, "all", common, structure=structure))


def _mixtures(models: Models) -> list[Posterior]:
    silos = aligned_silos(read_silos(models))
    for posterior in silos:
        kind = None if posterior.structure is None else posterior.structure.kind
        if kind != MIXTURE or posterior.counts is None or posterior.prior is None:
            raise KLFusionError(
                f"silo {posterior.name!r}: expected a Gaussian mixture with its prior and counts, "
                f"got {posterior}"
            )
    return list(silos)
