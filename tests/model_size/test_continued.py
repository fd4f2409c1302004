"""A path that goes on from clusters, and the variation that it settles at once."""

from dataclasses import replace

import numpy as np
import pytest

from klfusion.model_size import linkage
from klfusion.model_size.continued import merged_further, settled_ahead
from klfusion.model_size.evidence import LinkageSettings
from klfusion.objective.problem import FusionProblem
from tests.helpers.silos import normal_wishart_silos


def no_report(*_):
    pass


def problem_and_truth(seed=0):
    silos, truth = normal_wishart_silos(24, n_true=5, seed=seed)
    sizes = [p.n_components for p in silos]
    natural, silo = np.concatenate([p.natural for p in silos]), np.repeat(np.arange(24), sizes)
    problem = FusionProblem(silos[0].family, natural, silo, np.ones(len(natural)))
    return problem.centred().comparable(), np.concatenate(truth)


def halves(problem, truth):
    """Each cluster in two, of even and of odd silos, numbered as they first appear."""
    part = 2 * truth + problem.silo % 2
    first = (part[:, None] == part).argmax(axis=1)
    return np.unique(first, return_inverse=True)[1]


def same_partition(a, b):
    return ((a[:, None] == a) == (b[:, None] == b)).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_parts_of_clusters_are_merged(seed):
    problem, truth = problem_and_truth(seed)
    parts = halves(problem, truth)
    found = merged_further(problem, parts, LinkageSettings(), no_report)
    assert same_partition(found, truth)
    assert same_partition(merged_further(problem, found, LinkageSettings(), no_report), truth)


def test_only_a_cut_into_the_same_clusters_is_settled():
    problem, truth = problem_and_truth()
    settings = LinkageSettings()
    whole = linkage.cut(problem, settings, no_report)
    assert same_partition(whole.labels, truth)
    assert settled_ahead(problem, whole, settings, no_report, linkage.cut) is None  # none merge
    parts = halves(problem, truth)
    found = replace(whole, labels=parts)
    settled = settled_ahead(problem, found, settings, no_report, linkage.cut)
    assert settled is not None and same_partition(settled.labels, truth)
    assert settled.variation.shape == (problem.family.variation_size,)
    other = settled_ahead(problem, found, settings, no_report, lambda *_: found)
    assert other is None
