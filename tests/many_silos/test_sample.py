"""Many silos: a path on a sketch and streamed assignments agree with the path on all."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

import klfusion as kf
from klfusion._utils.arrays import tangents
from klfusion.many_silos.sweep import Priced, bound, descend, sweep
from klfusion.objective.batches import InMemory, SelectedRows, SiloStore
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import objective
from tests.helpers.silos import normal_wishart_silos


def many_silos(n_silos, seed):
    """Silos with some of six components each, and which they are."""
    silos, truth = normal_wishart_silos(n_silos, n_true=6, seed=seed)
    return silos, np.concatenate(truth)


def quiet(*_args):
    """No progress."""


@pytest.fixture
def problem():
    silos, _ = many_silos(60, 0)
    sizes = [p.n_components for p in silos]
    return FusionProblem(
        silos[0].family,
        np.concatenate([p.natural for p in silos]),
        np.repeat(np.arange(len(sizes)), sizes),
        np.ones(sum(sizes)),
    )


@pytest.fixture(scope="module")
def many():
    """1,627 components of 400 silos, more than the path is walked on; and how they are fused."""
    silos, truth = many_silos(400, 4)
    return silos, truth, kf.fuse(silos, pooling="average")


# Streaming ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [1, 100_000, 1_000_000])
def test_a_sweep_gives_every_silo_its_best_block(problem, columns):
    rng = np.random.default_rng(1)
    centres = problem.natural[rng.permutation(problem.n)[:9]]
    prices, alone = rng.uniform(0, 20, size=9), 30.0
    tally = sweep(InMemory(problem, columns), Priced(centres, prices, alone))
    costs = problem.costs(centres) + prices
    labels = tally.all_labels
    for rows in problem.silos:
        own = costs[rows]
        wide = np.hstack([own, np.full((len(own), len(own)), alone)])
        best = wide[linear_sum_assignment(wide)].sum()
        got = np.where(labels[rows] < 0, alone, own[np.arange(len(own)), labels[rows]])
        assert got.sum() == pytest.approx(best)
        used = labels[rows][labels[rows] >= 0]
        assert len(set(used)) == len(used)
    taken = labels >= 0
    np.testing.assert_array_equal(tally.counts, np.bincount(labels[taken], minlength=9))
    assert tally.n_single == (~taken).sum()


def test_parts_do_not_matter(problem):
    centres = problem.natural[:7]
    few, many = (sweep(InMemory(problem, c), Priced(centres, np.zeros(7))) for c in (1, 1_000_000))
    np.testing.assert_array_equal(few.all_labels, many.all_labels)
    np.testing.assert_allclose(few.sums, many.sums, rtol=1e-12)
    np.testing.assert_array_equal(few.shared, many.shared)
    assert len(InMemory(problem, 1_000_000).batches) > 10


def test_the_objective_never_rises(problem):
    centres = problem.natural[:10]
    tally, trace, converged = descend(
        InMemory(problem), centres, np.ones(10), 5.0, max_iter=50, tol=0.0, report=quiet
    )
    assert converged
    assert (np.diff(trace) <= 1e-9 * np.abs(trace[:-1])).all()
    size = len(tally.counts)
    assert trace[-1] == pytest.approx(objective(problem, tally.all_labels, size, 5.0))


def test_the_bound_is_below_every_plan_at_its_centres(problem):
    rng = np.random.default_rng(2)
    tally, _, _ = descend(
        InMemory(problem), problem.natural[:8], np.ones(8), 5.0, max_iter=50, tol=0.0, report=quiet
    )
    parts = InMemory(problem, 1_000_000)
    labels = SiloStore.of(parts, problem.natural).by_batch(tally.all_labels)
    value = bound(parts, tally.centres, labels, tally.counts, 5.0)
    costs = problem.costs(tally.centres)
    for trial in range(20):
        plan = tally.all_labels.copy()
        for rows in problem.silos[: 3 * trial]:
            plan[rows] = rng.permutation(len(tally.counts))[: rows.stop - rows.start]
        roots = np.sqrt(np.bincount(plan)).sum()
        assert value <= costs[np.arange(problem.n), plan].sum() + 5.0 * roots + 1e-9
    assert value >= 0.9 * tally.objective(problem.family, 5.0)


def test_components_can_be_taken_out_of_parts(problem):
    parts = InMemory(problem, 1_000_000)
    store = SiloStore.of(parts, problem.natural)
    rows = np.sort(np.random.default_rng(3).permutation(problem.n)[:20])
    some = store.take(rows)
    np.testing.assert_array_equal(some.natural, problem.natural[rows])
    assert (np.diff(some.silo) == (np.diff(problem.silo[rows]) > 0)).all()
    kept = [np.flatnonzero(own) for own in store.by_batch(np.isin(np.arange(problem.n), rows))]
    alike = sweep(InMemory(some), Priced(problem.natural[:5], np.zeros(5)))
    streamed = sweep(SelectedRows(parts, kept), Priced(problem.natural[:5], np.zeros(5)))
    np.testing.assert_array_equal(alike.all_labels, streamed.all_labels)
    assert (tangents(np.array([1, 4]), 2.0) == [1.0, 0.5]).all()


# The default -------------------------------------------------------------------------------------


def test_a_sketch_finds_what_the_whole_path_would(many):
    silos, truth, fusion = many
    assert fusion.path.n_components[0] < len(truth)
    assert fusion.n_components == len(np.unique(truth))
    labels = np.concatenate(fusion.labels)
    assert adjusted_rand_score(labels, truth) == 1.0
    natural = np.concatenate([silo.natural for silo in silos])
    for g, found in enumerate(fusion.posterior.natural):
        np.testing.assert_allclose(found, natural[labels == g].mean(axis=0), rtol=1e-9)
    assert fusion.lower_bound <= fusion.objective
    assert (np.diff(fusion.trace) <= 1e-9 * abs(fusion.trace[0])).all()


@pytest.mark.slow
def test_the_order_of_silos_does_not_matter(many):
    silos, _, there = many
    back = kf.fuse(silos[::-1])
    for own, other in zip(there.labels, back.labels[::-1], strict=True):
        matched = adjusted_rand_score(own, other)
        assert matched == 1.0
    assert there.objective == pytest.approx(back.objective, rel=1e-9)


def test_what_the_sketch_did_not_see_is_found():
    silos, truth = many_silos(1_000, 6)
    family, odd = silos[0].family, (111, 411, 711)  # of a thousand silos have what no other has
    for j in odd:
        extra = family.natural([[40.0, -40.0, 0.0]], [100.0], [100.0 * np.eye(3)], [103.0])
        own = silos[j]
        counts = np.append(own.counts, 100.0)
        silos[j] = kf.Posterior(
            family, np.concatenate([own.natural, extra]), name=own.name, counts=counts
        )
    fusion = kf.fuse(silos)
    assert fusion.n_components == len(np.unique(truth)) + 1
    assert len({int(fusion.labels[j][-1]) for j in odd}) == 1


@pytest.mark.slow
def test_a_known_size_and_a_known_penalty(many):
    silos, truth, free = many
    size = len(np.unique(truth))
    assert kf.fuse(silos, n_components=size).n_components == size
    given = kf.fuse(silos, method=kf.Penalised(free.penalty))
    assert given.penalty == free.penalty
    assert adjusted_rand_score(np.concatenate(given.labels), truth) == 1.0


def test_the_path_of_a_sketch_says_so(many, tmp_path):
    silos, truth, fusion = many
    assert fusion.path.n_components[0] < len(truth)
    with pytest.raises(kf.KLFusionError, match="sample"):
        fusion.at(n_components=3)
    kf.save(tmp_path / "f.safetensors", fusion)
    assert kf.load(tmp_path / "f.safetensors").path.rows is None
    fusion.report(str(tmp_path / "f.html"))
    fusion.add(silos[0], name="one more")


def test_many_silos_of_one_component_each():
    rng = np.random.default_rng(9)
    family = kf.families.Gamma(dim=2)
    truth = rng.integers(0, 5, size=2_000)
    rates = np.exp([[0.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 2.0], [4.0, 4.0]])[truth]
    rates *= np.exp(0.05 * rng.normal(size=rates.shape))
    natural = family.natural(shape=1.0 + 200.0 * rates, rate=np.full(rates.shape, 200.0))
    silos = [kf.Posterior(family, own[None], name=f"silo-{j}") for j, own in enumerate(natural)]
    fusion = kf.fuse(silos)
    assert fusion.n_components == 5
    assert adjusted_rand_score(np.concatenate(fusion.labels), truth) == 1.0


@pytest.mark.slow
def test_a_size_larger_than_half_a_sketch_is_found_without_one(many):
    assert kf.fuse(many[0], n_components=700).n_components == 700
