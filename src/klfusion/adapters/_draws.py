"""What the adapters of draws share: options, and files of draws by their ending."""

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from klfusion.draws.posterior import from_draws
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior


def posterior_of_arrays(
    found: dict[str, Any],
    name: str,
    variables: Sequence[str] | None,
    options: Mapping[str, Any],
) -> Posterior:
    """The posterior of arrays, dims and coords that a library holds; options come first."""
    known = signature(from_draws).parameters
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise KLFusionError(
            f"silo {name!r}: draws take no {unknown[0]}; their options are: {', '.join(known)}"
        )
    given = {key: own for key, own in options.items() if own is not None}
    for key in ("supports", "dims", "coords"):
        both = {**found.get(key, {}), **given.get(key, {})}
        here = both if key == "coords" else {k: v for k, v in both.items() if k in found["draws"]}
        given[key] = here
    rest = {key: own for key, own in found.items() if key not in ("draws", *given)}
    return from_draws(found["draws"], name=name, variables=variables, **rest, **given)
