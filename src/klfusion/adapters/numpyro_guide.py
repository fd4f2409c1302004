"""NumPyro: ``AutoNormal`` and ``AutoDiagonalNormal`` guides with the parameters of SVI."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from klfusion.adapters._sites import Names, rebuilt_sites, site_of, sites_posterior
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior


def extract(
    model: Any, name: str, plate: str | None = None, params: Any = None, shared: Names = None
) -> Posterior:
    """The latent sites in ``plate`` as components; ``params`` is ``svi.run(...).params``.

    ``shared`` is as in Pyro's adapter, `klfusion.adapters.pyro_guide.extract`.
    """
    if plate is None or params is None:
        raise KLFusionError(
            "expected plate=, the name of the components' plate, and params=, the result of SVI "
            "(svi.run(...).params)"
        )
    if model.prototype_trace is None:
        raise KLFusionError("expected a trained guide; run SVI first")
    from numpyro.distributions import constraints  # noqa: PLC0415 (absent where only numpy is)

    try:
        means, scales = (_values(model, params, suffix) for suffix in ("loc", "scale"))
    except KeyError as error:
        expected = "expected the guide's own parameters in params"
        raise KLFusionError(f"{expected}, got none named {error}") from error
    trace = model.prototype_trace
    sites = [site_of(k, trace[k], mean, scales[k], constraints) for k, mean in means.items()]
    kind = "AutoDiagonalNormal" if _is_packed(model) else "AutoNormal"
    return sites_posterior(sites, name, plate, ("numpyro", kind), shared)


rebuild = rebuilt_sites


def _is_packed(guide: Any) -> bool:
    """Whether the guide has one vector for all sites, as ``AutoDiagonalNormal`` has."""
    return hasattr(guide, "get_posterior")


def _values(guide: Any, params: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    """One unconstrained array per site."""
    if _is_packed(guide):
        # NumPyro has no public way to split the vector by site.
        sites = guide._unpack_latent(params[f"{guide.prefix}_{suffix}"])
    else:
        trace = guide.prototype_trace.items()
        names = [k for k, s in trace if s["type"] == "sample" and not s["is_observed"]]
        sites = {key: params[f"{key}_{guide.prefix}_{suffix}"] for key in names}
    return {key: np.asarray(value) for key, value in sites.items()}
