"""Silos that come and go, and other sizes: a fusion changed without a new search.

The matching, penalty, certainty and variation are kept. All else is computed from the silos that
stay, so a removed silo leaves no trace in any number.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count, islice
from typing import Any

import numpy as np

from klfusion._fuse import fuse, read_silos
from klfusion._utils.arrays import FloatArray, IntArray, by_size, joining, numbering
from klfusion._utils.checks import check_flag, check_integer, is_integer, is_number
from klfusion._utils.package import library_version
from klfusion._utils.text import brief, few
from klfusion.assignment.binary import assign_silo
from klfusion.errors import KLFusionError
from klfusion.fusion.assemble import EMPTY, UNSUPPORTED, assemble, match_divergences
from klfusion.fusion.result import Fusion
from klfusion.methods import Auto, ByName, MaxLoss, PathMethod
from klfusion.methods.matching import check_sizes, comparing
from klfusion.model_size.cleaning import merge_splits, merged, with_data
from klfusion.objective.divergences import KL, problem_with_divergence
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, MergePath, Status, objective
from klfusion.pooling.one_prior import under_one_prior
from klfusion.pooling.pool import Matched, check_pooling, chosen, pool, priors_of
from klfusion.posteriors import compatibility
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import kinds
from klfusion.posteriors.structure.structure import is_point
from klfusion.posteriors.vocabularies import words
from klfusion.updates.price import price_of
from klfusion.updates.table import TABLES, Table, kept_silos

_History = Sequence[Mapping[str, Any]]
_AGREES = 1e-6  # relative difference of fused parameters that rounding explains


def add(fusion: Fusion, model: Any, *, name: str | None, weight: float, rematch: bool) -> Fusion:
    """See `Fusion.add`."""
    check_flag("rematch", rematch)
    silos = kept_silos(fusion, "add a silo")
    if not isinstance(name, str | None):
        raise KLFusionError(f"expected name to be text, got {brief(name)}")
    number = next(i for i in count(len(silos)) if f"silo-{i + 1}" not in fusion.silo_names)
    (new,) = read_silos([model] if name is None else {name: model}, number)
    weights = compatibility.silo_weights([*fusion.settings.weights, weight], [*silos, new])
    if rematch or _no_price(fusion) or isinstance(fusion.settings.method, ByName):
        return _rematched(fusion, (*silos, new), weights, "add", new.name)
    kind = fusion.settings.method.divergence
    if kind != KL.name:
        message = f"adding a silo to a fusion of divergence {kind!r}: expected rematch=True"
        raise KLFusionError(message)
    check_pooling(fusion.settings.pooling, [new])
    counted = compatibility.counted
    if not set(counted(new)).isdisjoint(counted(fusion.posterior)):  # else none can be
        compatibility.check_counted_once([*silos, new])
    check_sizes([*silos, new])
    with comparing([*silos, new]):
        table, posterior = _aligned(_table(fusion, "add a silo"), new, fusion)
        placed = _assign_newcomer(fusion, table, posterior, float(weights[-1]))
        table = table.joined((new, posterior), *placed)
    return _kept(fusion, table, history=_history(fusion, "add", new.name))


def remove(fusion: Fusion, name: str, *, rematch: bool) -> Fusion:
    """See `Fusion.remove`."""
    check_flag("rematch", rematch)
    silos = kept_silos(fusion, "remove a silo")
    if not isinstance(name, str) or name not in fusion.silo_names:
        raise KLFusionError(f"expected a silo of {few(fusion.silo_names)}, got {brief(name)}")
    if fusion.n_silos == 1:
        raise KLFusionError(f"silo {name!r} is the only one: expected another to be left")
    j = fusion.silo_names.index(name)
    if rematch or isinstance(fusion.settings.method, ByName):
        weights = np.delete(fusion.settings.weight_array(), j)
        return _rematched(fusion, silos[:j] + silos[j + 1 :], weights, "remove", name)
    table = _table(fusion, "remove a silo")
    less = table.without(j)
    if not all(map(operator.is_, table.posteriors, silos)):
        # Words or classes that only this silo had go with it.
        less = Table.of(less.silos, less.labels, less.settings_from(fusion.settings))
    return _kept(fusion, less, history=_history(fusion, "remove", name))


def at(fusion: Fusion, *, n_components: int | None, penalty: float | None) -> Fusion:
    """See `Fusion.at`."""
    silos, path = kept_silos(fusion, "pick another size"), fusion.path
    if path is None and fusion.n_silos == 1:
        raise KLFusionError(
            f"silo {fusion.silo_names[0]!r} is the only one, and its components stay as they are: "
            "expected two silos or more, or kf.MaxLoss(..., within_silos=True), to have other sizes"
        )
    if path is None:
        raise KLFusionError(
            "expected a fusion with a path, as method 'auto' makes it, got none: what add and "
            "remove give has one with rematch=True"
        )
    if path.rows is None:
        raise KLFusionError(
            "expected a path of all components, got that of a sample of "
            f"{path.n_components[0]}: fuse anew with n_components= or method=kf.Penalised(...)"
        )
    if (n_components is None) == (penalty is None):
        raise KLFusionError("expected either n_components or penalty")
    if penalty is not None:
        if not (is_number(penalty) and 0 <= penalty < np.inf):
            raise KLFusionError(f"expected penalty to be a number >= 0, got {penalty!r}")
        steps = path.steps_at(penalty)
    else:
        known = is_integer(n_components)
        found = np.flatnonzero(path.n_components == (n_components if known else -1))
        if len(found) == 0:
            raise KLFusionError(
                f"expected n_components from {path.n_components[-1]} to {path.n_components[0]}, "
                f"as on the path, got {brief(n_components)}: fuse anew with n_components="
            )
        steps = int(found[0])
        penalty = float(path.penalties[steps - 1]) if steps else 0.0
    edges = np.cumsum([len(own) for own in fusion.labels])[:-1]
    of_row = path.labels(steps)
    rows = np.where(path.rows >= 0, of_row[path.rows], -1)
    counts = np.bincount(of_row)
    labels = np.split(numbering(by_size(counts, rows), len(counts))[rows], edges)  # largest first
    settings = replace(fusion.settings, certainty=None)
    with comparing(silos):
        table = Table.of(silos, labels, settings)
    return _kept(replace(fusion, penalty=penalty), table, path=path)


def with_min_support(fusion: Fusion, min_support: int) -> Fusion:
    """See `Fusion.with_min_support`."""
    check_integer("min_support", min_support)
    if fusion.contributions.astype(bool).sum(axis=0).min() >= min_support:
        return replace(fusion, settings=replace(fusion.settings, min_support=min_support))
    table = _table(fusion, "leave out components")
    settings = replace(fusion.settings, min_support=min_support)
    return _kept(replace(fusion, settings=settings), table, path=fusion.path)


def _no_price(fusion: Fusion) -> bool:
    """Whether nothing prices a component: a single silo, one global component, or `MaxLoss`.

    One global component alone does not show what different ones look like.
    """
    method, size = fusion.settings.method, fusion.settings.n_components[0]
    automatic = isinstance(method, Auto | MaxLoss) and method.divergence == KL.name
    single = isinstance(method, Auto) and fusion.n_components == 1
    return automatic and size is None and (fusion.penalty == 0 or single)


def _rematched(
    fusion: Fusion, silos: Sequence[Posterior], weights: FloatArray, action: str, name: str
) -> Fusion:
    settings = fusion.settings
    sizes = settings.n_components
    same = {key: getattr(settings, key) for key in ("method", "pooling", "random_state")}
    size: Any = None if sizes == (None,) else sizes
    found = fuse(silos, n_components=size, weights=weights, **same)
    if settings.min_support > 1:
        found = with_min_support(found, settings.min_support)
    history = _history(fusion, action, name, rematch=True)
    return replace(found, provenance={**found.provenance, "history": history})


def _history(fusion: Fusion, action: str, silo: str, *, rematch: bool = False) -> list[Any]:
    """The audit trail with one more entry."""
    entry = {"action": action, "silo": silo, "rematch": rematch, "klfusion": library_version()}
    entry["time"] = datetime.now(UTC).isoformat(timespec="seconds")
    return [*fusion.provenance.get("history", []), entry]


def _table(fusion: Fusion, what: str) -> Table:
    """The fusion's table; refused if its parameters are not what its labels and silos give."""
    table = TABLES.get(fusion)
    if table is None:
        silos = kept_silos(fusion, what)
        with comparing(silos):
            table = Table.of(silos, fusion.labels, fusion.settings)
            natural, given = _pooled(fusion, table), fusion.posterior.natural
        if natural.shape != given.shape or not np.allclose(
            natural, given, rtol=_AGREES, atol=_AGREES * np.abs(given).max()
        ):
            raise KLFusionError(
                "the fused parameters do not follow from the labels, as with the fractional plans "
                "of method 'relaxed' or a method with locations of its own (this one: "
                f"{fusion.method}): expected rematch=True, or a fusion by 'auto', 'binary' or "
                "'homogeneous'"
            )
        table.remember(fusion)
    return table


