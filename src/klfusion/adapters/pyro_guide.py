"""Pyro: ``AutoNormal`` and ``AutoDiagonalNormal`` guides of models with exchangeable components."""

from operator import attrgetter
from typing import Any

from klfusion.adapters._sites import Names, rebuilt_sites, site_of, sites_posterior
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior


def extract(model: Any, name: str, plate: str | None = None, shared: Names = None) -> Posterior:
    """The latent sites in ``plate`` as components, in unconstrained space.

    ``shared`` are sites outside the plate to send and average. Default: those outside every plate,
    except a simplex over the components, which depends on their order. Sites in other plates may
    belong to single observations. They stay in the silo, named in ``structure.info["left_out"]``.
    """
    if plate is None:
        raise KLFusionError("expected plate=, the name of the components' plate")
    if model.prototype_trace is None:
        raise KLFusionError("expected a trained guide; run SVI first")
    from pyro.distributions import constraints  # noqa: PLC0415 (absent where only numpy is)

    nodes = dict(model.prototype_trace.iter_stochastic_nodes())
    if hasattr(model, "locs"):
        kind = "AutoNormal"  # dots in the name of a site make nested modules
        means, scales = ([attrgetter(n)(p) for n in nodes] for p in (model.locs, model.scales))
    else:
        kind = "AutoDiagonalNormal"
        means, scales = (_unpacked(flat, nodes) for flat in (model.loc, model.scale))
    parts = zip(nodes.items(), means, scales, strict=True)
    sites = [site_of(key, site, mean, sd, constraints) for (key, site), mean, sd in parts]
    return sites_posterior(sites, name, plate, ("pyro", kind), shared)


rebuild = rebuilt_sites


def _unpacked(flat: Any, nodes: dict[str, Any]) -> list[Any]:
    """Split the vector of an ``AutoDiagonalNormal``, which concatenates all sites."""
    from torch.distributions import biject_to  # noqa: PLC0415

    shapes = [biject_to(s["fn"].support).inv(s["value"]).shape for s in nodes.values()]
    parts = flat.split([shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
