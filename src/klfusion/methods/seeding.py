"""Starts of the alternation: KL k-means++ (paper, appendix E)."""

from __future__ import annotations

import numpy as np

from klfusion._utils.arrays import IntArray
from klfusion.objective.problem import FusionProblem


def kl_plus_plus(problem: FusionProblem, n_seeds: int, rng: np.random.Generator) -> IntArray:
    """Rows of ``n_seeds`` well-spread components.

    Greedy k-means++ with the KL divergence for the squared distance: each seed is the best of a
    few candidates drawn in proportion to their divergence from the seeds so far. There are fewer
    where all others are copies of these.
    """
    n_trials = 2 + int(np.log(n_seeds))
    first = int(rng.integers(problem.n))
    seeds = [first]
    nearest = problem.costs(problem.natural[[first]])[:, 0]
    while len(seeds) < min(n_seeds, problem.n):
        total = nearest.sum()
        if not total > 0:
            break
        draws = rng.random(n_trials) * total
        candidates = np.minimum(np.searchsorted(np.cumsum(nearest), draws), problem.n - 1)
        reached = np.minimum(nearest[:, None], problem.costs(problem.natural[candidates]))
        best = int(reached.sum(axis=0).argmin())
        seeds.append(int(candidates[best]))
        nearest = reached[:, best]
    return np.unique(np.array(seeds, dtype=np.intp))
