"""What the adapters of Pyro and NumPyro share: latent sites to components and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from klfusion._utils.arrays import FloatArray
from klfusion.adapters._networks import library_facts
from klfusion.errors import KLFusionError
from klfusion.families import DiagonalNormal
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.sites import KIND

# Constraint classes of torch.distributions and NumPyro to what `constrained` knows of them.
_SUPPORTS = {
    "_Real": "real", "_GreaterThan": "above", "_GreaterThanEq": "above", "_Positive": "above",
    "_Nonnegative": "above", "_LessThan": "below", "_LessThanEq": "below",
    "_Interval": "between", "_HalfOpenInterval": "between", "_OpenInterval": "between",
    "_UnitInterval": "between", "_Simplex": "simplex", "_SoftplusPositive": "softplus",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Site:
    """A latent site of a guide: Normal in unconstrained space.

    ``plates`` are the axes of the unconstrained arrays, counted from the end, by plate.
    """

    name: str
    mean: FloatArray
    scale: FloatArray
    plates: dict[str, int]
    support: dict[str, Any]


def support_of(constraint: Any) -> dict[str, Any]:
    """A constraint in plain words; ``kind`` "other" where `constrained` does not know it."""
    while type(constraint).__name__ in ("_IndependentConstraint", "_RealVector", "_RealMatrix"):
        constraint = constraint.base_constraint
    kind = _SUPPORTS.get(type(constraint).__name__, "other")
    bounds = {}
    for key in ("lower_bound", "upper_bound"):
        if hasattr(constraint, key):
            bound = np.asarray(getattr(constraint, key), dtype=np.float64)
            if bound.ndim or not np.isfinite(bound):
                return {"kind": "other"}
            bounds[key] = float(bound)
    return {"kind": kind, **bounds}


def constrained(x: FloatArray, support: dict[str, Any]) -> FloatArray | None:
    """The value of unconstrained ``x``, as ``biject_to`` of both libraries has it."""
    lower, upper = support.get("lower_bound", 0.0), support.get("upper_bound", 1.0)
    known: dict[str, Callable[[], FloatArray]] = {
        "real": lambda: x,
        "above": lambda: lower + np.exp(x),
        "below": lambda: upper - np.exp(x),
        "between": lambda: lower + (upper - lower) * expit(x),
        "softplus": lambda: np.logaddexp(0.0, x),
        "simplex": lambda: _broken_stick(x),
    }
    value = known.get(support["kind"])
    return None if value is None else np.asarray(value())


def _broken_stick(x: FloatArray) -> FloatArray:
    """A simplex from one number fewer, along the last axis."""
    stick = expit(x - np.log(x.shape[-1] - np.arange(x.shape[-1])))
    one = np.ones((*x.shape[:-1], 1))
    rest = np.concatenate([one, np.cumprod(1.0 - stick, axis=-1)], axis=-1)
    return np.asarray(np.concatenate([stick, one], axis=-1) * rest)


def sites_posterior(
    sites: Sequence[Site],
    name: str,
    plate: str,
    source: tuple[str, str],
    shared: Sequence[str] | None = None,
) -> Posterior:
    """Sites in the plate as components, sites outside as structure; see ``pyro_guide.extract``."""
    inside = [site for site in sites if plate in site.plates]
    if not inside:
        known = sorted({p for site in sites for p in site.plates})
        raise KLFusionError(
            f"silo {name!r}: expected latent sites in a plate {plate!r}, got none; "
            f"the plates with latent sites are {', '.join(known) or 'none'}"
        )
    size = inside[0].mean.shape[inside[0].plates[plate]]
    outside = [site for site in sites if plate not in site.plates]
    if shared is None:
        sent = [site for site in outside if not site.plates and not _goes_with(site, size)]
    else:
        unknown = sorted(set(shared) - {site.name for site in outside})
        if unknown:
            raise KLFusionError(
                f"silo {name!r}: expected shared sites outside the plate, "
                f"{', '.join(site.name for site in outside) or 'of which there are none'}, "
                f"got {', '.join(unknown)}"
            )
        sent = [site for site in outside if site.name in shared]
    means = [np.moveaxis(site.mean, site.plates[plate], 0).reshape(size, -1) for site in inside]
    scales = [np.moveaxis(site.scale, site.plates[plate], 0).reshape(size, -1) for site in inside]
    family = DiagonalNormal(sum(m.shape[1] for m in means))
    arrays = {f"{site.name}.mean": site.mean for site in sent}
    arrays |= {f"{site.name}.variance": site.scale**2 for site in sent}
    info = {
        "package": source[0],
        "class": source[1],
        "plate": plate,
        "sites": [_described(site, site.plates[plate]) for site in inside],
        "shared": [_described(site) for site in sent],
        "left_out": [site.name for site in outside if site not in sent],
    }
    natural = family.natural(np.concatenate(means, axis=1), np.concatenate(scales, axis=1) ** 2)
    structure = Structure(KIND, arrays, info)
    return Posterior(
        family, natural, name=name, structure=structure, provenance=library_facts(source[0])
    )


def rebuilt_sites(posterior: Posterior) -> dict[str, dict[str, FloatArray | None]]:
    """``{site: {"mean", "variance", "median"}}``, each in the shape the model gives the site."""
    structure = posterior.structure
    if structure is None or structure.kind != KIND:
        raise KLFusionError(f"{posterior.name!r}: expected the sites of a guide")
    p, low = posterior.params(), 0
    out = {}
    for site in structure.info["sites"]:
        high = low + int(np.prod(site["shape"], dtype=int))
        both = [
            np.moveaxis(p[key][:, low:high].reshape(-1, *site["shape"]), 0, site["axis"])
            for key in ("mean", "variance")
        ]
        out[site["name"]] = _moments(both[0], both[1], site["support"])
        low = high
    for site in structure.info["shared"]:
        mean, variance = (structure.arrays[f"{site['name']}.{key}"] for key in ("mean", "variance"))
        out[site["name"]] = _moments(mean, variance, site["support"])
    return out


def _moments(
    mean: FloatArray, variance: FloatArray, support: dict[str, Any]
) -> dict[str, FloatArray | None]:
    return {"mean": mean, "variance": variance, "median": constrained(mean, support)}


def _goes_with(site: Site, size: int) -> bool:
    """Whether a site holds a simplex over the components, whose entries follow their order."""
    return bool(site.support["kind"] == "simplex") and site.mean.shape[-1] == size - 1


def _described(site: Site, axis: int | None = None) -> dict[str, Any]:
    shape = list(site.mean.shape)
    if axis is None:
        return {"name": site.name, "shape": shape, "support": site.support}
    del shape[axis]
    return {"name": site.name, "shape": shape, "axis": axis, "support": site.support}