def _pooled(fusion: Fusion, table: Table) -> FloatArray:
    units = table.units
    settings, size = fusion.settings, int(units.labels.max()) + 1
    divergence = settings.method.divergence
    problem = problem_with_divergence(units.problem, divergence)
    pooling = chosen(settings.pooling, table.posteriors, divergence)
    return pool(pooling, replace(units, problem=problem), size)


def _kept(
    fusion: Fusion, table: Table, *, path: MergePath | None = None, history: _History | None = None
) -> Fusion:
    """The fusion that a matching gives, from these silos alone."""
    with comparing(table.posteriors):
        return _assembled(fusion, table, path, history)


def _assembled(
    fusion: Fusion, table: Table, path: MergePath | None, history: _History | None
) -> Fusion:
    settings, before = fusion.settings, table
    table = table.with_support(settings.min_support)
    natural = _pooled(fusion, table)
    divergence = settings.method.divergence
    problem = problem_with_divergence(table.compared, divergence)
    if problem is table.compared:
        value, centres = table.clusters.objective(fusion.penalty), table.clusters.centres
    else:
        labels, size = table.units.labels, len(natural)
        value = objective(problem, labels, size, fusion.penalty)
        centres = problem.average(labels, size)
    costs = np.ascontiguousarray(problem.costs(centres).T)  # minima of long rows come fast
    # Every component to its nearest, all sharing one column's norm: no plan costs less.
    bound = float(costs.min(axis=0).sum()) + fusion.penalty * np.sqrt(problem.n)
    all_labels = table.all_labels
    stacked = problem_with_divergence(table.stacked, divergence)
    average = table.units.problem.average(table.units.labels, len(natural))
    compared = (
        average if chosen(settings.pooling, table.posteriors, divergence) == "auto" else natural
    )
    divergences = match_divergences(stacked, compared, all_labels)
    changed = history is not None
    settings = table.settings_from(settings) if changed else settings.with_weights(table.weights)
    rest = min(bound, value), [value], fusion.penalty, Status.KEPT, path
    made = assemble(
        (table.posteriors, table.labels, table.by_silo(divergences)),
        natural,
        Matching(all_labels, value, *rest),
        settings,
        silos=table.silos,
        unmatched=_reasons(fusion, table, before),
        history=history or fusion.provenance.get("history", []),
    )
    table.remember(made)
    return made


