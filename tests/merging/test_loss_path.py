"""What merges lose: the estimate, sizes by it, and components of one silo that merge."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import KLFusionError
from klfusion.merging import loss_path
from klfusion.merging.agglomeration import penalty_path
from klfusion.merging.loss_path import least_loss_path
from klfusion.objective.problem import FusionProblem

N_WORDS = 60


def topic_silos(sizes=(5_000, 20_000, 8_000), seed=0):
    """Three silos, two topics each; one of the topics is the same in all."""
    rng = np.random.default_rng(seed)
    words = rng.dirichlet(np.full(N_WORDS, 0.3), size=4)
    family = kf.families.Dirichlet(N_WORDS)
    out = []
    for j, size in enumerate(sizes):
        counts = np.stack([rng.multinomial(size, words[k]) for k in (0, j + 1)])
        natural = 0.1 + counts
        prior = np.full(N_WORDS, 0.1)
        out.append(kf.Posterior(family, natural, f"s{j}", prior, counts.sum(axis=1)))
    return out


def test_losses_are_the_weighted_divergences_of_the_predictions_less_chance(monkeypatch):
    silos = topic_silos()
    corrected = kf.fuse(silos).path.losses
    told = kf.families.Dirichlet.n_parameters
    monkeypatch.setattr(
        kf.families.Dirichlet, "n_parameters", lambda _, natural: 0.0 * natural[:, 0]
    )
    fusion = kf.fuse(silos)
    path = fusion.path
    seen = np.concatenate([s.natural - 0.1 for s in silos]) + 1e-3
    q = seen / seen.sum(axis=1, keepdims=True)
    n = np.concatenate([s.counts for s in silos])
    # The path's rows are in an order of its own, so compare the whole: all in the last clusters.
    groups = fusion.labels
    labels = np.concatenate(groups)
    total = 0.0
    for g in range(fusion.n_components):
        own = labels == g
        centre = n[own] @ q[own] / n[own].sum()
        total += float(n[own] @ (q[own] * np.log(q[own] / centre)).sum(axis=1))
    step = int(np.flatnonzero(path.n_components == fusion.n_components)[0])
    assert path.losses[step] == pytest.approx(total / n.sum(), rel=2e-3)
    assert path.losses[0] == 0.0
    assert (np.diff(path.losses) >= 0).all()
    # The topic that all have differs by chance alone: nearly nothing is lost.
    assert corrected[step] < 0.2 * path.losses[step]
    # What is different loses the same but for that.
    chance = 0.5 * told(silos[0].family, np.concatenate([s.natural for s in silos])) / n.sum()
    assert (np.diff(corrected) <= np.diff(path.losses)).all()
    assert corrected[-1] >= path.losses[-1] - len(path.merges) * chance.max()


def test_what_is_the_same_loses_nothing_in_many_dimensions():
    rng = np.random.default_rng(0)
    dim, n = 20, 400
    family = kf.families.NormalWishart(dim)
    prior = family.natural([np.zeros(dim)], [0.01], [np.eye(dim)], [dim])[0]
    silos = []
    for j in range(4):
        parts = [rng.normal(size=(n, dim)) + 15.0 * k for k in range(2)]
        natural = [_posterior(family, prior, x) for x in parts]
        silos.append(kf.Posterior(family, np.stack(natural), f"s{j}", prior, np.full(2, float(n))))
    fusion = kf.fuse(silos, method=kf.MaxLoss(0.02))
    assert fusion.n_components == 2
    assert fusion.path.losses[-1] < 0.02


def _posterior(family, prior, x):
    """What observations add to a Normal-Wishart prior."""
    start, n = family.params(prior[None]), len(x)
    mean = x.mean(axis=0)
    kappa = start["kappa"] + n
    centre = (start["kappa"][:, None] * start["mean"] + n * mean) / kappa[:, None]
    scatter = start["scale_inv"] + (x - mean).T @ (x - mean)
    shift = mean - start["mean"][0]
    scatter = scatter + start["kappa"][0] * n / kappa[0] * np.outer(shift, shift)
    return family.natural(centre, kappa, scatter, start["dof"] + n)[0]


def test_max_loss_gives_the_smallest_size_within_it():
    silos = topic_silos()
    sizes = [kf.fuse(silos, method=kf.MaxLoss(x)).n_components for x in (0.0, 0.01, 0.5, 10.0)]
    assert sizes[0] >= 4  # a merge that loses less than chance explains loses nothing
    assert sizes[1] == 4
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] >= 2  # a silo's own topics stay apart


def test_within_a_silo():
    silos = topic_silos()
    one = kf.fuse(silos, method=kf.MaxLoss(10.0, within_silos=True), pooling="average")
    assert one.n_components == 1
    assert one.lower_bound <= one.objective
    assert one.contributions.tolist() == [[2], [2], [2]]
    assert one.posterior.natural[0] == pytest.approx(
        np.concatenate([s.natural for s in silos]).mean(axis=0)
    )
    assert (
        kf.fuse(silos, method=kf.MaxLoss(within_silos=True)).n_components == 4
    )  # loses at most 0.02
    assert kf.fuse(silos, method=kf.MaxLoss(within_silos=True), n_components=1).n_components == 1
    by_loss = kf.fuse(silos, method=kf.MaxLoss(within_silos=True), n_components=3).path
    assert (by_loss.losses <= by_loss.divergences).all()  # these count chance


def test_mixtures_too():
    family = kf.families.NormalWishart(1)
    shift = 2.0  # two deviations: pooling two halves loses log(sqrt(2)) or so
    means = [[0.0], [shift]]
    natural = family.natural(means, [1e4, 1e4], np.full((2, 1, 1), 1e4), [1e4, 1e4])
    silo = kf.Posterior(family, natural, "a", counts=[1e4, 1e4])
    other = kf.Posterior(family, natural, "b", counts=[1e4, 1e4])
    fusion = kf.fuse([silo, other], method=kf.MaxLoss(within_silos=True), n_components=1)
    variance = 1.0 + shift**2 / 4
    assert fusion.path.losses[-1] == pytest.approx(0.5 * np.log(variance), rel=1e-3)


def test_the_order_of_silos_changes_nothing():
    silos = topic_silos()
    for options in (
        {"method": kf.MaxLoss(0.01)},
        {"method": kf.MaxLoss(within_silos=True), "n_components": 3},
    ):
        forth, back = kf.fuse(silos, **options), kf.fuse(silos[::-1], **options)
        assert sorted(map(tuple, forth.posterior.natural)) == sorted(
            map(tuple, back.posterior.natural)
        )


def test_losses_are_stored(tmp_path):
    fusion = kf.fuse(topic_silos())
    kf.save(tmp_path / "f.safetensors", fusion)
    np.testing.assert_array_equal(
        kf.load(tmp_path / "f.safetensors").path.losses, fusion.path.losses
    )


def test_without_observations_there_is_nothing_to_count():
    family = kf.families.DiagonalNormal(2)
    rng = np.random.default_rng(0)
    silos = [
        kf.Posterior(family, family.natural(rng.normal(size=(2, 2)), np.ones((2, 2))), n)
        for n in "ab"
    ]
    assert kf.fuse(silos).path.losses is None
    with pytest.raises(KLFusionError, match="how many observations"):
        kf.fuse(silos, method=kf.MaxLoss(0.1))
    with pytest.raises(KLFusionError, match="within_silos: expected posteriors that say"):
        kf.fuse(silos, method=kf.MaxLoss(within_silos=True))


def test_errors():
    for loss in (-1.0, "much"):
        with pytest.raises(KLFusionError, match="number >= 0"):
            kf.MaxLoss(loss)
    with pytest.raises(KLFusionError, match="expected no n_components, for the loss sets the size"):
        kf.fuse(topic_silos(), method=kf.MaxLoss(0.1), n_components=4)
    with pytest.raises(KLFusionError, match="expected no n_components, for the penalty sets"):
        kf.fuse(topic_silos(), method=kf.Penalised(4.0), n_components=4)


def test_topics_of_a_size_are_those_that_lose_least():
    rng = np.random.default_rng(1)
    words = rng.dirichlet(np.full(N_WORDS, 0.3), size=6)
    family, silos = kf.families.Dirichlet(N_WORDS), []
    # Each silo has two topics of its own with many words, and two with few.
    for j, own in enumerate(([0, 1, 2, 3], [0, 1, 4, 5])):
        counts = np.array(
            [
                rng.multinomial(n, words[k])
                for n, k in zip([9_000, 8_000, 300, 200], own, strict=True)
            ]
        )
        silos.append(kf.Posterior(family, 0.1 + counts, f"s{j}", counts=counts.sum(axis=1)))
    assert kf.fuse(silos).n_components == 6
    five = kf.fuse(silos, n_components=5)
    labels = [own.tolist() for own in five.labels]
    # What is the same stays together; of the others two with few words are put together.
    assert labels[0][:2] == labels[1][:2]
    assert len(set(labels[0][2:]) & set(labels[1][2:])) == 1
    assert five.path.losses[five.path.n_components == 5] < 0.05
    assert five.lower_bound <= five.objective


def test_one_silo_may_merge_its_own():
    silo = topic_silos()[0]
    assert kf.fuse([silo], method=kf.MaxLoss(within_silos=True), n_components=1).n_components == 1
    assert kf.fuse([silo], method=kf.MaxLoss(10.0, within_silos=True)).n_components == 1
    assert kf.fuse([silo], method=kf.MaxLoss(within_silos=True)).n_components == 2


def test_topics_of_next_to_no_words_are_left_out():
    silos = topic_silos()
    family, first = silos[0].family, silos[0]
    few = 0.1 + np.eye(1, N_WORDS, 7)
    natural, counts = np.vstack([first.natural, few]), np.append(first.counts, 1.0)
    more = kf.Posterior(family, natural, "s0", first.prior, counts)
    fusion = kf.fuse([more, *silos[1:]])
    assert fusion.labels[0].tolist()[2] == -1
    assert fusion.n_components == kf.fuse(silos).n_components


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_path_of_losses_is_that_of_all_pairs_at_every_step(seed, within):
    rng, n_silos, each = np.random.default_rng(seed), 4, 3
    words = rng.dirichlet(np.full(N_WORDS, 0.3), size=each)
    own = [rng.dirichlet(300 * words[k] + 1e-3) for _ in range(n_silos) for k in range(each)]
    natural = 0.1 + np.array([rng.multinomial(rng.integers(200, 9_000), p) for p in own])
    family = kf.families.Dirichlet(N_WORDS)
    silo = np.repeat(np.arange(n_silos), each)
    problem = FusionProblem(family, natural, silo, np.ones(len(natural)))
    observed, told = problem.per_observation(), problem.chance_per_observation()
    path = least_loss_path(problem, observed, lambda *_: None, within_silos=within)
    groups, losses = [([i], told[i]) for i in range(len(natural))], [0.0]

    def gap(rows):
        weights = observed.weights[rows]
        centre = weights @ observed.natural[rows] / weights.sum()
        members = weights @ observed.log_partition[rows]
        return members - weights.sum() * family.log_partition(centre[None])[0]

    while True:
        options = [
            (gap(a + b) - gap(a) - gap(b) - min(chance_a, chance_b), i, j)
            for i, (a, chance_a) in enumerate(groups)
            for j, (b, chance_b) in enumerate(groups[:i])
            if within or not set(silo[a]) & set(silo[b])
        ]
        if not options:
            break
        loss, i, j = min(options)
        losses.append(losses[-1] + loss)
        (a, chance_a), (b, chance_b) = groups[i], groups[j]
        groups = [g for k, g in enumerate(groups) if k not in (i, j)]
        groups.append((a + b, max(chance_a, chance_b)))
    np.testing.assert_allclose(path.losses, np.maximum.accumulate(losses), atol=1e-6)


@pytest.mark.parametrize("entries", [1, 1 << 17])
def test_increases_along_a_path_are_those_of_its_merges(entries, monkeypatch):
    monkeypatch.setattr(loss_path, "CACHED_ENTRIES", entries)
    rng, gammas = np.random.default_rng(0), kf.families.Gamma()
    natural = gammas.natural(rng.uniform(2.0, 90.0, size=12), np.full(12, 3.0))
    problem = FusionProblem(gammas, natural, np.arange(12), rng.uniform(0.5, 2.0, size=12))
    path = penalty_path(problem, lambda *_: None)
    found = loss_path._increases(problem, path.merges)
    np.testing.assert_allclose(found, np.diff(path.divergences), rtol=1e-9)
