"""How methods search: seeds, the paper's alternation, local search, certificates.

The paper's algorithm alternates assignment and averaging, which both lower the objective:

``min over centres and plans of  sum_jlg P^j_lg KL(centre_g || local_jl) + penalty * ||P||_{2,2,1}``

What differs between its three problems is the assignment step alone. Homogeneous (section 3) and
known size (section 4.1): one Hungarian assignment per silo. Nonparametric (sections 4.2 and 4.3):
the convex relaxation with the L2,2,1 norm, or the binary problem itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, relabel
from klfusion._utils.running import Descent, descend
from klfusion.assignment.binary import solve_binary, solve_hungarian
from klfusion.assignment.relaxed import certified_bound, solve_relaxed
from klfusion.merging.local_search import refine
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, MergePath, Plan, Search, Status, objective

_DUALITY_GAP = 1e-4  # relative gap at which a relaxed assignment stops
_NOTHING = 1e-8  # total weight of a column below which it is empty: rounding of the relaxation

# One assignment step: costs (n, G), problem, penalty and the previous plan in, the new plan out,
# which is no worse than the previous one at these costs.
Assign = Callable[[FloatArray, FusionProblem, float, Plan | None], Plan]


class Alternation(NamedTuple):
    """Where the alternation stopped."""

    plan: Plan
    centres: FloatArray
    trace: list[float]
    converged: bool


def alternate(
    problem: FusionProblem, centres: FloatArray, assign: Assign, penalty: float, search: Search
) -> Alternation:
    """Alternate assignments and averages until the objective falls by at most the tolerance."""

    def step(centres: FloatArray, previous: Plan | None) -> tuple[tuple[FloatArray, Plan], float]:
        plan, size = _without_unused(assign(problem.costs(centres), problem, penalty, previous))
        return (problem.average(plan, size), plan), objective(problem, plan, size, penalty)

    (centres, plan), trace, converged = descend(
        lambda state: step(*state), *step(centres, None),
        tol=search.tol, max_iter=search.max_iter - 1, stage="alternating", report=search.report
    )  # fmt: skip
    return Alternation(plan, centres, trace, converged)


def assign_hungarian(
    costs: FloatArray, problem: FusionProblem, penalty: float, previous: Plan | None
) -> Plan:
    """Homogeneous, or of known size: each silo by itself."""
    del penalty, previous
    return solve_hungarian(costs, problem.silos)


def assign_binary(
    costs: FloatArray, problem: FusionProblem, penalty: float, previous: Plan | None
) -> Plan:
    """The binary problem: improve the previous labels."""
    start = None if previous is None else previous.astype(np.intp)
    return solve_binary(costs, problem.silos, penalty, start=start).labels


def assign_relaxed(
    costs: FloatArray, problem: FusionProblem, penalty: float, previous: Plan | None
) -> Plan:
    """The convex relaxation, with the previous plan as incumbent."""
    return solve_relaxed(costs, problem.silo, penalty, start=previous, tol=_DUALITY_GAP).plan


def _without_unused(plan: Plan) -> tuple[Plan, int]:
    """Drop empty global components; also the number that is left."""
    if plan.ndim == 2:
        used = plan.sum(axis=0) > _NOTHING
        plan = plan[:, used] / plan[:, used].sum(axis=1, keepdims=True)
        return plan, plan.shape[1]
    labels = relabel(plan.astype(np.intp))
    return labels, int(labels.max()) + 1


def penalised_starts(
    problem: FusionProblem,
    penalty: float,
    path: MergePath | None,
    starts: list[IntArray],
    n_seeded: int,
    search: Search,
    *,
    opens: bool = True,
) -> Matching:
    """Refine every start, and seeded ones, at a penalty; more clusters only if it ``opens``."""
    runs = [refine(problem, start, penalty, search, opens=opens) for start in starts]
    for _ in range(n_seeded):
        seeded = _seeded(problem, penalty, search)
        run = refine(problem, seeded.plan.astype(np.intp), penalty, search, opens=opens)
        runs.append(run._replace(trace=seeded.trace[:-1] + run.trace))
    return certified(problem, min(runs, key=lambda run: run.trace[-1]), penalty, path)


def certified(
    problem: FusionProblem, found: Descent[IntArray], penalty: float, path: MergePath | None
) -> Matching:
    """What a search ended with, and the relaxation's bound at its centres."""
    labels, trace, converged = found
    costs = problem.costs(problem.average(labels, int(labels.max()) + 1))
    bound = min(certified_bound(costs, problem.silo, penalty, labels), trace[-1])
    return Matching(labels, trace[-1], bound, trace, penalty, Status.of(converged), path)


def cut(problem: FusionProblem, path: MergePath, steps: int) -> Matching:
    """The plan of a path after so many steps, without local search."""
    return without_penalty(problem, path.labels(steps), path)


def without_penalty(problem: FusionProblem, labels: IntArray, path: MergePath) -> Matching:
    """A plan that may merge components of one silo, and a bound over all such plans."""
    size = int(labels.max()) + 1
    value = problem.divergence(labels, size)
    bound = float(problem.costs(problem.average(labels, size)).min(axis=1).sum())
    return Matching(labels, value, min(bound, value), [value], 0.0, Status.CONVERGED, path)


