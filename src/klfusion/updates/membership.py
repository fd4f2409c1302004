"""Silos that come and go, and other sizes: a fusion changed without being searched anew.

The matching of the silos that stay is kept; everything else is computed from what they sent and
nothing else, so a silo that is gone has left no trace in any number. Of the search that found the
matching, three stay with it: the penalty, and the common certainty and the variation between silos
at which it is paid.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from klfusion._fuse import fuse, global_posterior, match_divergences
from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.checks import check_flag, is_integer, is_number
from klfusion._utils.penalty import joining
from klfusion._utils.provenance import provenance
from klfusion._utils.text import few
from klfusion.assignment.one_silo import assign_silo
from klfusion.errors import KLFusionError
from klfusion.fusion.record import (
    certainty_of,
    divergence_of,
    history_with,
    kept_silos,
    method_of,
    min_support_of,
    pooling_of,
    variation_of,
    weights_of,
)
from klfusion.fusion.result import Fusion
from klfusion.methods import METHODS, Auto
from klfusion.model_size.cleaning import may_have_splits, merge_splits, near_pairs, with_data
from klfusion.model_size.preparation import Matched, priors_of
from klfusion.objective.divergences import problem_with_divergence
from klfusion.objective.merge_path import MergePath
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Status, objective
from klfusion.pooling.pool import check_pooling, pool
from klfusion.posteriors.compatibility import (
    aligned_silos,
    check_counted_once,
    counted,
    silo_weights,
)
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import network as layers
from klfusion.posteriors.structure import topics
from klfusion.posteriors.vocabularies import words
from klfusion.read import read_silos
from klfusion.updates.ledger import Ledger

_AGREES = 1e-6  # relative: rounding explains no larger difference of fused parameters
_LEDGER = "_ledger"
_MOST_KEPT = 50_000_000  # natural parameters; larger ones are read anew each time


def add(fusion: Fusion, model: Any, *, name: str | None, weight: float, rematch: bool) -> Fusion:
    """See `Fusion.add`."""
    check_flag("rematch", rematch)
    silos = kept_silos(fusion, "add a silo")
    number = next(i for i in count(len(silos)) if f"silo-{i + 1}" not in fusion.silo_names)
    (new,) = read_silos([model] if name is None else {name: model}, number)
    weight = float(silo_weights([*weights_of(fusion), weight], [*silos, new])[-1])
    if rematch or _size_untold(fusion):
        weights = np.append(silo_weights(weights_of(fusion), silos), weight)
        return _rematched(fusion, (*silos, new), weights, "add", new.name)
    if divergence_of(fusion) != "kl":
        raise KLFusionError(
            f"adding a silo to a fusion of divergence {divergence_of(fusion)!r}: "
            "expected rematch=True"
        )
    check_pooling(pooling_of(fusion), [new])
    if not set(counted(new)).isdisjoint(counted(fusion.posterior)):  # else none can be
        check_counted_once([*silos, new])
    ledger, posterior = _brought_together(_ledger(fusion, silos), new)
    ledger = ledger.joined(new, posterior, *_place(fusion, ledger, posterior, weight))
    return _kept(fusion, ledger, history=history_with(fusion, "add", new.name))


def remove(fusion: Fusion, name: str, *, rematch: bool) -> Fusion:
    """See `Fusion.remove`."""
    check_flag("rematch", rematch)
    silos = kept_silos(fusion, "remove a silo")
    if name not in fusion.silo_names:
        raise KLFusionError(f"expected a silo of {few(fusion.silo_names)}, got {name!r}")
    if fusion.n_silos == 1:
        raise KLFusionError(f"silo {name!r} is the only one: expected another to be left")
    j = fusion.silo_names.index(name)
    if rematch:
        weights = np.delete(silo_weights(weights_of(fusion), silos), j)
        return _rematched(fusion, silos[:j] + silos[j + 1 :], weights, "remove", name)
    ledger = _ledger(fusion, silos)
    if all(map(operator.is_, ledger.posteriors, silos)):
        ledger = ledger.without(j)
    else:  # words or classes that only this silo knew go with it
        left = ledger.without(j)
        ledger = Ledger.of(
            left.silos, left.labels, left.weights, left.method, ledger.certainty,
            variation=ledger.variation,
        )  # fmt: skip
    return _kept(fusion, ledger, history=history_with(fusion, "remove", name))


def at(fusion: Fusion, *, n_components: int | None, penalty: float | None) -> Fusion:
    """See `Fusion.at`."""
    silos = kept_silos(fusion, "pick another size")
    path = fusion.path
    if path is None:
        raise KLFusionError(
            "expected a fusion with a path, as method 'auto' makes it, got none: what add and "
            "remove give has one with rematch=True"
        )
    if path.rows is None:
        raise KLFusionError(
            f"expected a path of all components, got that of a sketch of {path.n_components[0]}: "
            "fuse anew with n_components= or penalty="
        )
    if (n_components is None) == (penalty is None):
        raise KLFusionError("expected either n_components or penalty")
    if penalty is not None:
        if not (is_number(penalty) and 0 <= penalty < np.inf):
            raise KLFusionError(f"expected penalty to be a number >= 0, got {penalty!r}")
        steps = path.steps_at(penalty)
    else:
        found = np.flatnonzero((path.n_components == n_components) & is_integer(n_components))
        if len(found) == 0:
            raise KLFusionError(
                f"expected n_components from {path.n_components[-1]} to {path.n_components[0]}, "
                f"as on the path, got {n_components!r}: fuse anew with n_components="
            )
        steps = int(found[0])
        penalty = float(path.penalties[steps - 1]) if steps else 0.0
    edges = np.cumsum([len(own) for own in fusion.labels])[:-1]
    labels = np.split(_ordered(path, steps), edges)
    weights = silo_weights(weights_of(fusion), silos)
    ledger = Ledger.of(silos, labels, weights, method_of(fusion), variation=variation_of(fusion))
    return _kept(replace(fusion, penalty=penalty), ledger, path=path)


# What follows from a matching -------------------------------------------------------------------


def _size_untold(fusion: Fusion) -> bool:
    """Whether neither a size nor a penalty says what a new global component costs.

    So it is with a single silo and with ``max_loss``.
    """
    method = method_of(fusion)
    if method is None or method.name != Auto.name or divergence_of(fusion) != "kl":
        return False
    return fusion.penalty == 0 and method.n_components is None


def _rematched(
    fusion: Fusion, silos: Sequence[Posterior], weights: FloatArray, action: str, name: str
) -> Fusion:
    method = method_of(fusion)
    if method is None:
        raise KLFusionError(
            f"rematch: expected a method of {sorted(METHODS)}, got {fusion.method}; "
            "fuse(fusion.silos, method=...) matches anew with any"
        )
    found = fuse(
        silos, method=method, weights=weights, pooling=pooling_of(fusion),
        min_support=min_support_of(fusion), divergence=divergence_of(fusion),
    )  # fmt: skip
    history = history_with(fusion, action, name, rematch=True)
    return replace(found, provenance={**found.provenance, "history": history})


def _ledger(fusion: Fusion, silos: Sequence[Posterior]) -> Ledger:
    """The fusion's own, which was found to follow from its silos and labels."""
    known: Ledger | None = vars(fusion).get(_LEDGER)
    if known is not None:
        return known
    weights = silo_weights(weights_of(fusion), silos)
    ledger = Ledger.of(
        silos, fusion.labels, weights, method_of(fusion),
        certainty=certainty_of(fusion), variation=variation_of(fusion),
    )  # fmt: skip
    _check_reproducible(fusion, ledger)
    _remember(fusion, ledger)
    return ledger


