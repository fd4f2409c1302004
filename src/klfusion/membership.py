"""Silos that come and go, and other sizes: a fusion changed without being searched anew.

The matching of the silos that stay is kept; everything else is computed from what they sent and
nothing else, so a silo that is gone has left no trace in any number.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._typing import FloatArray, IntArray
from klfusion.algorithm import objective
from klfusion.api import fuse, global_posterior, match_divergences, supported
from klfusion.cleaning import merge_splits, near_pairs, with_data
from klfusion.clusters import Clusters
from klfusion.divergences import amid_problem
from klfusion.errors import KLFusionError
from klfusion.fusion import Fusion, PenaltyPath, Status
from klfusion.methods import METHODS, Auto, Method
from klfusion.pooling import pool
from klfusion.posterior import Posterior
from klfusion.preparation import Matched, matched
from klfusion.problem import FusionProblem
from klfusion.provenance import library_version, provenance
from klfusion.silos import aligned_silos, read_silos, silo_weights
from klfusion.structure import layers
from klfusion.units import Units

_AGREES = 1e-6  # relative: rounding explains no larger difference of fused parameters


def add(fusion: Fusion, model: Any, *, name: str | None, weight: float, rematch: bool) -> Fusion:
    """See `Fusion.add`."""
    silos = kept_silos(fusion, "add a silo")
    (new,) = read_silos([model] if name is None else {name: model})
    silos = (*silos, new)
    posteriors = aligned_silos(silos)
    weights = silo_weights([*weights_of(fusion), weight], posteriors)
    if rematch:
        return _rematched(fusion, silos, weights, "add", new.name)
    if divergence_of(fusion) != "kl":
        raise KLFusionError(
            f"adding a silo to a fusion of divergence {divergence_of(fusion)!r}: "
            "expected rematch=True"
        )
    before = matched(posteriors[:-1], fusion.labels, weights[:-1])
    _check_reproducible(fusion, posteriors[:-1], before)
    labels = [*fusion.labels, _place(fusion, before, posteriors[-1], float(weights[-1]))]
    return _with_matching(
        fusion, silos, posteriors, labels, weights, history=_history(fusion, "add", new.name)
    )


def remove(fusion: Fusion, name: str, *, rematch: bool) -> Fusion:
    """See `Fusion.remove`."""
    silos = kept_silos(fusion, "remove a silo")
    if name not in fusion.silo_names:
        raise KLFusionError(f"expected a silo of {list(fusion.silo_names)}, got {name!r}")
    if fusion.n_silos == 1:
        raise KLFusionError(f"silo {name!r} is the only one: expected another to be left")
    stay = [j for j, other in enumerate(fusion.silo_names) if other != name]
    weights = silo_weights(weights_of(fusion), silos)
    if rematch:
        others = [silos[j] for j in stay]
        return _rematched(fusion, others, weights[stay], "remove", name)
    posteriors = aligned_silos(silos)
    _check_reproducible(fusion, posteriors, matched(posteriors, fusion.labels, weights))
    silos, weights = tuple(silos[j] for j in stay), weights[stay]
    labels = [fusion.labels[j] for j in stay]
    history = _history(fusion, "remove", name)
    return _with_matching(fusion, silos, aligned_silos(silos), labels, weights, history=history)


def at(fusion: Fusion, *, n_components: int | None, penalty: float | None) -> Fusion:
    """See `Fusion.at`."""
    silos = kept_silos(fusion, "pick another size")
    path = fusion.path
    if path is None:
        raise KLFusionError("expected a fusion with a path, as method 'auto' makes it, got none")
    if path.rows is None:
        raise KLFusionError(
            f"expected a path of all components, got that of a sketch of {path.n_components[0]}: "
            "fuse anew with n_components= or penalty="
        )
    if (n_components is None) == (penalty is None):
        raise KLFusionError("expected either n_components or penalty")
    if penalty is not None:
        steps = path.steps_at(penalty)
    else:
        found = np.flatnonzero(path.n_components == n_components)
        if len(found) == 0:
            raise KLFusionError(
                f"expected n_components from {path.n_components[-1]} to {path.n_components[0]}, "
                f"as on the path, got {n_components!r}"
            )
        steps = int(found[0])
        penalty = float(path.penalties[steps - 1]) if steps else 0.0
    labels = _ordered(path, steps)
    edges = np.cumsum([len(own) for own in fusion.labels])[:-1]
    posteriors = aligned_silos(silos)
    weights = silo_weights(weights_of(fusion), posteriors)
    changed = replace(fusion, penalty=penalty)
    per_silo = np.split(labels, edges)
    return _with_matching(changed, silos, posteriors, per_silo, weights, path=path)


# What a fusion remembers ------------------------------------------------------------------------


def kept_silos(fusion: Fusion, what: str) -> tuple[Posterior, ...]:
    """What the silos sent; ``what`` cannot be done without."""
    if fusion.silos is None:
        raise KLFusionError(
            f"cannot {what}: this fusion does not hold what its silos sent; "
            "expected one made with keep_silos=True"
        )
    return fusion.silos


def weights_of(fusion: Fusion) -> list[float]:
    """How much each silo counts."""
    return list(fusion.provenance.get("silo_weights", np.ones(fusion.n_silos)))


def pooling_of(fusion: Fusion) -> Any:
    """How matched components were made one."""
    return fusion.provenance.get("pooling", "average")


def divergence_of(fusion: Fusion) -> str:
    """What was minimised."""
    return str(fusion.provenance.get("divergence", "kl"))


def method_of(fusion: Fusion) -> Method | None:
    """The method's configuration from its written form; None if it is none of ours."""
    try:
        call = ast.parse(fusion.method, mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        methods: list[type[Method]] = [*METHODS.values(), Units]
        known = {method.__name__: method for method in methods}
        settings = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        return known[call.func.id](**settings)
    except (AssertionError, KeyError, SyntaxError, TypeError, ValueError):
        return None


def _history(fusion: Fusion, action: str, silo: str, *, rematch: bool = False) -> list[Any]:
    """The audit trail with one more entry."""
    entry = {
        "action": action,
        "silo": silo,
        "rematch": rematch,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "klfusion": library_version(),
    }
    return [*fusion.provenance.get("history", []), entry]


# What follows from a matching -------------------------------------------------------------------


def _rematched(
    fusion: Fusion, silos: Sequence[Posterior], weights: FloatArray, action: str, name: str
) -> Fusion:
    method = method_of(fusion)
    if method is None:
        raise KLFusionError(
            f"rematch: expected a method of {sorted(METHODS)}, got {fusion.method}; "
            "fuse(fusion.silos, method=...) matches anew with any"
        )
    least = fusion.provenance.get("min_support", 1)
    found = fuse(
        silos, method=method, weights=weights, pooling=pooling_of(fusion), min_support=least,
        divergence=divergence_of(fusion),
    )  # fmt: skip
    history = _history(fusion, action, name, rematch=True)
    return replace(found, provenance={**found.provenance, "history": history})


def _check_reproducible(fusion: Fusion, posteriors: Sequence[Posterior], units: Matched) -> None:
    """Refuse fusions whose parameters are not what their labels and silos give."""
    if posteriors[0].family != fusion.posterior.family:
        return  # a newcomer has words the others do not know: there is nothing to compare with
    units = replace(units, problem=amid_problem(units.problem, divergence_of(fusion)))
    natural = pool(pooling_of(fusion), units, fusion.n_components)
    given = fusion.posterior.natural
    if natural.shape != given.shape or not np.allclose(
        natural, given, rtol=_AGREES, atol=_AGREES * np.abs(given).max()
    ):
        raise KLFusionError(
            f"the fused parameters do not follow from the labels, as with the fractional plans of "
            f"method 'relaxed' or a method with locations of its own (this one: {fusion.method}): "
            "expected rematch=True, or a fusion by 'auto', 'exact' or 'homogeneous'"
        )


def _with_matching(
    fusion: Fusion,
    silos: Sequence[Posterior],
    posteriors: Sequence[Posterior],
    labels: Sequence[IntArray],
    weights: FloatArray,
    *,
    path: PenaltyPath | None = None,
    history: list[Any] | None = None,
) -> Fusion:
    """The fusion that a matching gives, from these silos alone."""
    least = fusion.provenance.get("min_support", 1)
    labels, size = _with_support(labels, least)
    units = matched(posteriors, labels, weights)
    problem = amid_problem(matching_problem(fusion, units.problem), divergence_of(fusion))
    units = replace(units, problem=amid_problem(units.problem, divergence_of(fusion)))
    natural = pool(pooling_of(fusion), units, size)
    value = objective(problem, units.labels, size, fusion.penalty)
    costs = problem.costs(problem.average(units.labels, size))
    # Every component to its nearest, all sharing one column's norm: no plan costs less.
    bound = float(costs.min(axis=1).sum()) + fusion.penalty * np.sqrt(problem.n)
    sizes = [p.n_components for p in posteriors]
    stacked: FusionProblem = FusionProblem(
        posteriors[0].family,
        np.concatenate([p.natural for p in posteriors]),
        np.repeat(np.arange(len(sizes)), sizes),
        np.repeat(weights, sizes),
    )
    stacked = amid_problem(stacked, divergence_of(fusion))
    divergences = match_divergences(stacked, natural, np.concatenate(labels))
    facts: dict[str, Any] = {
        "silo_weights": weights.tolist(), "pooling": pooling_of(fusion), "min_support": least,
        "divergence": divergence_of(fusion),
    }  # fmt: skip
    history = history or list(fusion.provenance.get("history", []))
    if history:
        facts["history"] = history
    return Fusion(
        posterior=global_posterior(posteriors, natural, labels, layers.match_anew),
        silo_names=tuple(p.name for p in posteriors),
        labels=tuple(labels),
        divergences=tuple(np.split(divergences, np.cumsum(sizes)[:-1])),
        penalty=fusion.penalty,
        objective=value,
        lower_bound=min(bound, value),
        trace=np.array([value]),
        status=Status.KEPT,
        method=fusion.method,
        path=path,
        provenance=provenance(**facts),
        silos=tuple(silos),
    )


def _with_support(labels: Sequence[IntArray], least: int) -> tuple[list[IntArray], int]:
    """Labels of what enough silos have, numbered without holes in the order they had."""
    stacked = np.concatenate(labels)
    silo = np.repeat(np.arange(len(labels)), [len(own) for own in labels])
    rows = stacked >= 0
    if not rows.any():
        raise KLFusionError("expected components to be left, got none")
    kept = supported(stacked[rows], silo[rows], least)
    number = np.full(int(stacked.max()) + 2, -1, dtype=np.intp)  # the last: of label -1
    number[kept] = np.arange(len(kept))
    return [number[own] for own in labels], len(kept)


def matching_problem(fusion: Fusion, problem: FusionProblem) -> FusionProblem:
    """The problem as the fusion's method compares components."""
    method = method_of(fusion)
    return problem.centred() if method is None else method.matching(problem)


def _ordered(path: PenaltyPath, steps: int) -> IntArray:
    """Labels of all local components after so many merges, the largest clusters first."""
    assert path.rows is not None
    of_row = path.labels(steps)
    labels = np.where(path.rows >= 0, of_row[path.rows], -1)
    kept = labels[labels >= 0]
    counts = np.bincount(of_row)
    first = np.array([np.flatnonzero(kept == g)[0] for g in range(len(counts))])
    rank = np.empty(len(counts), dtype=np.intp)
    rank[np.lexsort([first, -counts])] = np.arange(len(counts))
    return np.where(labels >= 0, rank[labels], -1)


# A newcomer -------------------------------------------------------------------------------------


def _place(fusion: Fusion, before: Matched, new: Posterior, weight: float) -> IntArray:
    """Labels of a new silo, matched to the others' clusters by one assignment."""
    groups = [(np.array([row]), eta) for row, eta in enumerate(new.natural)]
    if isinstance(method_of(fusion), Auto):
        rows = with_data(new)
        # Distances between global components show how far apart different ones usually are.
        near = near_pairs(new.family, [new.natural[rows], _centres(before)])[0]
        groups = merge_splits(new, rows, near)
    size, n_new = fusion.n_components, len(groups)
    joined = FusionProblem(
        new.family,
        np.concatenate([before.problem.natural, np.stack([eta for _, eta in groups])]),
        np.concatenate([before.problem.silo, np.full(n_new, before.problem.silo[-1] + 1)]),
        np.concatenate([before.problem.weights, np.full(n_new, weight)]),
    )
    problem = matching_problem(fusion, joined)
    # The newcomers begin alone, so that taking them out leaves the clusters as they were.
    clusters = Clusters(problem, np.concatenate([before.labels, size + np.arange(n_new)]))
    own = slice(problem.n - n_new, problem.n)
    clusters.take_out(own)
    costs = clusters.increases(own)[:, :size]
    counts = clusters.counts[:size]
    costs = costs + fusion.penalty * (np.sqrt(counts + 1.0) - np.sqrt(counts))
    # Without a penalty the size was given: it grows only for a silo with more components.
    price = fusion.penalty if fusion.penalty > 0 else 1.0 + n_new * float(costs.max())
    column = linear_sum_assignment(np.hstack([costs, np.full((n_new, n_new), price)]))[1]
    opened = column >= size
    column[opened] = size + np.arange(int(opened.sum()))
    labels = np.full(new.n_components, -1, dtype=np.intp)
    for (rows_of_group, _), label in zip(groups, column, strict=True):
        labels[rows_of_group] = label
    return labels


def _centres(units: Matched) -> FloatArray:
    return units.problem.average(units.labels, int(units.labels.max()) + 1)
