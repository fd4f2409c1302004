"""`klfusion.learners.MixedMixture`."""

from typing import Any

import numpy as np

from klfusion.adapters import _library
from klfusion.errors import KLFusionError
from klfusion.learners import MixedMixture, Schema
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import kinds

_SETTINGS = (
    "n_components",
    "weight_concentration_prior_type",
    "mean_strength",
    "variance_strength",
    "rate_strength",
    "category_strength",
)


def extract(model: Any, name: str) -> Posterior:
    """One factor per column; the schema, and expected counts of rows and of measured cells."""
    _library.check_fitted(model, "natural_")
    schema = model.schema_
    info = {
        "schema": schema.to_config(),
        "features": schema.names,
        "units": {column.name: column.unit for column in schema if column.unit is not None},
        "settings": {key: getattr(model, key) for key in _SETTINGS},
    }
    arrays = {
        "counts": model.counts_,
        "weight_prior": np.array(model.weight_prior_),
        kinds.MEASURED: model.measured_,
    }
    source = _library.origin("klfusion", "MixedMixture", kinds.MIXTURE, arrays, info)
    natural, prior = model.natural_, model.prior_
    return Posterior(model.family_, natural, name, prior, model.counts_, *source)


def rebuild(posterior: Posterior) -> Any:
    """A fitted `MixedMixture` that predicts and imputes; it has no bound."""
    expected = "a mixture with its weights, its prior and its schema"
    structure, prior = _library.structure_and_prior(posterior, expected, "counts")
    settings = dict(structure.info["settings"])
    settings["n_components"] = max(settings["n_components"], posterior.n_components)
    model = MixedMixture(Schema.from_config(structure.info["schema"]), **settings)
    assert model.schema is not None
    model.set_schema(model.schema)
    if model.family_ != posterior.family:
        got = f"got {posterior.family}"
        raise KLFusionError(f"{posterior.name!r}: expected the family of its schema, {got}")
    model.weight_prior_ = float(structure.arrays["weight_prior"])
    arrays = structure.arrays
    model.set_components(posterior.natural.copy(), prior.copy(), arrays["counts"].copy())
    if kinds.MEASURED in arrays:
        model.measured_ = arrays[kinds.MEASURED].copy()
    return model
