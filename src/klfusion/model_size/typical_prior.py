"""All components under one prior: one that is typical of the silos' components.

A prior that follows a silo's data differs between silos, and makes equal components differ. One as
wide as all data of a silo makes components of few observations wide, so that their shapes differ
from those of many observations.
"""

from dataclasses import replace

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families import EmpiricalPrior
from klfusion.objective.problem import FusionProblem


def typical_prior(problem: FusionProblem) -> FloatArray:
    """Average prior of the silos, (p,): of their empirical priors, where the family has these."""
    assert problem.prior is not None
    first = np.array([rows.start for rows in problem.silos])
    prior = problem.prior[first]
    if isinstance(problem.family, EmpiricalPrior):
        silo = np.repeat(np.arange(len(first)), np.diff(first, append=problem.n))
        tied = np.zeros(len(first), dtype=bool) if problem.tied is None else problem.tied[first]
        prior = problem.family.with_empirical_prior(problem.natural, prior, silo, tied)[1]
        return problem.family.typical_prior(prior)
    return np.asarray(prior.mean(axis=0))


def under_one_prior(problem: FusionProblem, prior: FloatArray | None = None) -> FusionProblem:
    """Components as if all silos had one ``prior``, (p,); default: the `typical_prior`.

    Without priors, or if a component would leave the family, they stay as they are.
    """
    if problem.prior is None:
        return problem
    one = typical_prior(problem) if prior is None else prior
    if (problem.prior == one).all():
        return problem
    natural = problem.natural - problem.prior + one
    if not problem.family.in_domain(natural):
        return problem
    return replace(problem, natural=natural, prior=np.broadcast_to(one, natural.shape).copy())