def _remember(fusion: Fusion, ledger: Ledger) -> None:
    """Keep the ledger with the fusion, as a cached property is kept: it is in no file."""
    if ledger.stacked.natural.size <= _MOST_KEPT:
        vars(fusion)[_LEDGER] = ledger


def _check_reproducible(fusion: Fusion, ledger: Ledger) -> None:
    """Refuse fusions whose parameters are not what their labels and silos give."""
    natural, given = _pooled(fusion, ledger, fusion.n_components), fusion.posterior.natural
    if natural.shape != given.shape or not np.allclose(
        natural, given, rtol=_AGREES, atol=_AGREES * np.abs(given).max()
    ):
        raise KLFusionError(
            f"the fused parameters do not follow from the labels, as with the fractional plans of "
            f"method 'relaxed' or a method with locations of its own (this one: {fusion.method}): "
            "expected rematch=True, or a fusion by 'auto' (not within_silo_merging), 'exact' or "
            "'homogeneous'"
        )


def _pooled(fusion: Fusion, ledger: Ledger, size: int) -> FloatArray:
    problem = problem_with_divergence(ledger.units.problem, divergence_of(fusion))
    return pool(pooling_of(fusion), replace(ledger.units, problem=problem), size)


def _kept(
    fusion: Fusion,
    ledger: Ledger,
    *,
    path: MergePath | None = None,
    history: list[Any] | None = None,
) -> Fusion:
    """The fusion that a matching gives, from these silos alone."""
    ledger = ledger.with_support(min_support_of(fusion))
    labels = ledger.units.labels
    size = int(labels.max()) + 1
    natural = _pooled(fusion, ledger, size)
    problem = problem_with_divergence(ledger.matching, divergence_of(fusion))
    if problem is ledger.matching:
        value = ledger.clusters.objective(fusion.penalty)
        centres = ledger.clusters.centres
    else:
        value = objective(problem, labels, size, fusion.penalty)
        centres = problem.average(labels, size)
    costs = np.ascontiguousarray(problem.costs(centres).T)  # minima of long rows come fast
    # Every component to its nearest, all sharing one column's norm: no plan costs less.
    bound = float(costs.min(axis=0).sum()) + fusion.penalty * np.sqrt(problem.n)
    stacked = problem_with_divergence(ledger.stacked, divergence_of(fusion))
    divergences = match_divergences(stacked, natural, ledger.all_labels)
    facts: dict[str, Any] = {
        "silo_weights": ledger.weights, "pooling": pooling_of(fusion),
        "min_support": min_support_of(fusion), "divergence": divergence_of(fusion),
        "variation": ledger.variation,
    }  # fmt: skip
    if history is not None:
        facts["certainty"] = ledger.certainty
    history = history or list(fusion.provenance.get("history", []))
    if history:
        facts["history"] = history
    made = Fusion(
        posterior=global_posterior(
            ledger.posteriors, natural, ledger.labels, layers.match_anew, ledger.pooled_counts(size)
        ),
        silo_names=tuple([p.name for p in ledger.posteriors]),
        labels=ledger.labels,
        divergences=ledger.by_silo(divergences),
        penalty=fusion.penalty,
        objective=value,
        lower_bound=min(bound, value),
        trace=np.array([value]),
        status=Status.KEPT,
        method=fusion.method,
        path=path,
        provenance=provenance(**facts),
        silos=ledger.silos,
    )
    _remember(made, ledger)
    return made


