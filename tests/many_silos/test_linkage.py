"""Costs of joining the clusters of very many silos, and topics of many words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from klfusion.many_silos.linkage import Joining
from klfusion.model_size.distances import to_clusters
from klfusion.model_size.evidence import LinkageSettings
from klfusion.model_size.linked import at_labels
from klfusion.objective.problem import FusionProblem
from tests.helpers.silos import normal_wishart_silos


@pytest.mark.parametrize("equal", [True, False])
def test_costs_are_log_odds_of_distances(equal):
    silos, truth = normal_wishart_silos(60, n_true=6, seed=3)
    sizes = [p.n_components for p in silos]
    n, rng = sum(sizes), np.random.default_rng(0)
    weights = np.ones(n) if equal else rng.uniform(0.2, 3.0, size=n)
    natural = np.concatenate([p.natural for p in silos])
    problem = FusionProblem(silos[0].family, natural, np.repeat(np.arange(60), sizes), weights)
    labels = np.concatenate(truth)
    linked = at_labels(problem, LinkageSettings(), labels)
    counts = np.bincount(labels).astype(np.float64)
    centres = problem.average(labels, 6)
    rule = Joining(linked.log_odds, problem.family, centres, counts, rng.normal(size=6))
    distance = to_clusters(problem, np.arange(n), rule.centres, counts)
    near = distance <= rule.farthest
    assert 0 < near.sum() < near.size
    expected = -(rule.odds.without_outliers(distance, 1.0, counts) + rule.prior)
    costs = rule.costs(problem)
    np.testing.assert_allclose(costs[near], expected[near], rtol=1e-6, atol=1e-6)
    assert np.isinf(costs[~near]).all()


@pytest.mark.parametrize("seed", range(3))
def test_components_of_one_silo_join_no_cluster_of_many(seed):
    """Every fourth fit describes two components by one, as an outlier of a cluster."""
    rng, dim, kinds = np.random.default_rng(seed), 4, np.empty((0, 4))
    while len(kinds) < 35:
        place = rng.uniform(-18, 18, size=dim)
        if (np.linalg.norm(kinds - place, axis=1) > 7).all():
            kinds = np.vstack([kinds, place])
    family, silos = kf.families.NormalWishart(dim), []
    for j in range(100):
        held = rng.choice(30, 14, replace=False)
        mean = kinds[np.append(held, 30 + j) if j < 5 else held]
        counts = rng.uniform(60.0, 150.0, size=len(mean))
        mean = mean + rng.normal(size=mean.shape) / np.sqrt(counts)[:, None]
        draws = rng.normal(size=(len(mean), 60, dim)) * np.sqrt(counts / 60)[:, None, None]
        natural = family.natural(mean, counts, draws.mT @ draws, counts + dim)
        if j % 4 == 3:
            natural = np.vstack([natural[2:], natural[:2].sum(axis=0)])
            counts = np.append(counts[2:], counts[:2].sum())
        silos.append(kf.Posterior(family, natural, name=f"silo-{j}", counts=counts))
    fusion = kf.fuse(silos)
    own = np.array([fusion.labels[f"silo-{j}"][14 - 2 * (j % 4 == 3)] for j in range(5)])
    assert [len(fusion.sources(int(g))) for g in own] == [1] * 5


def sparse_topics(n_silos, words, seed):
    """Silos of 6 of 12 topics, of words of which each topic uses few; how many topics occur."""
    rng = np.random.default_rng(seed)
    true = np.zeros((12, words))
    for topic in true:
        own = rng.permutation(words)[: words // 40]
        topic[own] = rng.dirichlet(np.full(len(own), 0.3))
    family, silos, seen = kf.families.Dirichlet(words), [], set()
    for j in range(n_silos):
        chosen = rng.permutation(12)[:6].tolist()
        counts = np.array([rng.multinomial(3_000, true[k]) for k in chosen], dtype=float)
        silos.append(kf.Posterior(family, 0.1 + counts, name=f"silo-{j:02d}"))
        seen |= set(chosen)
    return silos, len(seen)


@pytest.mark.parametrize(
    ("n_silos", "seed"), [(4, 0), (8, 1), pytest.param(60, 2, marks=pytest.mark.slow)]
)
def test_sparse_topics_are_fused_as_dense_ones(n_silos, seed, tmp_path):
    """Dense ones have another number for every word, by less than matters."""
    silos, n_topics = sparse_topics(n_silos, 9_000, seed)
    other = 1e-13 * np.random.default_rng(0).random(silos[0].natural.shape)
    found = []
    for name, own in (
        ("sparse", silos),
        ("dense", [replace(silo, natural=silo.natural + other) for silo in silos]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        for silo in own:
            kf.save(folder / f"{silo.name}.safetensors", silo)
        paths = sorted(folder.iterdir())
        found += [kf.fuse(own), kf.fuse_files(paths, memory_limit="64MB")]
    sparse, in_files, dense, dense_files = found
    assert sparse.n_components == n_topics
    for one, other in ((sparse, dense), (in_files, dense_files), (in_files, sparse)):
        for ours, theirs in zip(one.labels, other.labels, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    for one, other in ((sparse, dense), (in_files, dense_files)):
        np.testing.assert_allclose(one.posterior.natural, other.posterior.natural, rtol=1e-11)
