"""Places of components: of all silos at once, and of one silo after the other."""

from __future__ import annotations

import numpy as np
import pytest

from klfusion.assignment.binary import assign_silo
from klfusion.model_size import places as module
from klfusion.model_size.evidence import LinkageSettings
from klfusion.model_size.linkage import link
from klfusion.objective.clusters import Clusters
from tests.model_size.test_linkage import silent, units


def linked_and_clusters(labels=None, seed=0):
    problem, truth = units(seed=seed)
    found = link(problem, LinkageSettings(), silent)
    return found, Clusters(found.problem, truth if labels is None else labels(truth))


def one_alone(truth):
    """The last component by itself."""
    return np.append(truth[:-1], truth.max() + 1)


def two_exchanged(truth):
    """The components of the third silo in each other's clusters."""
    labels = truth.copy()
    labels[[8, 9]] = labels[[9, 8]]
    return labels


def one_by_one(found, clusters):
    """Scores of each silo after it has been taken out."""
    out = []
    for rows in found.problem.silos:
        labels = clusters.labels[rows].copy()
        clusters.take_out(rows)
        out.append(found.places.scores(clusters, rows))
        clusters.put_in(rows, labels)
    return out


@pytest.mark.parametrize("entries", [1, 100, 1 << 20])
@pytest.mark.parametrize("labels", [None, one_alone])
def test_all_silos_at_once_have_the_scores_of_each(labels, entries, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ENTRIES", entries)
    found, clusters = linked_and_clusters(labels)
    expected, number = np.concatenate(one_by_one(found, clusters)), 0
    for some in found.places.of_all(clusters):
        joining = found.prior.joining(clusters.counts - some.holds)
        scores = some.odds + joining[some.silo]
        np.testing.assert_allclose(scores, expected[some.rows], rtol=1e-8)
        number += len(some.holds)
    assert number == len(found.problem.silos)


@pytest.mark.parametrize(("labels", "first"), [(None, 6), (one_alone, 5), (two_exchanged, 2)])
def test_the_first_silo_with_a_better_assignment_is_found(labels, first):
    found, clusters = linked_and_clusters(labels)
    assert found.places.first_unsettled(clusters) == first
    own = [clusters.labels[rows] for rows in found.problem.silos]
    best = [assign_silo(-scores, 0.0) for scores in one_by_one(found, clusters)]
    alone = [np.where(clusters.counts[one] == 1, -1, one) for one in own]
    changed = [(a != b).any() for a, b in zip(alone, best, strict=True)]
    assert [*changed, True].index(True) == first