def _ordered(path: MergePath, steps: int) -> IntArray:
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


def _brought_together(ledger: Ledger, new: Posterior) -> tuple[Ledger, Posterior]:
    """The newcomer as it goes with the others; they as well, if it has words or classes they lack.

    Silos of a ledger are alike, so it is compared with the first, the first that names its
    features, and any of its own name.
    """
    first, named = ledger.posteriors[0], [p for p in ledger.posteriors if p.name == new.name]
    for posterior in ledger.posteriors:
        if posterior.structure is not None and posterior.structure.info.get("features") is not None:
            named.append(posterior)
            break
    *others, posterior = aligned_silos([*dict.fromkeys([first, *named]), new])
    is_topics = first.structure is not None and first.structure.kind == topics.KIND
    if posterior is new or (is_topics and words(others[0]) == words(first)):
        return ledger, posterior
    *others, posterior = aligned_silos([*ledger.silos, new])
    together = Ledger.of(
        ledger.silos, ledger.labels, ledger.weights, ledger.method, ledger.certainty, others,
        ledger.variation,
    )  # fmt: skip
    return together, posterior


def _place(
    fusion: Fusion, ledger: Ledger, new: Posterior, weight: float
) -> tuple[IntArray, Matched, FusionProblem]:
    """A new silo matched to the others' clusters by one assignment.

    Its labels; its units; and those as they are compared.
    """
    groups = [(np.array([row]), eta) for row, eta in enumerate(new.natural)]
    size, others = fusion.n_components, ledger.units
    if isinstance(ledger.method, Auto):
        rows = with_data(new)
        near = np.zeros((len(rows), len(rows)), dtype=bool)
        if may_have_splits(new):
            # Distances between global components show how far apart different ones usually are.
            centres = others.problem.average(others.labels, size)
            near = near_pairs(new.family, [new.natural[rows], centres])[0]
        groups = merge_splits(new, rows, near)
    n_new, natural = len(groups), np.stack([eta for _, eta in groups])
    silo = np.zeros(n_new, dtype=np.intp)
    own = FusionProblem(new.family, natural, silo, np.full(n_new, weight))
    compared, clusters = ledger.compared(own), ledger.clusters
    costs = clusters.increases(slice(0, n_new), compared)
    costs += joining(clusters.counts, fusion.penalty)
    # Without a penalty the size was given: it grows only for a silo with more components.
    price = fusion.penalty if fusion.penalty > 0 else 1.0 + n_new * float(costs.max())
    column = assign_silo(costs, price)
    opened = column < 0
    column[opened] = size + np.arange(int(opened.sum()))
    labels = np.full(new.n_components, -1, dtype=np.intp)
    for (rows_of_group, _), label in zip(groups, column, strict=True):
        labels[rows_of_group] = label
    return labels, Matched(own, column, priors_of([new], silo)), compared
