"""What a clinician reads: each phenotype's prevalence per hospital, and what sets it apart.

Counts of patients below ``min_cell`` are suppressed, with their shares and with what else would
disclose them: `klfusion.report.suppression`. Effects are rounded, for exact ones have counts in
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import betaincinv

from klfusion._utils.arrays import FloatArray
from klfusion._utils.intervals import DEVIATIONS, UPPER
from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet, Gamma, Product
from klfusion.families.gaussian import GaussianPosterior, diagonal_of
from klfusion.fusion.result import Fusion
from klfusion.learners import Column, Schema
from klfusion.learners._blocks import groups_of, product_of
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.kinds import MEASURED
from klfusion.report.suppression import Patients

MIN_CELL = 5  # patients: the rule of many hospitals and statistical offices
_JEFFREYS = 0.5  # pseudo-patients of a share's prior, with and without
_LEAST_EFFECT = 0.2  # standard deviations: Cohen's small effect
_LISTED = 6  # columns of a phenotype


def has_phenotypes(posterior: Posterior) -> bool:
    """Whether the components are mixtures over the columns of a schema."""
    structure = posterior.structure
    return (
        structure is not None
        and bool(structure.info.get("schema"))
        and MEASURED in structure.arrays
        and isinstance(posterior.family, Product)
    )


def phenotypes(
    fusion: Fusion,
    sent: Sequence[Posterior] | None,
    min_cell: int = MIN_CELL,
    patients: Patients | None = None,
) -> dict[str, Any]:
    """Prevalence and columns of each phenotype as JSON values; without ``sent``, no hospitals."""
    posterior = fusion.posterior
    patients = Patients.of(fusion, sent, min_cell) if patients is None else patients
    counts = np.zeros(fusion.n_components) if posterior.counts is None else posterior.counts
    total = max(float(counts.sum()), np.finfo(np.float64).tiny)
    columns = _columns(posterior, counts / total, min_cell)
    hospitals = [] if sent is None else _hospitals(fusion, sent, patients)
    found = []
    for g in range(fusion.n_components):
        few, own = counts[g] < min_cell, [one[g] for one in hospitals if one[g] is not None]
        hidden = patients.hidden_totals[g]
        found.append(
            {
                "number": g,
                "few": bool(few),
                "patients": None if hidden else float(counts[g]),
                "share": None if hidden else float(counts[g]) / total,
                "columns": [] if few else columns[g],
                "hospitals": own,
                "only_here": len(own) == 1 < len(hospitals),
            }
        )
    return {
        "kind": "phenotypes",
        "min_cell": min_cell,
        "patients": float(counts.sum()),
        "n_columns": 0 if posterior.structure is None else len(posterior.structure.info["schema"]),
        "phenotypes": found,
    }


# Hospitals --------------------------------------------------------------------------------------


def _hospitals(
    fusion: Fusion, sent: Sequence[Posterior], patients: Patients
) -> list[list[dict[str, Any] | None]]:
    """Of each hospital and phenotype its prevalence; None where it has none."""
    out = []
    for j, silo in enumerate(sent):
        labels, counts = fusion.labels[j], silo.counts
        own: list[dict[str, Any] | None] = [None] * fusion.n_components
        sure = None if fusion.probability is None else fusion.probability[j]
        cells, hidden = patients.cells[j], patients.hidden[j]
        total = float(cells.sum())
        for g in np.unique(labels[labels >= 0]):
            known = counts is not None and not hidden[g]
            low, high = interval(float(cells[g]), total) if known else (None, None)
            probability = None if sure is None else float(np.nanmin(sure[labels == g]))
            own[g] = {
                "name": fusion.silo_names[j],
                "suppressed": bool(hidden[g]),
                "patients": float(cells[g]) if known else None,
                "prevalence": float(cells[g]) / total if known else None,
                "low": low,
                "high": high,
                "probability": probability,
            }
        out.append(own)
    return out


def interval(count: float, total: float) -> tuple[float, float]:
    """95 % credible interval of a share, by Jeffreys' prior."""
    a, b = count + _JEFFREYS, max(total - count, 0.0) + _JEFFREYS
    return float(betaincinv(a, b, 1.0 - UPPER)), float(betaincinv(a, b, UPPER))


# Columns ----------------------------------------------------------------------------------------


