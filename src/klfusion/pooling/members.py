"""Matched components as pooling needs them: their labels, and the priors behind them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.objective.problem import FusionProblem
from klfusion.posteriors.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Matched:
    """Matched components, one per silo and label (n,), and their silos' priors (n, p), if sent."""

    problem: FusionProblem
    labels: IntArray
    priors: FloatArray | None


def matched(
    posteriors: Sequence[Posterior], labels: Sequence[IntArray], silo_weights: FloatArray
) -> Matched:
    """Merge components of a silo that share a label; leave out those without a label."""
    silo = np.repeat(np.arange(len(labels)), [len(own) for own in labels])
    found = np.concatenate(labels)
    rows = np.flatnonzero(found >= 0)
    key = silo[rows] * (int(found.max()) + 1) + found[rows]
    _, first, group, times = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    stacked = np.concatenate([p.natural for p in posteriors])
    natural, which = stacked[rows[first]], silo[rows[first]]
    for unit in np.flatnonzero(times > 1):
        parts, prior = stacked[rows[group == unit]], posteriors[which[unit]].prior
        # Without a prior they were not merged by evidence; their average stands for them.
        natural[unit] = parts.mean(axis=0)
        if prior is not None:
            natural[unit] = parts.sum(axis=0) - (len(parts) - 1) * prior
    order = np.argsort(first)  # as the silos have them
    natural, which, labels_of_units = natural[order], which[order], found[rows[first[order]]]
    problem = FusionProblem(posteriors[0].family, natural, which, silo_weights[which])
    return Matched(problem, labels_of_units, priors_of(posteriors, which))


def priors_of(posteriors: Sequence[Posterior], silo: IntArray) -> FloatArray | None:
    """The prior of each component's silo, (n, p); None unless every silo sent one."""
    given = [p.prior for p in posteriors if p.prior is not None]
    return np.stack(given)[silo] if len(given) == len(posteriors) else None