def best_of(runs: list[Matching]) -> Matching:
    """The run with the lowest objective."""
    return min(runs, key=lambda run: run.objective)


def known_size_starts(
    problem: FusionProblem,
    size: int,
    search: Search,
    *,
    refined: bool = True,
    n_init: int | None = None,
    from_silos: bool = False,
    path: MergePath | None = None,
) -> list[Matching]:
    """Known size from silos of that size, if ``from_silos``, then from KL k-means++ seeds."""
    n_init = n_init or search.n_init
    whole = [rows for rows in problem.silos if from_silos and rows.stop - rows.start == size]
    starts = [problem.natural[rows] for rows in whole[:n_init]]
    starts += [seed_centres(problem, size, search.rng) for _ in range(n_init - len(starts))]
    return [known_size(problem, centres, search, refined=refined, path=path) for centres in starts]


def known_size(
    problem: FusionProblem,
    centres: FloatArray,
    search: Search,
    *,
    refined: bool = True,
    path: MergePath | None = None,
) -> Matching:
    """Hungarian assignments and averages (paper, sections 3 and 4.1), then local search."""
    found = alternate(problem, centres, assign_hungarian, 0.0, search)
    labels, trace, converged = found.plan.astype(np.intp), found.trace, found.converged
    if refined:
        labels, more, converged = refine(problem, labels, 0.0, search, fixed_size=True)
        trace = trace[:-1] + more
    value = objective(problem, labels, int(labels.max()) + 1, 0.0)
    bound = min(least_costs(problem, labels), value)
    return Matching(labels, value, bound, [*trace[:-1], value], 0.0, Status.of(converged), path)


def known_size_on_path(
    problem: FusionProblem, path: MergePath, size: int, search: Search, n_init: int
) -> Matching:
    """Known size from the path's cut, or from seeds if its clusters came to exclude each other."""
    steps = problem.n - size
    if steps > len(path.merges):
        return best_of(known_size_starts(problem, size, search, n_init=n_init, path=path))
    return known_size(problem, problem.average(path.labels(steps), size), search, path=path)


def least_costs(problem: FusionProblem, labels: IntArray) -> float:
    """Costs of each silo's best assignment to the averages of a plan."""
    costs = problem.costs(problem.average(labels, int(labels.max()) + 1))
    best = solve_hungarian(costs, problem.silos)
    return float(costs[np.arange(problem.n), best].sum())


def other_divergence(
    problem: FusionProblem, found: Matching, penalty: float | None, search: Search
) -> Matching:
    """Alternate under another divergence: from ``found``, or from seeds at a given penalty.

    Local search and the path rest on Jensen gaps, which belong to KL alone.
    """
    if penalty is None:
        labels = relabel(found.labels)
        centres = problem.average(labels, int(labels.max()) + 1)
        return known_size(problem, centres, search, refined=False, path=found.path)
    runs = (_seeded(problem, penalty, search) for _ in range(max(search.n_init, 3)))
    best = min(runs, key=lambda run: run.trace[-1])
    stopped = Descent(best.plan.astype(np.intp), best.trace, best.converged)
    return certified(problem, stopped, penalty, None)


def _seeded(problem: FusionProblem, penalty: float, search: Search) -> Alternation:
    """The binary problem from seeds, twice as many as the largest silo has components."""
    least = problem.largest_silo
    centres = seed_centres(problem, 2 * least, search.rng, least)
    return alternate(problem, centres, assign_binary, penalty, search)


def seed_centres(
    problem: FusionProblem, n_seeds: int, rng: np.random.Generator, least: int | None = None
) -> FloatArray:
    """KL k-means++ seeds; where fewer are distinct, copies fill up to ``least`` of them."""
    rows = kl_plus_plus(problem, n_seeds, rng)
    missing = (n_seeds if least is None else least) - len(rows)
    if missing > 0:
        rows = np.append(rows, np.setdiff1d(np.arange(problem.n), rows)[:missing])
    return problem.natural[rows]


def kl_plus_plus(problem: FusionProblem, n_seeds: int, rng: np.random.Generator) -> IntArray:
    """Rows of ``n_seeds`` well-spread components, fewer where all others are copies of these.

    Greedy k-means++ with the KL divergence for the squared distance (paper, appendix E): each seed
    is the best of a few candidates drawn in proportion to their divergence from the seeds so far.
    """
    n_trials = 2 + int(np.log(n_seeds))
    seeds = [int(rng.integers(problem.n))]
    nearest = problem.costs(problem.natural[seeds])[:, 0]
    while len(seeds) < min(n_seeds, problem.n):
        if not (total := nearest.sum()) > 0:
            break
        draws = rng.random(n_trials) * total
        candidates = np.minimum(np.searchsorted(np.cumsum(nearest), draws), problem.n - 1)
        reached = np.minimum(nearest[:, None], problem.costs(problem.natural[candidates]))
        best = int(reached.sum(axis=0).argmin())
        seeds.append(int(candidates[best]))
        nearest = reached[:, best]
    return np.unique(np.array(seeds, dtype=np.intp))
