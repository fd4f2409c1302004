"""Which components are the same: record linkage of the silos' components.

Each silo is a file without duplicates (Fellegi and Sunter 1969; Sadinle 2017). A matching is a
partition of all components with at most one of each silo in a cluster. Its log-evidence is

    sum over clusters C of (n-1)/n sum_{i in C} [log f1(x_i) - log f0(x_i - shift(n))] + log prior,

with ``x_i`` the log-distance of member ``i`` to the other ``n - 1`` members of its cluster, ``f1``
and ``f0`` the densities of *same* and *different* (see `densities`), and the prior of
`PartitionPrior`. The factor ``(n-1)/n`` corrects for each pair that counts twice.

The evidence of every cut of the merge path is computed, with the parameters of ``f1`` integrated
out. Sweeps over the silos, one assignment per silo, and merges improve the best cut.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.running import Report
from klfusion.families import SiloVariation
from klfusion.merging.agglomeration import penalty_path
from klfusion.model_size.continued import settled_ahead
from klfusion.model_size.densities import Different, Same
from klfusion.model_size.evidence import (
    LinkageSettings,
    evidence_of,
    evidence_of_singles,
    gain_of_none,
    leave_one_out,
    log_odds_shared,
    n_independent,
    noise_distance,
    path_evidence,
    within_silos,
)
from klfusion.model_size.linked import Linked
from klfusion.model_size.matchings import AllMatchings
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import MergePath

ROUNDS = 5  # at most, of matching and estimating the variation between silos


def link(
    base: FusionProblem,
    settings: LinkageSettings,
    report: Report,
    *,
    variation: FloatArray | None = None,
) -> Linked:
    """Match the components of a problem and estimate the variation between silos.

    If nothing matches without variation, it is first estimated from all merges of the path. Of two
    silos, one matching of each size decides whether anything is shared under variation; where
    that is against it, the log-odds without variation, of all matchings, count alike. The
    ``variation`` may be known. Components that lie farther apart than different ones are not the
    same.
    """
    found = unvaried = cut(base.with_variation(variation), settings, report, every=True)
    if variation is not None:
        found = replace(found, variation=variation)
    elif isinstance(base.family, SiloVariation) and len(found.path.merges):
        labels = found.labels if found.matches else found.path.labels(len(found.path.merges))
        found = settled_ahead(base, found, settings, report, cut) or found
        for _ in range(ROUNDS if found is unvaried else 0):
            variation = base.varying.variation(labels)
            problem = base.with_variation(variation)
            new = cut(problem, settings, report)
            if unvaried.of_all:
                odds = new.sharing
                odds = odds if odds > 0.0 else 0.5 * (unvaried.sharing + odds)
                if odds > 0.0:
                    new = cut(problem, settings, report, every=True, shared=odds)
            settled = not new.matches or (new.labels == labels).all()
            found, labels = replace(new, variation=variation), new.labels
            if settled:
                break
        if found.matches and unvaried.different is not None and base.n > len(base.silos):
            distances = leave_one_out(base, found.labels)[1]
            found = found if distances.mean() < unvaried.different.centre else unvaried
    if not found.matches:
        return found
    return found.learned() if found.of_all else found.refined()


def _on_path(
    problem: FusionProblem, path: MergePath, settings: LinkageSettings, known: Different | None
) -> tuple[int, Different, tuple[FloatArray, FloatArray, float]]:
    """A number of global components, *different* of so many, and what `path_evidence` returns.

    *Different* may be known. Else its certainty depends on the number of global components, whose
    differences the silos repeat. The number begins with that of the largest silo, and is raised
    while the path has more.
    """
    if known is not None:
        return problem.n, known, path_evidence(problem, path, known, settings)
    every = n_independent(problem, problem.n)
    size = int(np.diff([rows.start for rows in problem.silos], append=problem.n).max())
    while True:
        different = within_silos(problem, settings, size)
        on_path = path_evidence(problem, path, different, settings)
        found = problem.n - int(on_path[0].argmax())
        if found <= size or n_independent(problem, size) == every:
            return size, different, on_path
        size = found


def cut(
    problem: FusionProblem,
    settings: LinkageSettings,
    report: Report,
    different: Different | None = None,
    *,
    every: bool = False,
    shared: float | None = None,
) -> Linked:
    """The merge path, cut where the evidence is highest; *different* may be known.

    Of two silos, ``every`` matching counts, not only the most probable one of each size. The
    log-odds that anything is ``shared`` may be known: where a matching has served to learn the
    variation between silos, that nothing is shared is not comparable with other matchings.
    """
    path = penalty_path(problem, report)
    none = Linked(problem, settings, path, np.arange(problem.n, dtype=np.intp))
    if len(path.merges) == 0:
        return none
    of_all, known, alone, size = None, different, 0.0, problem.n
    if different is not None or problem.n > len(problem.silos):
        size, different, on_path = _on_path(problem, path, settings, different)
        evidence, likelihood, nearest = on_path
        if every and len(problem.silos) == 2:
            of_all = AllMatchings.of(problem, different, settings, on_path)
        if of_all is not None:
            evidence, likelihood = of_all.evidence, of_all.likelihood
        best = int(evidence.argmax())
        alone = float(evidence[0])
        if shared is not None:
            evidence[0] += log_odds_shared(evidence) - shared
        elif best and known is None:
            evidence[0] += gain_of_none(problem, path.labels(best), different, settings, size)
        found = best, different, likelihood[best]
    else:
        evidence, found, nearest = evidence_of_singles(problem, path, settings)
    steps, different, of_grid = found
    path = replace(path, evidence=evidence)
    labels = path.labels(steps)
    if of_all is not None:
        labels = of_all.labels(evidence)
        of_grid = of_all.likelihood[problem.n - 1 - int(labels.max())]
    if int(labels.max()) + 1 == problem.n:
        return replace(none, path=path, different=different)
    same = Same.of(different.centre, of_grid, noise_distance(problem), nearest)
    every_matching = of_all is not None
    linked = Linked(problem, settings, path, labels, different, same, of_all=every_matching)
    if of_all is not None or evidence[steps] > evidence[0]:
        return linked
    # A matching that the path does not have may still have more evidence than nothing shared.
    linked = linked.refined()
    if known is None and linked.matches and problem.n > len(problem.silos):
        more = evidence_of(problem, linked.labels, different, settings, nearest)
        if more > alone + gain_of_none(problem, linked.labels, different, settings, size):
            return linked
    return replace(none, path=path, different=different)
