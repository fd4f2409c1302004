"""`summarize`: a fusion as plain JSON values, which pages, terminals and programs show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klfusion._utils.arrays import FloatArray
from klfusion.fusion.result import Fusion
from klfusion.objective.merge_path import MergePath
from klfusion.objective.solution import Status
from klfusion.posteriors.posterior import Posterior
from klfusion.report.embedding import component_map, confidence, local_natural
from klfusion.report.views import deviations, model_view

_HEAD = 10  # numbers of a vector that are kept
_FULL_MATRIX = 16  # matrices up to this size are kept whole
_OUTLYING = 3.5  # robust deviations of a silo's log misfit from the others'
_FEWEST_SILOS = 5  # among which one can be said to be unusual


def summarize(fusion: Fusion, silos: Sequence[Posterior] | None = None) -> dict[str, Any]:
    """Everything a reader wants to know of a fusion, as JSON-able values.

    Long arrays of parameters are abbreviated; what is not a number (no divergence, no bound) is
    None. Components and local components are counted from 0, as in `Fusion.labels`.

    Parameters
    ----------
    fusion : Fusion
    silos : sequence of Posterior, optional
        What was fused; needed only if the fusion does not keep it (``keep_silos=False``). The map
        of local components and the confidence of their matches are computed from it.

    Returns
    -------
    dict

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> a = kf.Posterior(rates, rates.natural(shape=[30, 900], rate=[10, 10]), name="a")
    >>> b = kf.Posterior(rates, rates.natural(shape=[910, 32], rate=[10, 10]), name="b")
    >>> summary = summarize(kf.fuse([a, b]))
    >>> summary["n_silos"], summary["n_local_components"], summary["n_components"]
    (2, 4, 2)
    >>> [silo["matches"][0]["component"] for silo in summary["silos"]]
    [0, 0]
    """
    posterior = fusion.posterior
    if silos is None and fusion.silos is not None:
        # Those who renamed silos in a result renamed what is shown, not what was sent.
        renamed = zip(fusion.silos, fusion.silo_names, strict=True)
        silos = [replace(silo, name=name) for silo, name in renamed]
    natural = None if silos is None else local_natural(fusion, silos)
    local = None if natural is None else (natural, np.concatenate(fusion.labels))
    by_silo = _silos(fusion, natural)
    return {
        "name": posterior.name,
        "family": str(posterior.family),
        "n_silos": fusion.n_silos,
        "n_local_components": sum(len(labels) for labels in fusion.labels),
        "n_unmatched": fusion.n_unmatched,
        "n_merged_within_silos": fusion.n_merged_within_silos,
        "put_together": _put_together(fusion),
        "n_components": fusion.n_components,
        "n_observations": None if posterior.counts is None else float(posterior.counts.sum()),
        "status": {"code": fusion.status.name.lower(), "text": str(fusion.status)},
        "method": fusion.method,
        "penalty": _number(fusion.penalty),
        "objective": _number(fusion.objective),
        "lower_bound": _number(fusion.lower_bound),
        "gap": _number(fusion.gap),
        "trace": [_number(value) for value in fusion.trace],
        "path": None if fusion.path is None else _path(fusion, fusion.path),
        "warnings": _warnings(fusion, by_silo),
        "silos": by_silo,
        "components": _components(fusion),
        "map": component_map(fusion, natural),
        "view": model_view(posterior, local),
        "provenance": {**posterior.provenance, **fusion.provenance},
    }


def _path(fusion: Fusion, path: MergePath) -> dict[str, Any]:
    """The size that each penalty gives, and where this fusion lies on it."""
    penalty = fusion.penalty
    if penalty <= 0:  # the size was given: any penalty between these two steps would reach it
        steps = int(np.searchsorted(-path.n_components, -fusion.n_components))
        near = path.penalties[max(steps - 1, 0) : steps + 1]
        penalty = float(np.exp(np.log(np.maximum(near, 1e-300)).mean())) if len(near) else math.nan
    return {
        "penalties": [_number(value) for value in path.penalties],
        "n_components": path.n_components.tolist(),
        "chosen": {"penalty": _number(penalty), "n_components": fusion.n_components},
        "size_was_given": fusion.penalty <= 0,
    }


def _silos(fusion: Fusion, natural: FloatArray | None) -> list[dict[str, Any]]:
    weights = fusion.provenance.get("silo_weights")
    sure = np.split(
        confidence(fusion, natural), np.cumsum([len(own) for own in fusion.labels])[:-1]
    )
    silos: list[dict[str, Any]] = [
        {
            "name": name,
            "weight": weights[j] if isinstance(weights, list) and j < len(weights) else None,
            "n_local_components": len(labels),
            "n_unmatched": int((labels < 0).sum()),
            "mean_divergence": _mean(divergences[labels >= 0]),
            "largest_divergence": _number(divergences[labels >= 0].max(initial=-math.inf)),
            "matches": [
                {
                    "component": int(g),
                    "n_local_components": int((labels == g).sum()),
                    "divergence": _mean(divergences[labels == g]),
                    "confidence": _mean(sure[j][labels == g]),
                }
                for g in np.unique(labels[labels >= 0])
            ],
        }
        for j, (name, labels, divergences) in enumerate(
            zip(fusion.silo_names, fusion.labels, fusion.divergences, strict=True)
        )
    ]
    unusual = _unusual([silo["mean_divergence"] for silo in silos])
    for silo, is_unusual in zip(silos, unusual, strict=True):
        silo["warnings"] = _silo_warnings(silo, is_unusual)
    return silos


def _silo_warnings(silo: dict[str, Any], is_unusual: bool) -> list[str]:
    found = []
    if is_unusual:
        found.append("fits much worse than the other silos")
    if not silo["matches"]:
        found.append("none of its components was matched")
    doubtful = [
        match["component"]
        for match in silo["matches"]
        if match["confidence"] is not None and match["confidence"] < 0
    ]
    if doubtful:
        where = ", ".join(str(g) for g in doubtful)
        found.append(f"another component would be nearer than the match: {where}")
    return found


def _unusual(misfits: list[float | None]) -> list[bool]:
    """Which are far above the rest, on a log scale, by the median and the median deviation."""
    known = np.log([value for value in misfits if value])
    if len(known) < _FEWEST_SILOS:
        return [False] * len(misfits)
    middle = float(np.median(known))
    spread = 1.4826 * float(np.median(np.abs(known - middle)))
    top = middle + _OUTLYING * max(spread, 0.1)  # silos nearly alike: a third more is not unusual
    return [bool(value) and math.log(value or 1.0) > top for value in misfits]


def _warnings(fusion: Fusion, silos: list[dict[str, Any]]) -> list[str]:
    """What a reader should know before believing the rest."""
    found = [] if fusion.status is not Status.MAX_ITER else [str(fusion.status)]
    n = sum(bool(silo["warnings"]) for silo in silos)
    if n:
        found.append(f"{n} of {len(silos)} silos deserve a look: see the table of silos")
    alone = sum(1 for g in fusion.contributions.T if (g > 0).sum() == 1)
    if alone and fusion.n_silos > 1:
        found.append(f"{alone} of {fusion.n_components} components come from one silo alone")
    return found


def _put_together(fusion: Fusion) -> list[dict[str, Any]]:
    """Components of one silo that went to the same global one."""
    return [
        {"silo": name, "component": int(g), "local_components": local.tolist()}
        for name, labels in zip(fusion.silo_names, fusion.labels, strict=True)
        for g in np.unique(labels[labels >= 0])
        if len(local := np.flatnonzero(labels == g)) > 1
    ]


def _components(fusion: Fusion) -> list[dict[str, Any]]:
    posterior = fusion.posterior
    labels, divergences = np.concatenate(fusion.labels), np.concatenate(fusion.divergences)
    silo = np.repeat(np.arange(fusion.n_silos), [len(of_silo) for of_silo in fusion.labels])
    local = np.concatenate([np.arange(len(of_silo)) for of_silo in fusion.labels])
    counts = posterior.counts
    total = 0.0 if counts is None else float(counts.sum())
    parameters = flat_parameters(posterior.params())
    spread = deviations(parameters)
    if spread is not None:
        parameters["standard deviation"] = spread
    components = []
    for g in range(fusion.n_components):
        members = np.flatnonzero(labels == g)
        components.append(
            {
                "n_silos": len(np.unique(silo[members])),
                "n_local_components": len(members),
                "n_observations": None if counts is None else float(counts[g]),
                "share": None if counts is None or total <= 0 else float(counts[g]) / total,
                "mean_divergence": _mean(divergences[members]),
                "sources": [
                    {"silo": fusion.silo_names[silo[i]], "local_component": int(local[i])}
                    for i in members
                ],
                "parameters": [_abbreviated(name, array[g]) for name, array in parameters.items()],
            }
        )
    return components


def flat_parameters(parameters: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Parameters by dotted name: those of a product are mappings of mappings."""
    flat: dict[str, FloatArray] = {}
    for name, value in parameters.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": part for key, part in flat_parameters(value).items()}
        else:
            flat[name] = value
    return flat


def _abbreviated(name: str, array: NDArray[Any]) -> dict[str, Any]:
    """A parameter of one component: the first numbers (a matrix's diagonal), and its shape."""
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
    """A finite float; JSON has no other."""
    return float(value) if math.isfinite(value) else None
