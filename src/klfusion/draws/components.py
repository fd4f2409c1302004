"""Components from draws: a Normal each, weights and transitions as Dirichlet pseudo-counts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import is_number
from klfusion._utils.package import provenance
from klfusion.draws.layout import Layout
from klfusion.draws.moments import doubts_of_prior, matched_normal
from klfusion.draws.priors import prior_information
from klfusion.draws.relabelling import relabelled
from klfusion.draws.variables import Draws, Variable
from klfusion.errors import KLFusionError
from klfusion.families import Normal
from klfusion.posteriors.posterior import UNKNOWN, Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.components import KIND, SHARED
from klfusion.posteriors.structure.regression import Information

SOURCE = {"package": "klfusion", "class": "Draws"}  # by which an adapter gives draws back


def components_posterior(
    draws: Draws,
    components: str | Sequence[str],
    prior: Any,
    name: str,
    scales: Mapping[str, str] | None = None,
) -> Posterior:
    """The posterior of components that draws have along a dim."""
    where = f"silo {name!r}"
    layout = Layout.of(draws, components, where)
    layout, relabelling = relabelled(layout)
    if scales:
        scaled = layout.draws.scaled_by(scales, where, layout.dims)
        layout = Layout.of(scaled, components, where)
    findings = [*relabelling.findings, *draws.doubts()]
    if relabelling.n_switched:
        n = relabelling.probability.size
        findings.append(f"label switching was undone in {relabelling.n_switched} of {n} draws")
    given = dict(prior) if isinstance(prior, Mapping) else {}
    simplices = [v for v in (layout.weights, layout.transition) if v is not None]
    for_others = {key: own for key, own in given.items() if key not in {v.name for v in simplices}}
    names = [key for v in layout.own for key in v.coordinates]
    table, of_components = layout.table(), []
    for k, label in enumerate(layout.labels):
        here, divergent = f"{where}, component {label}", draws.n_divergent * (k == 0)
        of_components.append(matched_normal(table[:, :, k], names, here, divergent))
    before = _prior(layout, _of(for_others, layout.own), where)
    for label, (found, doubts, effective) in zip(layout.labels, of_components, strict=True):
        own = [*doubts, *doubts_of_prior(before, found, names, effective)]
        findings += [f"component {label}: {text}" for text in own]
    arrays: dict[str, Any] = {}
    arrays |= _counts(layout, layout.weights, given, "counts", "weight_prior", where)
    arrays |= _counts(layout, layout.transition, given, "transition", "transition_prior", where)
    if layout.shared:
        there = replace(layout.draws, variables=tuple(layout.shared))
        of_shared = _of(for_others, layout.shared)
        shared, doubts, effective = matched_normal(there.table(), there.coordinates, where)
        known = prior_information(there, of_shared, where)
        arrays |= dict(zip(SHARED, (*shared, *known), strict=True))
        findings += [*doubts, *doubts_of_prior(known, shared, there.coordinates, effective)]
    info = {
        **SOURCE,
        "component_dims": [*layout.dims],
        "features": names,
        "variables": [v.to_json() for v in layout.own],
        "shared": [v.to_json() for v in layout.shared],
        "weights": None if layout.weights is None else layout.weights.name,
        "transition": None if layout.transition is None else layout.transition.name,
    }
    return Posterior(
        Normal(len(names)),
        np.stack([found.natural() for found, *_ in of_components]),
        name=name,
        prior=before.natural(),
        counts=arrays.get("counts"),
        structure=Structure(KIND, arrays, info),
        provenance=provenance(
            n_draws=table.shape[0] * table.shape[1],
            findings=findings or None,
            prior=UNKNOWN if prior is None else None,
        ),
    )


def _of(given: Mapping[str, Any], variables: Sequence[Variable]) -> dict[str, Any]:
    names = {v.name for v in variables}
    return {key: own for key, own in given.items() if key in names}


def _prior(layout: Layout, given: Mapping[str, Any], where: str) -> Information:
    """The prior of one component; draws of all are draws of it."""
    stacked, given = {}, dict(given)
    for variable in layout.own:
        own = given.get(variable.name)
        if isinstance(own, np.ndarray):
            axis = layout.axis(variable.name) - 3 - len(variable.shape)  # from the end
            given[variable.name] = np.moveaxis(own, axis, 0).reshape(-1, *variable.shape)
        values = np.moveaxis(layout.values(variable), 2, 0)
        stacked[variable.name] = values.reshape(-1, *values.shape[2:])
    return prior_information(Draws(tuple(layout.own), stacked), given, where)


def _counts(
    layout: Layout,
    variable: Variable | None,
    prior: Mapping[str, Any],
    counts: str,
    before: str,
    where: str,
) -> dict[str, FloatArray]:
    """What data add to a Dirichlet prior: that with the moments of draws, less the prior."""
    if variable is None:
        return {}
    given = prior.get(variable.name, 1.0)
    if isinstance(given, np.ndarray):  # the symmetric Dirichlet nearest to draws
        given = float(_alpha(given.reshape(-1, *variable.shape)).mean())
    if not (is_number(given) and given > 0):
        expected = "expected the concentration of a Dirichlet, a number > 0"
        raise KLFusionError(f"{where}: prior of {variable.name!r}: {expected}, got {given!r}")
    draws = layout.draws.values[variable.name].reshape(-1, *variable.shape)
    return {counts: np.maximum(_alpha(draws) - given, 0.0), before: np.asarray(float(given))}


def _alpha(draws: FloatArray) -> FloatArray:
    """Parameters of the Dirichlet with the moments of draws (n, ..., K)."""
    mean, variance = draws.mean(axis=0), draws.var(axis=0)
    total = (mean * (1.0 - mean)).sum(axis=-1) / variance.sum(axis=-1) - 1.0
    return np.asarray(total[..., None] * mean)
