"""Which components are the same: the evidence, the search, and probabilities."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.model_size.evidence import (
    LinkageSettings,
    leave_one_out,
    n_independent,
    pairs_within,
)
from klfusion.model_size.linkage import cut, link
from klfusion.model_size.linked import Linked
from klfusion.model_size.probabilities import own_probabilities
from klfusion.objective.problem import FusionProblem

NW = kf.families.NormalWishart(2)
UNITS = kf.families.DiagonalNormal(20)


def silent(*_):
    """No progress."""


def one_each(means, count=300.0):
    """A silo for each mean: one component, of unit variance."""
    return [
        kf.Posterior(NW, NW.natural([m], [count], [count * np.eye(2)], [count + 1.0]), name=f"{j}")
        for j, m in enumerate(np.asarray(means, dtype=float))
    ]


def units(seed=0, n_silos=6, size=4, noise=0.3):
    """Silos with all of some units in 20 dimensions, and the unit of each component."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(size, 20))
    truth = np.tile(np.arange(size), n_silos)
    means = centres[truth] + noise * rng.normal(size=(len(truth), 20))
    natural = UNITS.natural(means, np.full(means.shape, 0.05))
    silo = np.repeat(np.arange(n_silos), size)
    return FusionProblem(UNITS, natural, silo, np.ones(len(truth))), truth


def same_partition(labels, truth):
    return len({*zip(labels.tolist(), truth.tolist(), strict=True)}) == len(set(truth.tolist()))


def test_components_of_silos_of_one_that_lie_far_apart_stay_apart():
    assert kf.fuse(one_each([[0, 0], [100, 0]])).n_components == 2
    assert kf.fuse(one_each([[0, 0], [1, 0]])).n_components == 1


def test_groups_of_silos_of_one_component_are_found():
    rng = np.random.default_rng(0)
    means = np.array([[0, 0], [8, 0], [0, 8]])[np.arange(12) % 3] + 0.2 * rng.normal(size=(12, 2))
    assert kf.fuse(one_each(means)).n_components == 3


def test_silos_of_two_different_components_are_seldom_matched():
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        means = rng.uniform(-10.0, 10.0, size=(3, 2, 2))
        natural = [NW.natural(m, [150.0] * 2, [150.0 * np.eye(2)] * 2, [151.0] * 2) for m in means]
        silos = {name: kf.Posterior(NW, one) for name, one in zip("abc", natural, strict=True)}
        found.append(kf.fuse(silos).n_components)
    assert np.mean(np.equal(found, 6)) >= 0.9


@pytest.mark.parametrize("seed", range(5))
def test_what_lies_farther_apart_than_different_components_is_not_the_same(seed):
    rng, silos = np.random.default_rng(seed), {}
    for name, centres in {"a": (0.0, 6.0), "b": (100.0, 107.0)}.items():
        means = np.column_stack([centres, np.zeros(2)]) + 0.1 * rng.normal(size=(2, 2))
        natural = NW.natural(means, [100.0] * 2, [100.0 * np.eye(2)] * 2, [101.0] * 2)
        silos[name] = kf.Posterior(NW, natural)
    assert kf.fuse(silos).n_components == 4


def test_the_separation_assumed_decides_for_two_silos_of_one_component():
    silos = one_each([[0, 0], [4, 0]])
    sizes = [kf.fuse(silos, method=kf.Auto(separation=apart)).n_components for apart in (2.0, 40.0)]
    assert sizes == [2, 1]


@pytest.mark.parametrize(("size", "sure"), [(4, 0.98), (5, 0.99), (8, 0.99)])
@pytest.mark.parametrize("seed", range(5))
def test_units_are_matched_and_the_evidence_is_highest_there(seed, size, sure):
    """Four components have six differences, and say less of what *different* looks like."""
    problem, truth = units(seed, size=size)
    found = link(problem, LinkageSettings(), silent)
    assert same_partition(found.labels, truth)
    assert int(found.path.evidence.argmax()) == problem.n - size
    assert (own_probabilities(found) > sure).all()


def test_refining_and_merging_never_lower_the_evidence():
    problem, truth = units(3, noise=0.5)
    start = cut(problem, LinkageSettings(), silent)
    rng = np.random.default_rng(0)
    labels = start.labels.copy()
    row = int(rng.integers(problem.n))
    labels[row] = labels.max() + 1  # one component by itself
    wrong = Linked(problem, start.settings, start.path, labels, start.different, start.same)
    assert wrong.evidence(wrong._swept()) > wrong.evidence(labels)
    assert same_partition(wrong.refined().merged().labels, truth)


