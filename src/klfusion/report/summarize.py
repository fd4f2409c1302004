"""`summarize`: a fusion as plain JSON values, for pages, terminals and programs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import brief
from klfusion.errors import KLFusionError
from klfusion.fusion import explanation
from klfusion.fusion.result import Fusion
from klfusion.objective.solution import MergePath, Status
from klfusion.posteriors.budgets import described
from klfusion.posteriors.coefficients import is_regression
from klfusion.posteriors.posterior import Posterior
from klfusion.report.embedding import component_map, confidence, local_arrays, local_silos
from klfusion.report.forest import forest_view
from klfusion.report.phenotypes import MIN_CELL, has_phenotypes, phenotypes
from klfusion.report.suppression import Patients
from klfusion.report.views import columns_of, deviations, model_view
from klfusion.updates.findings import Finding, findings_of
from klfusion.updates.heterogeneity import doubtful_columns

_COUNTS = ("n_silos", "n_components", "n_unmatched", "n_merged_within_silos")
_NATS = ("penalty", "objective", "lower_bound", "gap")
_MAX_DECISIONS = 8  # the least certain
_HEAD = 10  # entries kept of a vector
_FULL_MATRIX = 16  # matrices up to this size are kept whole
_OUTLIER = 3.5  # robust standard deviations of a silo's log divergence above the median
_MIN_SILOS = 5  # needed to call one of them an outlier
_MIN_SPREAD = 0.1  # of log divergences: a ratio below 1.4 between similar silos is no outlier


def summarize(
    fusion: Fusion, silos: Sequence[Posterior] | None = None, *, min_cell: int = MIN_CELL
) -> dict[str, Any]:
    """Summarise a fusion as JSON values.

    Long arrays of parameters are abbreviated. Missing and non-finite numbers are None.

    Parameters
    ----------
    fusion : Fusion
    silos : sequence of Posterior, optional
        The posteriors that were fused, for a fusion with ``keep_silos=False``.
    min_cell : int
        Of phenotypes: fewest patients of which a number is given.

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> a = kf.Posterior(rates, rates.natural(shape=[30, 900], rate=[10, 10]), name="a")
    >>> b = kf.Posterior(rates, rates.natural(shape=[910, 32], rate=[10, 10]), name="b")
    >>> [silo["matches"][0]["component"] for silo in summarize(kf.fuse([a, b]))["silos"]]
    [0, 0]
    """
    if not isinstance(fusion, Fusion):
        raise KLFusionError(f"expected a Fusion, as kf.fuse returns it, got {brief(fusion)}")
    posterior = fusion.posterior
    silos, aligned = _compared(fusion, silos)
    natural = None if aligned is None else np.concatenate([silo.natural for silo in aligned])
    local = None if natural is None else (natural, np.concatenate(fusion.labels))
    clinical = has_phenotypes(posterior)
    patients = Patients.of(fusion, aligned, min_cell if clinical else 0)
    by_silo = _silos(fusion, natural, aligned, patients)
    if is_regression(posterior):
        view = forest_view(fusion, silos)
    elif clinical:
        view = phenotypes(fusion, aligned, min_cell, patients)
    else:
        view = model_view(posterior, local)
    return {
        "name": posterior.name,
        "family": _family(posterior) if clinical else str(posterior.family),
        **{key: getattr(fusion, key) for key in _COUNTS},
        "n_local_components": sum(len(labels) for labels in fusion.labels),
        "merged_within_silos": _merged_within_silos(fusion),
        "n_observations": None if posterior.counts is None else float(posterior.counts.sum()),
        "status": {"code": fusion.status.name.lower(), "text": str(fusion.status)},
        "method": fusion.method,
        "settings": _settings(fusion),
        **{key: _number(getattr(fusion, key)) for key in _NATS},
        "trace": [_number(value) for value in fusion.trace],
        "path": None if fusion.path is None else _path(fusion, fusion.path),
        "why": _why(fusion),
        "warnings": _warnings(fusion, by_silo),
        "findings": findings(fusion, silos),
        "silos": by_silo,
        "components": _components(fusion, patients, clinical),
        "map": component_map(fusion, natural),
        "view": view,
        "privacy": described(posterior.provenance, fusion.n_silos),
        "provenance": {**posterior.provenance, **fusion.provenance},
    }


def _compared(
    fusion: Fusion, silos: Sequence[Posterior] | None
) -> tuple[Sequence[Posterior] | None, Sequence[Posterior] | None]:
    """The silos that were fused, if they are given or kept; and as they were compared."""
    if silos is None and fusion.silos is not None:
        # A result may rename its silos; their posteriors keep the names they were sent with.
        renamed = zip(fusion.silos, fusion.silo_names, strict=True)
        silos = [replace(silo, name=name) for silo, name in renamed]
    return silos, None if silos is None else local_silos(fusion, silos)


def findings(fusion: Fusion, silos: Sequence[Posterior] | None = None) -> list[str]:
    """What a person should look at, in sentences; nothing without the silos."""
    silos, aligned = _compared(fusion, silos)
    if silos is None or aligned is None:
        return []
    columns = doubtful_columns(replace(fusion, silos=tuple(silos)), aligned)
    return [*map(str, findings_of(aligned)), *(str(Finding(n, None, why)) for n, why in columns)]


def _family(posterior: Posterior) -> str:
    """Columns have names in the view; a semicontinuous one is two factors, a block is one."""
    factors = getattr(posterior.family, "factors", ())
    schema = None if posterior.structure is None else posterior.structure.info.get("schema")
    return f"Product of {len(schema or factors)} columns"


def _settings(fusion: Fusion) -> dict[str, Any]:
    """Settings with a value, apart from the method and from the weights, which silos list."""
    config = fusion.settings.to_config()
    config["n_components"] = [size for size in config["n_components"] if size is not None]
    return {
        key: value
        for key, value in config.items()
        if key not in ("method", "weights") and value not in (None, [])
    }


def _path(fusion: Fusion, path: MergePath) -> dict[str, Any]:
    """The path's size at each penalty, and the fusion's place on it, None for a size off it."""
    sizes, size = path.n_components, fusion.n_components
    step = int(np.searchsorted(-sizes, -size))
    chosen = None
    if step < len(sizes) and sizes[step] == size:
        chosen = {"penalty": _penalty_within(path, step, fusion.penalty), "n_components": size}
    return {
        "penalties": [_number(value) for value in path.penalties],
        "n_components": sizes.tolist(),
        "chosen": chosen,
        "size_was_given": fusion.penalty <= 0,
        "size_at_penalty": int(sizes[path.steps_at(fusion.penalty)]),
        "has_other_sizes": fusion.silos is not None and path.rows is not None,
    }


def _why(fusion: Fusion) -> dict[str, Any]:
    """Why the model has its size: sentences, the evidence of sizes, the least certain decisions."""
    known = explanation.sizes(fusion)
    doubtful = explanation.decisions(fusion)[:_MAX_DECISIONS]
    return {
        "sentences": explanation.why(fusion),
        "sizes": None if known is None else [one._asdict() for one in known],
        "decisions": [one._asdict() for one in doubtful],
    }


def _penalty_within(path: MergePath, step: int, penalty: float) -> float:
    """``penalty`` if it leads to a step of the path, else a penalty that does, in nats."""
    edges = np.concatenate([[0.0], path.penalties, [np.inf]])
    low, high = float(edges[step]), float(edges[step + 1])
    if penalty > 0 and low <= penalty < high:
        return penalty
    if math.isinf(high):
        return 1.5 * float(low)
    return math.sqrt(low * high) if low > 0 else high / 1.5


def _silos(
    fusion: Fusion,
    natural: FloatArray | None,
    sent: Sequence[Posterior] | None,
    patients: Patients,
) -> list[dict[str, Any]]:
    weights = fusion.settings.weights or None
    ends = np.cumsum([len(own) for own in fusion.labels])
    sure = np.split(confidence(fusion, natural), ends[:-1])
    silos: list[dict[str, Any]] = []
    for j, name in enumerate(fusion.silo_names):
        labels, divergences = fusion.labels[j], fusion.divergences[j]
        counts, matches = None if sent is None else sent[j].counts, []
        total = 0.0 if counts is None else float(counts.sum())
        cells, hidden = patients.cells[j], patients.hidden[j]
        for g in np.unique(labels[labels >= 0]):
            own = labels == g
            means = {"divergence": _mean(divergences[own]), "confidence": _mean(sure[j][own])}
            share = None if hidden[g] or total <= 0 else float(cells[g]) / total
            match = {"component": int(g), "n_local_components": int(own.sum()), **means}
            matches.append({**match, "prevalence": share})
        silo: dict[str, Any] = {
            "name": name,
            "weight": None if weights is None else weights[j],
            "n_local_components": len(labels),
            "n_unmatched": int((labels < 0).sum()),
            "mean_divergence": _mean(divergences[labels >= 0]),
            "largest_divergence": _number(divergences[labels >= 0].max(initial=-math.inf)),
            "matches": matches,
        }
        silos.append(silo)
    outliers = _outliers([silo["mean_divergence"] for silo in silos])
    for silo, is_outlier in zip(silos, outliers, strict=True):
        silo["warnings"] = _silo_warnings(silo, is_outlier)
    return silos


def _silo_warnings(silo: dict[str, Any], is_outlier: bool) -> list[str]:
    found = ["fits much worse than the other silos"] if is_outlier else []
    if not silo["matches"]:
        found.append("none of its components was matched")
    nearer = [str(m["component"]) for m in silo["matches"] if (m["confidence"] or 0.0) < 0]
    if nearer:
        found.append(f"another global component is nearer than the match: {', '.join(nearer)}")
    return found


def _outliers(divergences: list[float | None]) -> list[bool]:
    """Which divergences lie far above the others: log scale, median absolute deviation."""
    known = np.log([value for value in divergences if value])
    if len(known) < _MIN_SILOS:
        return [False] * len(divergences)
    median = float(np.median(known))
    spread = 1.4826 * float(np.median(np.abs(known - median)))  # standard deviation of a Normal
    threshold = median + _OUTLIER * max(spread, _MIN_SPREAD)
    return [bool(value) and math.log(value or 1.0) > threshold for value in divergences]


def _warnings(fusion: Fusion, silos: list[dict[str, Any]]) -> list[str]:
    """Warnings about the whole fusion."""
    found = [] if fusion.status is not Status.MAX_ITER else [str(fusion.status)]
    n = sum(bool(silo["warnings"]) for silo in silos)
    if n:
        found.append(f"{n} of {len(silos)} silos have warnings: see the table of silos")
    single = int(((fusion.contributions > 0).sum(axis=0) == 1).sum())
    if single and fusion.n_silos > 1:
        found.append(f"{single} of {fusion.n_components} components come from one silo alone")
    return found


def _merged_within_silos(fusion: Fusion) -> list[dict[str, Any]]:
    """Local components of one silo with the same global component."""
    return [
        {"silo": name, "component": int(g), "local_components": local.tolist()}
        for name, labels in zip(fusion.silo_names, fusion.labels, strict=True)
        for g in np.unique(labels[labels >= 0])
        if len(local := np.flatnonzero(labels == g)) > 1
    ]


def _components(fusion: Fusion, patients: Patients, clinical: bool) -> list[dict[str, Any]]:
    """Of phenotypes, the view has the parameters that may be shown."""
    labels, divergences, silo, local = local_arrays(fusion)
    counts = fusion.posterior.counts
    total = 0.0 if counts is None else float(counts.sum())
    parameters = {} if clinical else flat_parameters(fusion.posterior.params())
    spread = deviations(parameters)
    if spread is not None:
        parameters["standard deviation"] = spread
    columns, components = columns_of(fusion.posterior), []
    for g in range(fusion.n_components):
        members = np.flatnonzero(labels == g)
        pairs = [(fusion.silo_names[silo[i]], int(local[i])) for i in members]
        shown = None if patients.hidden_totals[g] or counts is None else float(counts[g])
        component = {
            "n_silos": len(np.unique(silo[members])),
            "n_local_components": len(members),
            "n_observations": shown,
            "share": None if shown is None or total <= 0 else shown / total,
            "mean_divergence": _mean(divergences[members]),
            "sources": [{"silo": name, "local_component": k} for name, k in pairs],
            "columns": None if columns is None else columns[g],
            "parameters": [_abbreviated(name, array[g]) for name, array in parameters.items()],
        }
        components.append(component)
    return components


def flat_parameters(parameters: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Parameters by dotted name; a product has a mapping per factor."""
    flat: dict[str, FloatArray] = {}
    for name, value in parameters.items():
        parts = flat_parameters(value).items() if isinstance(value, Mapping) else [("", value)]
        flat |= {f"{name}.{key}" if key else name: part for key, part in parts}
    return flat


def _abbreviated(name: str, array: NDArray[Any]) -> dict[str, Any]:
    """First entries of one component's parameter, or of its diagonal, and its shape."""
    square = array.ndim == 2 and array.shape[0] == array.shape[1] > 1
    numbers = np.diagonal(array) if square else array.ravel()
    small = square and len(array) <= _FULL_MATRIX
    return {
        "name": name,
        "shape": [*array.shape],
        "is_diagonal": square,
        "numbers": [_number(value) for value in numbers[:_HEAD]],
        "n_numbers": len(numbers),
        "matrix": [[_number(value) for value in row] for row in array] if small else None,
    }


def _mean(values: FloatArray) -> float | None:
    return _number(values.mean()) if len(values) else None


def _number(value: Any) -> float | None:
    """A finite float, else None: JSON has no other numbers."""
    return float(value) if math.isfinite(value) else None