def _columns(posterior: Posterior, share: FloatArray, min_cell: int) -> list[list[dict[str, Any]]]:
    """Of each phenotype the columns that set it apart from all patients, largest effect first."""
    structure, family = posterior.structure, posterior.family
    assert structure is not None and isinstance(family, Product)
    schema = Schema.from_config(list(structure.info["schema"]))
    if product_of(schema) != family:
        raise KLFusionError(f"{posterior.name!r}: expected the family of its schema, got {family}")
    measured = structure.arrays[MEASURED]
    found: list[list[dict[str, Any]]] = [[] for _ in share]
    groups, fitted = groups_of(schema), schema.expanded.columns
    parts = [
        (place, group.index(place), factor, natural)
        for group, (_, factor, natural) in zip(groups, family.parts(posterior.natural), strict=True)
        for place in group
    ]
    for place, within, factor, natural in parts:
        column, cells = fitted[place], measured[:, place]
        # Patients without the column say nothing about it.
        weights = share * (cells >= min_cell)
        if np.count_nonzero(weights) < 2:
            continue
        weights = weights / weights.sum()
        if isinstance(factor, GaussianPosterior):
            rows = _continuous(column, factor, natural, weights, within)
        elif isinstance(factor, Gamma):
            rows = _rates(natural, weights)
        else:
            assert isinstance(factor, Dirichlet)
            rows = _categories(column, natural, weights, cells, min_cell)
        for g in np.flatnonzero(weights):
            name = f"{column.label}, geometric mean" if column.log else column.label
            found[g].append({"name": name, **rows[g]})
    for own in found:
        own[:] = [row for row in own if abs(row["effect"]) >= _LEAST_EFFECT]
        own.sort(key=lambda row: -abs(row["effect"]))
        del own[_LISTED:]
        for row in own:
            row["effect"] = None if row["interval"] is None else round(row["effect"], 1)
    return found


def _continuous(
    column: Column, factor: GaussianPosterior, natural: FloatArray, weights: FloatArray, within: int
) -> list[dict[str, Any]]:
    """Of one dimension of a factor; of logarithms, geometric means."""
    mean, covariance = factor.observation_moments(natural)
    mean, variance = mean[:, within], diagonal_of(covariance)[:, within]
    error = np.sqrt(diagonal_of(factor.location_covariance(natural))[:, within])
    of_all, deviation = _of_all(mean, variance, weights)
    lower, centre, upper = (column.in_units(mean + s * DEVIATIONS * error) for s in (-1, 0, 1))
    every = float(column.in_units(np.array(of_all)))
    digits = _digits(deviation * every if column.log else deviation)
    return [
        {
            "effect": float((mean[g] - of_all) / deviation),
            "value": _number(centre[g], digits),
            "interval": [_number(lower[g], digits), _number(upper[g], digits)],
            "all": _number(every, digits),
        }
        for g in range(len(mean))
    ]


def _rates(natural: FloatArray, weights: FloatArray) -> list[dict[str, Any]]:
    shape, rate = natural.T
    mean, error = shape / rate, np.sqrt(shape) / rate
    of_all, deviation = _of_all(mean, mean, weights)
    digits = _digits(deviation)
    return [
        {
            "effect": float((mean[g] - of_all) / deviation),
            "value": _number(mean[g], digits),
            "interval": [
                _number(max(mean[g] + s * DEVIATIONS * error[g], 0.0), digits) for s in (-1, 1)
            ],
            "all": _number(of_all, digits),
        }
        for g in range(len(mean))
    ]


def _categories(
    column: Column, natural: FloatArray, weights: FloatArray, cells: FloatArray, min_cell: int
) -> list[dict[str, Any]]:
    """The category that differs most; its share, unless few patients have it."""
    shares = natural / natural.sum(axis=1, keepdims=True)
    of_all = weights @ shares
    effects = (shares - of_all) / np.sqrt(np.maximum(of_all * (1.0 - of_all), 1e-12))
    out = []
    for g, own in enumerate(shares):
        # What is frequent says more than what is rare, unless it differs by much less.
        k = int(np.maximum(effects[g], -0.5 * effects[g]).argmax())
        patients = own[k] * cells[g]
        hidden = patients < min_cell
        low, high = interval(float(patients), float(cells[g]))
        out.append(
            {
                "effect": float(effects[g, k]),
                "value": f"{column.categories[k]}: "
                + (f"fewer than {min_cell} patients" if hidden else _percent(own[k])),
                "interval": None if hidden else [_percent(low), _percent(high)],
                "all": _percent(of_all[k]),
            }
        )
    return out


def _of_all(mean: FloatArray, variance: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Mean and standard deviation of all patients."""
    centre = float(weights @ mean)
    spread = float(weights @ (variance + (mean - centre) ** 2))
    return centre, max(spread, np.finfo(np.float64).tiny) ** 0.5


def _digits(deviation: float) -> int:
    """Decimals that show a tenth of a standard deviation."""
    return max(0, 1 - int(np.floor(np.log10(deviation))))


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f}\N{NO-BREAK SPACE}%"
