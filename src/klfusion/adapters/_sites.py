"""What the adapters of Pyro and NumPyro share: from latent sites to posteriors and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.adapters._library import origin
from klfusion.adapters._networks import numbers
from klfusion.draws.transforms import TRANSFORMS
from klfusion.errors import KLFusionError
from klfusion.families import DiagonalNormal
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.kinds import SITES

# Names in the libraries' modules of constraints, and the kind of transform.
_SUPPORTS = {
    "real": "real", "greater_than": "above", "greater_than_eq": "above", "positive": "above",
    "nonnegative": "above", "less_than": "below", "less_than_eq": "below",
    "interval": "between", "half_open_interval": "between", "open_interval": "between",
    "unit_interval": "between", "simplex": "simplex", "softplus_positive": "softplus",
}  # fmt: skip

Source = tuple[str, str]  # package and class of the guide
Names = Sequence[str] | None


@dataclass(frozen=True, eq=False)
class Site:
    """A latent site of a guide, Normal in unconstrained space."""

    name: str
    mean: FloatArray
    scale: FloatArray
    plates: dict[str, int]  # axis of each plate in the arrays, counted from the end
    support: dict[str, Any]


def site_of(name: str, site: Mapping[str, Any], mean: Any, scale: Any, constraints: Any) -> Site:
    """A latent site from its entry in a trace; ``constraints`` is the library's module."""
    mean, scale, distribution = numbers(mean), numbers(scale), site["fn"]
    event_dim = mean.ndim - len(distribution.batch_shape)
    # NumPyro has no sequential plates, whose frames in Pyro are not vectorized.
    frames = [f for f in site["cond_indep_stack"] if getattr(f, "vectorized", True)]
    plates = {f.name: f.dim - event_dim for f in frames}
    return Site(name, mean, scale, plates, support_of(distribution.support, constraints))


def support_of(
    constraint: Any, constraints: Any, others: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A constraint as JSON; ``kind`` is "other" if neither a guide's nor of ``others``."""
    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    kind = "other"
    for public, transform in {**_SUPPORTS, **(others or {})}.items():
        found = getattr(constraints, public, None)  # a class or an instance
        if type(constraint) in (found, type(found)):
            kind = transform
    bounds = {}
    for key in ("lower_bound", "upper_bound"):
        if hasattr(constraint, key):
            bound = np.asarray(getattr(constraint, key), dtype=np.float64)
            if bound.ndim or not np.isfinite(bound):
                return {"kind": "other"}
            bounds[key] = float(bound)
    return {"kind": kind, **bounds}


def constrained(x: FloatArray, support: dict[str, Any]) -> FloatArray | None:
    """The constrained value of ``x``, by the transforms of ``biject_to`` in both libraries."""
    kind = TRANSFORMS.get(support["kind"])
    if kind is None:
        return None
    return np.asarray(kind(support.get("lower_bound"), support.get("upper_bound")).constrain(x))


def sites_posterior(
    sites: Sequence[Site], name: str, plate: str, source: Source, shared: Names
) -> Posterior:
    """Sites in the plate as components, shared sites as structure; see ``pyro_guide.extract``."""
    inside = [site for site in sites if plate in site.plates]
    if not inside:
        plates = ", ".join(sorted({p for site in sites for p in site.plates})) or "none"
        raise KLFusionError(
            f"expected latent sites in a plate {plate!r}, got none; the plates with latent sites "
            f"are {plates}"
        )
    size = inside[0].mean.shape[inside[0].plates[plate]]
    outside = [site for site in sites if plate not in site.plates]
    if shared is None:
        # A simplex over the components depends on their order.
        ordered = [s.support["kind"] == "simplex" and s.mean.shape[-1] == size - 1 for s in outside]
        sent = [s for s, own in zip(outside, ordered, strict=True) if not (s.plates or own)]
    else:
        unknown = sorted(set(shared) - {site.name for site in outside})
        if unknown:
            known = ", ".join(site.name for site in outside) or "of which there are none"
            got = ", ".join(unknown)
            raise KLFusionError(f"expected shared sites outside the plate, {known}, got {got}")
        sent = [site for site in outside if site.name in shared]
    means = [np.moveaxis(site.mean, site.plates[plate], 0).reshape(size, -1) for site in inside]
    scales = [np.moveaxis(site.scale, site.plates[plate], 0).reshape(size, -1) for site in inside]
    family = DiagonalNormal(sum(m.shape[1] for m in means))
    arrays = {f"{site.name}.mean": site.mean for site in sent}
    arrays |= {f"{site.name}.variance": site.scale**2 for site in sent}
    info = {
        "plate": plate,
        "sites": [_described(site, site.plates[plate]) for site in inside],
        "shared": [_described(site) for site in sent],
        "left_out": [site.name for site in outside if site not in sent],
    }
    natural = family.natural(np.hstack(means), np.hstack(scales) ** 2)
    return Posterior(family, natural, name, None, None, *origin(*source, SITES, arrays, info))


def rebuilt_sites(posterior: Posterior) -> dict[str, dict[str, FloatArray | None]]:
    """``{site: {"mean", "variance", "median"}}``, each in the shape of the site.

    Mean and variance are of the unconstrained value, as in the guide. The median is the constrained
    value at the mean, as in ``guide.median()``; None for an unsupported constraint. A fused model
    often has more components than any silo's guide, so no guide is built. The medians can start
    one: ``AutoNormal(model, init_loc_fn=init_to_value(...))``.
    """
    structure = posterior.structure
    if structure is None or structure.kind != SITES:
        raise KLFusionError(f"{posterior.name!r}: expected the sites of a guide")
    p, low, arrays = posterior.params(), 0, dict(structure.arrays)
    for site in structure.info["sites"]:
        high = low + int(np.prod(site["shape"], dtype=int))
        for key in ("mean", "variance"):
            rows = p[key][:, low:high].reshape(-1, *site["shape"])
            arrays[f"{site['name']}.{key}"] = np.moveaxis(rows, 0, site["axis"])
        low = high
    out: dict[str, dict[str, FloatArray | None]] = {}
    for site in [*structure.info["sites"], *structure.info["shared"]]:
        mean, variance = (arrays[f"{site['name']}.{key}"] for key in ("mean", "variance"))
        median = constrained(mean, site["support"])
        out[site["name"]] = {"mean": mean, "variance": variance, "median": median}
    return out


def _described(site: Site, axis: int | None = None) -> dict[str, Any]:
    shape, where = list(site.mean.shape), {}
    if axis is not None:
        where = {"axis": axis}
        del shape[axis]
    return {"name": site.name, "shape": shape, **where, "support": site.support}
