"""ArviZ: ``InferenceData`` and the DataTree of ArviZ 1, with draws of PyMC models."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from klfusion.adapters._draws import posterior_of_arrays
from klfusion.draws.fused import inference_data, joint_normal
from klfusion.draws.inference_data import arrays
from klfusion.posteriors.posterior import Posterior

_DRAWS, _CHAINS = 1000, 4  # of a rebuilt posterior


def extract(
    model: Any,
    name: str,
    variables: Sequence[str] | None = None,
    of_model: Any = None,
    **options: Any,
) -> Posterior:
    """The posterior group as a Normal over unconstrained coordinates; see `klfusion.from_draws`.

    ``of_model`` is the PyMC model. Its free variables are used, with their supports. Draws in the
    prior group are the prior, unless ``prior`` is given.
    """
    variables = free_of(of_model, variables, options)
    return posterior_of_arrays(arrays(model, f"silo {name!r}", variables), name, variables, options)


def rebuild(posterior: Posterior) -> Any:
    """Draws of the posterior as an InferenceData."""
    return inference_data(joint_normal(posterior), _DRAWS, _CHAINS, 0)


def free_of(
    model: Any, variables: Sequence[str] | None, options: dict[str, Any]
) -> Sequence[str] | None:
    """The variables to use, by default the free ones of a PyMC model, whose supports are set."""
    if model is None:
        return variables
    free = supports(model)
    used = [*free] if variables is None else variables
    known = {key: own for key, own in free.items() if key in used and own is not None}
    options["supports"] = {**known, **(options.get("supports") or {})}
    return used


def supports(model: Any) -> dict[str, Any]:
    """Free variables of a PyMC model with their supports; None where the draws decide."""
    found: dict[str, Any] = {}
    for variable in model.free_RVs:
        transform = model.rvs_to_transforms.get(variable)
        kind = type(transform).__name__
        if transform is None:
            found[variable.name] = "real"
        elif kind == "Interval":
            bounds = transform.args_fn(*variable.owner.inputs)
            found[variable.name] = tuple(None if b is None else _number(b) for b in bounds)
        else:
            found[variable.name] = _TRANSFORMS.get(kind)
    return found


def _number(bound: Any) -> float:
    value = bound.eval() if hasattr(bound, "eval") else bound
    return float(np.asarray(value))


_TRANSFORMS = {
    "LogTransform": "positive",
    "LogOddsTransform": "unit_interval",
    "SimplexTransform": "simplex",
    "Ordered": "ordered",
}
