"""What every method must do whatever the family: invariances, certificates, recovery."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

import klfusion as kf
from klfusion.methods import Auto, Binary, Homogeneous, Relaxed
from tests.helpers.loops import for_each
from tests.helpers.silos import normal_wishart_silos, rate_silos

MAKERS = [rate_silos, normal_wishart_silos]
METHODS = ["auto", "binary", "relaxed"]


def configured(name, penalty=None, n_init=2):
    if penalty is None:
        return {"auto": Auto, "binary": Binary, "relaxed": Relaxed}[name](n_init=n_init)
    if name == "auto":
        return kf.Penalised(penalty, n_init=n_init)
    return {"binary": Binary, "relaxed": Relaxed}[name](penalty=penalty, n_init=n_init)


def same_fusion(first: kf.Fusion, second: kf.Fusion, silo_order: list[int]) -> None:
    """The same partition and numbers, up to the numbering of global components."""
    assert first.n_components == second.n_components
    np.testing.assert_allclose(first.objective, second.objective, rtol=1e-12)
    np.testing.assert_allclose(first.penalty, second.penalty, rtol=1e-12)
    np.testing.assert_allclose(first.trace, second.trace, rtol=1e-12)
    a = np.concatenate([first.labels[j] for j in silo_order])
    b = np.concatenate(second.labels)
    assert adjusted_rand_score(a, b) == 1.0
    renumber = np.full(first.n_components, -1)
    renumber[b] = a
    np.testing.assert_allclose(
        first.posterior.natural[renumber], second.posterior.natural, rtol=1e-12
    )


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("method", METHODS)
class TestInvariance:
    def test_order_of_silos_does_not_matter(self, make, method):
        silos, _ = make()
        order = np.random.default_rng(1).permutation(len(silos)).tolist()
        same_fusion(
            kf.fuse(silos, method=method),
            kf.fuse([silos[j] for j in order], method=method),
            order,
        )

    def test_order_of_components_does_not_matter(self, make, method):
        silos, _ = make()
        rng = np.random.default_rng(2)
        orders = [rng.permutation(s.n_components) for s in silos]
        shuffled = [
            replace(s, natural=s.natural[o], counts=s.counts[o])
            for s, o in zip(silos, orders, strict=True)
        ]
        first, second = kf.fuse(silos, method=method), kf.fuse(shuffled, method=method)
        unshuffled = replace(
            first, labels=tuple(x[o] for x, o in zip(first.labels, orders, strict=True))
        )
        same_fusion(unshuffled, second, list(range(len(silos))))

    def test_names_do_not_matter(self, make, method):
        silos, _ = make()
        renamed = [replace(s, name=f"other-{7 * i % 11}") for i, s in enumerate(silos)]
        same_fusion(
            kf.fuse(silos, method=method),
            kf.fuse(renamed, method=method),
            list(range(len(silos))),
        )

    def test_one_silo_returns_itself(self, make, method):
        silo = make()[0][0]
        fusion = kf.fuse([silo], method=method)
        np.testing.assert_array_equal(fusion.posterior.natural, silo.natural)
        np.testing.assert_array_equal(fusion.labels[0], np.arange(silo.n_components))
        assert fusion.status is kf.Status.SINGLE_SILO

    def test_equal_states_give_equal_results(self, make, method):
        silos, _ = make()
        first = kf.fuse(silos, method=method, random_state=3)
        second = kf.fuse(silos, method=method, random_state=3)
        np.testing.assert_array_equal(first.posterior.natural, second.posterior.natural)
        np.testing.assert_array_equal(first.trace, second.trace)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("method", ["auto", "binary", "homogeneous"])
@for_each("copies", [2, 5])
def test_copies_of_a_silo_return_it_once(make, method, copies):
    silo = make()[0][0]
    rng = np.random.default_rng(0)
    orders = [rng.permutation(silo.n_components) for _ in range(copies)]
    orders[0] = np.arange(silo.n_components)
    fusion = kf.fuse(
        {
            f"copy-{i}": replace(silo, natural=silo.natural[o], counts=None)
            for i, o in enumerate(orders)
        },
        method=method,
        pooling="average",
    )
    assert fusion.n_components == silo.n_components
    np.testing.assert_allclose(fusion.posterior.natural, silo.natural, rtol=1e-12)
    for labels, order in zip(fusion.labels, orders, strict=True):
        np.testing.assert_array_equal(labels, order)


@pytest.mark.parametrize("make", MAKERS)
@for_each("seed", range(4))
@for_each("size", [{}, {"n_components": 6}, {"penalty": 5.0}])
@pytest.mark.parametrize("method", METHODS)
def test_certificates_and_structure(make, seed, size, method):
    silos, _ = make(seed=seed)
    fusion = kf.fuse(
        silos, method=configured(method, size.get("penalty")), n_components=size.get("n_components")
    )
    assert fusion.lower_bound <= fusion.objective
    assert 0.0 <= fusion.gap <= 1.0
    assert (np.diff(fusion.trace) <= 1e-9 * abs(fusion.trace[0])).all()
    np.testing.assert_allclose(fusion.trace[-1], fusion.objective, rtol=1e-9)
    used = np.unique(np.concatenate(fusion.labels))
    np.testing.assert_array_equal(used, np.arange(fusion.n_components))
    assert (fusion.contributions <= 1).all()  # components of a silo stay apart
    assert fusion.posterior.family.in_domain(fusion.posterior.natural)
    assert fusion.status is kf.Status.CONVERGED
    if "n_components" in size:
        assert fusion.n_components == 6
        assert fusion.penalty == 0.0


@pytest.mark.parametrize("make", MAKERS)
@for_each("seed", range(6))
def test_separated_components_are_found_or_their_doubt_is_stated(make, seed):
    silos, truth = make(seed=seed)
    fusion = kf.fuse(silos)
    true = np.concatenate(truth)
    same = adjusted_rand_score(true, np.concatenate(fusion.labels)) == 1.0
    least = min(own.min() for own in fusion.probability)
    assert least > 0.75 if same else least < 0.9


def test_objective_is_the_papers_at_a_given_penalty():
    silos, _ = normal_wishart_silos()
    fusion = kf.fuse(silos, method=Binary(penalty=30.0), pooling="average")
    family = fusion.posterior.family
    total = sum(
        family.kl(fusion.posterior.natural[g : g + 1], silo.natural[i : i + 1]).item()
        for silo, labels in zip(silos, fusion.labels, strict=True)
        for i, g in enumerate(labels)
    )
    penalty = 30.0 * np.sqrt(fusion.contributions.sum(axis=0)).sum()
    np.testing.assert_allclose(fusion.objective, total + penalty, rtol=1e-9)
    np.testing.assert_allclose(sum(d.sum() for d in fusion.divergences), total, rtol=1e-9)


def test_fused_parameters_are_averages_of_the_matched():
    silos, _ = rate_silos()
    fusion = kf.fuse(silos)
    stacked = np.concatenate([s.natural for s in silos])
    labels = np.concatenate(fusion.labels)
    for g in range(fusion.n_components):
        np.testing.assert_allclose(
            fusion.posterior.natural[g], stacked[labels == g].mean(axis=0), rtol=1e-12
        )
    assert fusion.sources(0) == [
        (s.name, int(i))
        for s, x in zip(silos, fusion.labels, strict=True)
        for i in np.flatnonzero(x == 0)
    ]


def test_weights_weigh():
    silos, _ = rate_silos(n_silos=2, seed=1)
    heavy = kf.fuse(silos, weights={"silo-0": 9.0, "silo-1": 1.0})
    shared = [g for g in range(heavy.n_components) if heavy.contributions[:, g].all()]
    assert shared
    a = silos[0].natural[np.flatnonzero(heavy.labels[0] == shared[0])[0]]
    b = silos[1].natural[np.flatnonzero(heavy.labels[1] == shared[0])[0]]
    np.testing.assert_allclose(heavy.posterior.natural[shared[0]], 0.9 * a + 0.1 * b, rtol=1e-12)
    np.testing.assert_allclose(
        kf.fuse(silos, weights=[2.0, 2.0]).posterior.natural,
        kf.fuse(silos).posterior.natural,
        rtol=1e-12,
    )


def test_larger_penalties_give_smaller_models():
    silos, _ = normal_wishart_silos(n_silos=12, n_true=6, noise=0.5)
    sizes = [
        kf.fuse(silos, method=kf.Penalised(p)).n_components for p in (1e-3, 1.0, 30.0, 1e3, 1e6)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_a_configuration_object_is_the_same_as_its_name():
    silos, _ = rate_silos()
    for config in (Auto(), Binary(n_init=2), Relaxed(scale=0.2)):
        by_object = kf.fuse(silos, method=config)
        assert repr(config) == by_object.method
    by_name = kf.fuse(silos, method="binary")
    assert kf.fuse(silos, method=Binary()).objective == by_name.objective
    first = silos[0]
    copies = {"a": first, "b": replace(first, natural=first.natural * 1.01)}
    plain = kf.fuse(copies, method=Homogeneous(leave_one_out=False))
    assert plain.objective >= kf.fuse(copies, method="homogeneous").objective - 1e-12


def test_exact_is_never_worse_than_auto_by_much_and_never_below_the_bound():
    for seed in range(3):
        silos, _ = normal_wishart_silos(seed=seed, noise=1.0)
        exact = kf.fuse(silos, method=Binary(penalty=20.0, n_init=10))
        assert exact.objective >= exact.lower_bound
        assert exact.gap < 0.2


def test_components_without_data_are_left_out():
    silos, truth = normal_wishart_silos()
    family = silos[0].family
    empty = family.natural(mean=np.zeros((1, 3)), kappa=[1.0], scale_inv=np.eye(3)[None], dof=[3.0])
    padded = [
        replace(s, natural=np.concatenate([s.natural, empty]), counts=np.append(s.counts, 0.0))
        for s in silos
    ]
    fusion = kf.fuse(padded)
    assert all(labels[-1] == -1 for labels in fusion.labels)
    assert all(np.isnan(d[-1]) for d in fusion.divergences)
    assert fusion.n_components == len(np.unique(np.concatenate(truth)))


def test_small_components_that_matter_to_their_silo_are_kept():
    family = kf.families.NormalWishart(30)
    rng = np.random.default_rng(0)
    silos = []
    for j in range(4):
        counts = np.array([80.0, 20.0])  # 20 observations in 30 dimensions, a fifth of the silo
        natural = family.natural(
            mean=np.stack([np.zeros(30), np.full(30, 5.0)]) + rng.normal(scale=0.1, size=(2, 30)),
            kappa=counts,
            scale_inv=np.stack([np.eye(30) * (30 + n) for n in counts]),
            dof=30 + counts,
        )
        silos.append(kf.Posterior(family, natural, name=str(j), counts=counts))
    fusion = kf.fuse(silos)
    assert fusion.n_unmatched == 0
    assert fusion.n_components == 2


def test_no_silo_is_left_out_whole():
    silos, _ = normal_wishart_silos()
    poor = replace(silos[0], counts=np.zeros(silos[0].n_components))
    assert (kf.fuse([poor, *silos[1:]]).labels[0] >= 0).any()


def test_a_pandas_series_is_a_mapping():
    class Series:  # what matters of one
        def __init__(self, values):
            self.values = values

        def items(self):
            return self.values.items()

    silos, _ = rate_silos(n_silos=2)
    fusion = kf.fuse(Series({"b": silos[0], "a": silos[1]}), weights=Series({"a": 1.0, "b": 3.0}))
    assert fusion.silo_names == ("b", "a")
    assert fusion.settings.weights == (3.0, 1.0)


def test_a_fusion_can_be_fused_again():
    silos, _ = rate_silos()
    again = kf.fuse({"first": kf.fuse(silos[:3]), "second": kf.fuse(silos[3:])})
    assert again.n_components == kf.fuse(silos).n_components


def test_counts_add_up():
    silos, _ = rate_silos()
    fusion = kf.fuse(silos)
    assert fusion.posterior.counts.sum() == sum(s.counts.sum() for s in silos)
    np.testing.assert_allclose(fusion.posterior.counts, 100.0 * fusion.contributions.sum(axis=0))


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    seed=st.integers(0, 2**32 - 1),
    method=st.sampled_from(METHODS),
    penalty=st.sampled_from([None, 0.5, 50.0]),
)
def test_any_silos_give_a_valid_fusion(sizes, seed, method, penalty):
    rng = np.random.default_rng(seed)
    family = kf.families.Dirichlet(4)
    silos = [
        kf.Posterior(family, rng.gamma(1.0, 20.0, size=(n, 4)) + 0.1, name=str(j))
        for j, n in enumerate(sizes)
    ]
    fusion = kf.fuse(silos, method=configured(method, penalty, n_init=1))
    assert max(sizes) <= fusion.n_components <= sum(sizes)
    assert fusion.lower_bound <= fusion.objective
    assert (np.diff(fusion.trace) <= 1e-9 * abs(fusion.trace[0])).all()
    assert (fusion.contributions <= 1).all()


def test_copies_have_no_gap_and_tell_what_was_put_together():
    rates = kf.families.Gamma()
    natural = rates.natural(shape=[30.0, 900.0, 31.0], rate=[10.0, 10.0, 10.0])
    silos = [kf.Posterior(rates, natural, name=name, counts=[10.0] * 3) for name in "ab"]
    apart = kf.fuse(silos)
    assert apart.gap == 0.0
    assert apart.n_merged_within_silos == 0
    fusion = kf.fuse(silos, method=kf.MaxLoss(within_silos=True), n_components=2)
    assert fusion.n_merged_within_silos == 2  # one of each silo
    assert "2 merged within silos" in repr(fusion)


def test_a_size_that_equal_components_cannot_have_is_a_warning():
    (first, *_), _ = rate_silos(n_silos=2)
    copies = [replace(first, name=name) for name in "ab"]
    with pytest.warns(UserWarning, match=r"expected 5 components, as asked for, got 4: local"):
        assert kf.fuse(copies, n_components=5).n_components == 4
