"""Pyro: ``AutoNormal`` and ``AutoDiagonalNormal`` guides of models with exchangeable components."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from klfusion._utils.arrays import FloatArray
from klfusion.adapters._networks import numbers
from klfusion.adapters._sites import Site, rebuilt_sites, sites_posterior, support_of
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior


def extract(
    model: Any, name: str, plate: str | None = None, shared: Sequence[str] | None = None
) -> Posterior:
    """The latent sites in ``plate`` as components, in unconstrained space.

    Parameters
    ----------
    model : trained guide
    name : str
        The silo's name.
    plate : str
        Name of the plate over the exchangeable components.
    shared : sequence of str, optional
        Sites outside the plate to send and to average. Default: those outside every plate, but not
        a simplex over the components, as its entries follow their order. Sites in other plates may
        belong to single observations, and stay in the silo. The names of what stays are in
        ``structure.info["left_out"]``.
    """
    if plate is None:
        raise KLFusionError(f"silo {name!r}: expected plate=, the name of the components' plate")
    if model.prototype_trace is None:
        raise KLFusionError(f"silo {name!r}: expected a trained guide; run SVI first")
    values = dict(_values(model))
    sites = []
    for key, site in model.prototype_trace.iter_stochastic_nodes():
        mean, scale = values[key]
        event_dim = mean.ndim - len(site["fn"].batch_shape)
        plates = {f.name: f.dim - event_dim for f in site["cond_indep_stack"] if f.vectorized}
        sites.append(Site(key, mean, scale, plates, support_of(site["fn"].support)))
    kind = "AutoNormal" if hasattr(model, "locs") else "AutoDiagonalNormal"
    return sites_posterior(sites, name, plate, ("pyro", kind), shared)


def rebuild(posterior: Posterior) -> dict[str, dict[str, FloatArray | None]]:
    """``{site: {"mean", "variance", "median"}}``.

    Mean and variance are of the unconstrained value, as in the guide; the median is the value at
    the mean, constrained, as ``guide.median()`` has it (None for a support klfusion does not
    know). A fused model often has more components than any silo's guide, so no guide is made: the
    medians start one of the right size, ``AutoNormal(model, init_loc_fn=init_to_value(...))``.
    """
    return rebuilt_sites(posterior)


def _values(guide: Any) -> list[tuple[str, tuple[FloatArray, FloatArray]]]:
    """Mean and scale of every site."""
    names = [name for name, _ in guide.prototype_trace.iter_stochastic_nodes()]
    if hasattr(guide, "locs"):  # AutoNormal; dots in a site's name make nested modules
        pairs = [(attrgetter(n)(guide.locs), attrgetter(n)(guide.scales)) for n in names]
    else:
        locs = [value for _, value in guide._unpack_latent(guide.loc)]
        scales = [value for _, value in guide._unpack_latent(guide.scale)]
        pairs = list(zip(locs, scales, strict=True))
    return [
        (n, (numbers(loc), numbers(scale))) for n, (loc, scale) in zip(names, pairs, strict=True)
    ]