def test_distances_to_others_leave_a_component_out():
    problem, truth = units(2)
    rows, x, others = leave_one_out(problem, truth)
    assert (rows == np.arange(problem.n)).all()
    assert (others == 5).all()
    rest = np.flatnonzero((truth == truth[0]) & (np.arange(problem.n) != 0))
    centre = problem.natural[rest].mean(axis=0)
    both = UNITS.separation(problem.natural[:1], centre[None]) ** 2
    assert np.exp(x[0]) == pytest.approx(0.5 * 5 / 6 * both[0])


@pytest.mark.parametrize("n_components", [20, 50])
def test_one_silo_of_many_near_components_does_not_say_for_all_what_different_is(n_components):
    rng, family = np.random.default_rng(0), kf.families.Gamma()

    def rates_of(name, rates):
        counts = rng.poisson(300.0 * np.asarray(rates))
        natural = family.natural(1.0 + counts, np.full(len(rates), 300.1))
        return kf.Posterior(family, natural, name=name)

    silos = [rates_of(f"{j}", [2.0, 8.0, 20.0, 45.0]) for j in range(9)]
    silos.append(rates_of("many", np.linspace(9.0, 9.5, n_components)))
    labels = np.array(kf.fuse(silos).labels[:9])
    assert (labels == labels[0]).all()
    assert len(np.unique(labels[0])) == 4


def test_silos_of_one_size_count_as_their_components_less_one():
    problem, _ = units(n_silos=5, size=4)
    assert n_independent(problem, problem.n) == pytest.approx(15.0)
    x, weights = pairs_within(problem)
    assert len(x) == 5 * 6
    assert (weights == weights[0]).all()
    uneven = problem.some(np.r_[0:4, 4, 5, 8])  # silos of 4, 2 and 1
    assert n_independent(uneven, uneven.n) == pytest.approx(4.0 / (1.0 / 3.0 + 1.0))
    np.testing.assert_allclose(pairs_within(uneven)[1].sum(), 2.0)


def silos_of_unequal_size(seed):
    """Ten silos of 30 or 2,000 rows, of three to five of six clusters that vary a little.

    The prior of each is as wide as all its data, as that of scikit-learn.
    """
    rng, family, silos = np.random.default_rng(seed), kf.families.NormalWishart(3), []
    centres = 5.0 * np.array(list(np.ndindex(2, 2, 2))[:6], dtype=float)
    for j in range(10):
        held = rng.choice(6, size=rng.integers(3, 6), replace=False)
        n = 2000 if j % 5 == 4 else 30
        own = np.concatenate([np.repeat(held, 4), rng.choice(held, size=n - 4 * len(held))])
        x = centres[own] + 0.25 * rng.normal(size=(6, 3))[own] + rng.normal(size=(n, 3))
        prior = family.natural([x.mean(axis=0)], [1.0], [3.0 * np.cov(x.T)], [3.0])[0]
        natural = np.stack([prior + family.of_points(x[own == k]).sum(axis=0) for k in held])
        counts = [float((own == k).sum()) for k in held]
        silos.append(kf.Posterior(family, natural, name=f"{j}", prior=prior, counts=counts))
    return silos


def test_small_silos_match_large_ones_although_their_priors_are_wide():
    right = [kf.fuse(silos_of_unequal_size(seed)).n_components == 6 for seed in range(20)]
    assert np.mean(right) >= 0.8


@pytest.mark.parametrize("n_clusters", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_many_silos_that_repeat_few_differences_lose_no_component(n_clusters, seed):
    """A hundred copies of one distance are one difference, not a hundred."""
    rng, family = np.random.default_rng(seed), kf.families.NormalWishart(n_clusters)
    centres, eye = 9.0 / np.sqrt(2.0) * np.eye(n_clusters), np.eye(n_clusters)[None]
    prior = family.natural(np.zeros((1, n_clusters)), [0.01], eye, [n_clusters + 2.0])[0]

    def site(name):
        counts = rng.multinomial(20 * n_clusters, np.full(n_clusters, 1.0 / n_clusters))
        parts = [c + rng.normal(size=(n, n_clusters)) for c, n in zip(centres, counts, strict=True)]
        natural = np.stack([prior + family.of_points(x).sum(axis=0) for x in parts])
        return kf.Posterior(family, natural, name, prior, counts.astype(np.float64))

    fusion = kf.fuse([site(f"site-{j}") for j in range(100)])
    assert fusion.n_components == n_clusters
    assert fusion.n_unmatched == 0
