"""NumPyro: ``AutoNormal`` and ``AutoDiagonalNormal`` guides, with the parameters SVI found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.adapters._networks import numbers
from klfusion.adapters._sites import Site, rebuilt_sites, sites_posterior, support_of
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior


def extract(
    model: Any,
    name: str,
    plate: str | None = None,
    params: Mapping[str, Any] | None = None,
    shared: Sequence[str] | None = None,
) -> Posterior:
    """The latent sites in ``plate`` as components; ``params`` is ``svi.run(...).params``.

    ``shared`` is as in Pyro's adapter, `klfusion.adapters.pyro_guide.extract`.
    """
    if plate is None or params is None:
        raise KLFusionError(
            f"silo {name!r}: expected plate=, the name of the components' plate, and params=, "
            "what SVI found (svi.run(...).params)"
        )
    if model.prototype_trace is None:
        raise KLFusionError(f"silo {name!r}: expected a trained guide; run SVI first")
    try:
        means, scales = (_values(model, params, suffix) for suffix in ("loc", "scale"))
    except KeyError as error:
        raise KLFusionError(
            f"silo {name!r}: expected the guide's own parameters in params, got none named {error}"
        ) from error
    sites = []
    for key, mean in means.items():
        site = model.prototype_trace[key]
        event_dim = mean.ndim - len(site["fn"].batch_shape)
        plates = {f.name: f.dim - event_dim for f in site["cond_indep_stack"]}
        sites.append(Site(key, mean, scales[key], plates, support_of(site["fn"].support)))
    kind = "AutoDiagonalNormal" if hasattr(model, "_unpack_latent") else "AutoNormal"
    return sites_posterior(sites, name, plate, ("numpyro", kind), shared)


def rebuild(posterior: Posterior) -> dict[str, dict[str, FloatArray | None]]:
    """``{site: {"mean", "variance", "median"}}``, as Pyro's adapter gives it."""
    return rebuilt_sites(posterior)


def _values(guide: Any, params: Mapping[str, Any], suffix: str) -> dict[str, FloatArray]:
    """One array a site, in unconstrained space."""
    if hasattr(guide, "_unpack_latent"):  # AutoDiagonalNormal: one vector for all sites
        flat = guide._unpack_latent(params[f"{guide.prefix}_{suffix}"])
        return {key: numbers(np.asarray(value)) for key, value in flat.items()}
    return {
        key: numbers(np.asarray(params[f"{key}_{guide.prefix}_{suffix}"]))
        for key in guide._init_locs
    }