def _reasons(fusion: Fusion, table: Table, before: Table) -> dict[str, dict[int, str]]:
    """Why components are unmatched: as before, or for lack of support, or of a newcomer."""
    found: dict[str, dict[int, str]] = {}
    rows = np.flatnonzero(table.all_labels < 0)
    old, offsets = before.all_labels, np.cumsum([0, *map(len, table.labels)])
    for row, j in zip(rows, np.searchsorted(offsets, rows, side="right") - 1, strict=True):
        name, component = table.posteriors[j].name, int(row - offsets[j])
        known = fusion.unmatched.get(name, {}).get(component, EMPTY)
        found.setdefault(name, {})[component] = UNSUPPORTED if old[row] >= 0 else known
    return found


def _aligned(table: Table, new: Posterior, fusion: Fusion) -> tuple[Table, Posterior]:
    """The newcomer aligned with the others; they as well, if it has words or classes they lack.

    It is compared with the first silo, the first with named features, and any of its own name.
    """
    first, named = table.posteriors[0], [p for p in table.posteriors if p.name == new.name]
    infos = ((p, p.structure.info) for p in table.posteriors if p.structure is not None)
    with_features = (p for p, info in infos if info.get("features") is not None)
    named += islice(with_features, 1)
    *others, posterior = compatibility.aligned_silos([*dict.fromkeys([first, *named]), new])
    is_topics = first.structure is not None and first.structure.kind == kinds.TOPICS
    keeps_prior = not (is_point(first.structure) and is_point(new.structure))
    if keeps_prior and (posterior is new or (is_topics and words(others[0]) == words(first))):
        return table, posterior
    settings = table.settings_from(fusion.settings)
    aligned = compatibility.aligned_silos([*table.silos, new])
    *others, posterior = under_one_prior(aligned, settings.pooling, settings.method.divergence)
    return Table.of(table.silos, table.labels, settings, others), posterior


def _assign_newcomer(
    fusion: Fusion, table: Table, new: Posterior, weight: float
) -> tuple[IntArray, Matched, FusionProblem]:
    """A new silo matched by one assignment: its labels, its units, and these as compared."""
    table = table.in_columns_of([*table.posteriors, new])
    groups = [np.array([row]) for row in range(new.n_components)]
    size, others, method = fusion.n_components, table.units, fusion.settings.method
    if isinstance(method, PathMethod) and method.cleans:
        groups = merge_splits(new, with_data(new))
    n_new, natural = len(groups), merged(new, groups)
    silo = np.zeros(n_new, dtype=np.intp)
    own = FusionProblem(new.family, natural, silo, np.full(n_new, weight))
    clusters = table.clusters
    compared = table.comparison.apply(own, others.problem.natural)
    penalty = price_of(fusion, clusters)
    costs = clusters.increases(slice(0, n_new), compared) + joining(clusters.counts, penalty)
    # Without a penalty the size was given: it grows only for a silo with more components.
    price = penalty if penalty > 0 else 1.0 + n_new * float(costs.max())
    column = assign_silo(costs, new=price)
    opened = column < 0
    column[opened] = size + np.arange(int(opened.sum()))
    labels = np.full(new.n_components, -1, dtype=np.intp)
    for rows, label in zip(groups, column, strict=True):
        labels[rows] = label
    return labels, Matched(own, column, priors_of([new], silo)), compared
