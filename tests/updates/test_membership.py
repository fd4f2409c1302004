"""Silos come and go, and sizes are picked, without a trace of what is not there any more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from klfusion.errors import KLFusionError
from klfusion.io import storage
from klfusion.methods import method_from_config
from tests.golden.makers import networks
from tests.helpers.silos import normal_wishart_silos, rate_silos


def same_model(one: kf.Fusion, two: kf.Fusion) -> None:
    """The same global components, perhaps in another order, and the same matching."""
    order = match(one, two)
    np.testing.assert_allclose(
        one.posterior.natural, two.posterior.natural[order], rtol=1e-12, atol=1e-12
    )
    for a, b, u, v in zip(one.labels, two.labels, one.divergences, two.divergences, strict=True):
        np.testing.assert_array_equal(np.where(a >= 0, order[a], -1), b)
        np.testing.assert_allclose(u, v, rtol=1e-6, atol=1e-9)
    if one.posterior.counts is not None:
        np.testing.assert_allclose(one.posterior.counts, two.posterior.counts[order])


def match(one: kf.Fusion, two: kf.Fusion) -> np.ndarray:
    a, b = np.concatenate(one.labels), np.concatenate(two.labels)
    return np.array([b[a == g][0] for g in range(one.n_components)])


@pytest.mark.parametrize("make", [rate_silos, normal_wishart_silos])
@pytest.mark.parametrize("pooling", ["average", "product", "random-effects", "hierarchical"])
def test_removal_is_exact(make, pooling):
    silos, _ = make()
    family = silos[0].family
    if pooling != "average" and family.name == "gamma" and pooling != "product":
        pytest.skip("rates have no location")
    prior = 0.01 * silos[0].natural.min(axis=0) if family.name == "gamma" else weak_prior(family)
    silos = [replace(s, prior=prior) for s in silos]
    fusion = kf.fuse(silos, pooling=pooling)
    for gone in silos[:3]:
        others = [s for s in silos if s is not gone]
        never_saw = kf.fuse(others, pooling=pooling)
        removed = fusion.remove(gone.name)
        same_model(removed, never_saw)
        assert gone.name not in removed.silo_names
        assert gone.name not in removed.posterior.provenance["silos"]
        again = fusion.remove(gone.name, rematch=True)
        same_model(again, never_saw)
        assert again.objective == pytest.approx(never_saw.objective)


def weak_prior(family):
    dim = family.dim
    return family.natural(np.zeros((1, dim)), [0.1], 0.1 * np.eye(dim)[None], [dim + 0.1])[0]


def test_adding_what_was_removed_changes_nothing():
    silos, _ = normal_wishart_silos()
    fusion = kf.fuse(silos)
    last = silos[-1]
    back = fusion.remove(last.name).add(last)
    same_model(back, fusion)
    assert back.objective == pytest.approx(fusion.objective)
    assert back.lower_bound <= back.objective
    history = back.provenance["history"]
    assert [(h["action"], h["silo"]) for h in history] == [("remove", "silo-7"), ("add", "silo-7")]


def test_newcomers_without_a_name_are_numbered():
    rng = np.random.default_rng(0)
    models = [
        BayesianGaussianMixture(n_components=2, random_state=0).fit(
            np.concatenate([rng.normal(size=(60, 1)), 9.0 + rng.normal(size=(60, 1))])
        )
        for _ in range(4)
    ]
    fusion = kf.fuse(models[:2]).add(models[2]).remove("silo-1").add(models[3])
    assert fusion.silo_names == ("silo-2", "silo-3", "silo-4")


def test_one_by_one_is_as_good_as_all_at_once():
    silos, truth = normal_wishart_silos(n_silos=16, seed=3)
    fusion = kf.fuse(silos[:8])
    for silo in silos[8:]:
        fusion = fusion.add(silo)
    same_model(fusion, kf.fuse(silos))
    assert fusion.n_components == len(np.unique(np.concatenate(truth)))


def test_components_nobody_had_are_opened_and_leave_again():
    silos, _ = rate_silos()
    family = silos[0].family
    new = kf.Posterior(
        family,
        np.vstack([silos[0].natural[:1], family.natural(np.full((1, 3), 9e5), np.ones((1, 3)))]),
        name="new",
        counts=[100.0, 100.0],
    )
    fusion = kf.fuse(silos)
    grown = fusion.add(new)
    assert grown.n_components == fusion.n_components + 1
    assert grown.sources(fusion.n_components) == [("new", 1)]
    same_model(grown.remove("new"), fusion)


def test_a_given_size_grows_for_a_larger_silo_only():
    family = kf.families.Gamma()

    def silo(name, *shapes):
        return kf.Posterior(family, family.natural(shapes, [10.0] * len(shapes)), name=name)

    fusion = kf.fuse([silo("a", 30, 900), silo("b", 31, 905)], n_components=2)
    assert fusion.add(silo("c", 30, 5000)).n_components == 2
    assert fusion.add(silo("c", 30, 900, 5000)).n_components == 3


def test_splits_and_empty_components_of_a_newcomer():
    silos, _ = normal_wishart_silos(n_silos=10)
    family = silos[0].family
    prior = weak_prior(family)
    silos = [replace(s, prior=prior) for s in silos]
    p = silos[-1].params()
    half = family.natural(
        p["mean"][:1], p["kappa"][:1] / 2, p["scale_inv"][:1] / 2, p["dof"][:1] / 2 + 2
    )
    split = replace(
        silos[-1],
        natural=np.vstack([half, half, silos[-1].natural[1:], prior]),
        counts=[*[silos[-1].counts[0] / 2] * 2, *silos[-1].counts[1:], 0.0],
    )
    fusion = kf.fuse(silos[:-1]).add(split)
    labels = fusion.labels[-1]
    assert labels[0] == labels[1]
    assert labels[-1] == -1
    assert fusion.n_components == kf.fuse(silos).n_components
    same_model(fusion.remove(split.name), kf.fuse(silos[:-1]))


def test_a_rough_gap_says_so():
    fusion = kf.fuse(rate_silos()[0])
    for changed in (fusion.remove("silo-2"), fusion.at(n_components=fusion.n_components + 1)):
        assert "to a rough bound, kept)" in repr(changed)
        assert "to a rough bound" in changed._repr_html_()
    assert "rough" not in repr(fusion)


def test_weights_and_names():
    silos, _ = rate_silos()
    weights = {s.name: 1.0 + j for j, s in enumerate(silos)}
    fusion = kf.fuse(silos, weights=weights)
    gone = fusion.remove("silo-2").add(silos[2], name="again", weight=3.0)
    assert gone.silo_names == ("silo-0", "silo-1", "silo-3", "silo-4", "silo-5", "again")
    assert gone.settings.weights == (1.0, 2.0, 4.0, 5.0, 6.0, 3.0)
    one, two = (np.sort(f.posterior.natural, axis=0) for f in (gone, fusion))
    np.testing.assert_allclose(one, two)
    with pytest.raises(kf.KLFusionError, match="expected a finite weight > 0"):
        fusion.remove("silo-2").add(silos[2], weight=0.0)


def test_words_of_a_silo_that_left_are_gone():
    from klfusion.posteriors.structure import Structure

    def topics(name, *words):
        family = kf.families.Dirichlet(len(words))
        natural = family.natural(np.array([np.arange(1.0, len(words) + 1)]) * 50)
        structure = Structure("topics", info={"vocabulary": list(words)})
        return kf.Posterior(
            family, natural, name=name, prior=np.full(len(words), 0.1), structure=structure
        )

    fusion = kf.fuse([topics("a", "ball", "win"), topics("b", "ball", "secret", "win")])
    assert "secret" in kf.vocabulary.words(fusion.posterior)
    left = fusion.remove("b")
    assert kf.vocabulary.words(left.posterior) == ["ball", "win"]
    assert b"secret" not in storage.dumps(left)


def test_files_keep_what_is_needed(tmp_path):
    silos, _ = normal_wishart_silos()
    fusion = kf.fuse(silos)
    kf.save(tmp_path / "f", fusion)
    loaded = kf.load(tmp_path / "f")
    same_model(loaded.remove("silo-1"), fusion.remove("silo-1"))
    same_model(loaded.at(n_components=6), fusion.at(n_components=6))
    assert kf.fuse(silos, keep_silos=False).silos is None


def test_what_cannot_be_changed_says_why():
    silos, _ = rate_silos()
    fusion = kf.fuse(silos)
    with pytest.raises(kf.KLFusionError, match="expected a silo of"):
        fusion.remove("nobody")
    with pytest.raises(kf.KLFusionError, match="is the only one"):
        kf.fuse(silos[:1]).remove("silo-0")
    with pytest.raises(kf.KLFusionError, match="keep_silos=True"):
        kf.fuse(silos, keep_silos=False).remove("silo-0")
    with pytest.raises(kf.KLFusionError, match="two silos are named"):
        fusion.add(silos[0])
    relaxed = kf.fuse(normal_wishart_silos(noise=1.0)[0], method="relaxed")
    with pytest.raises(kf.KLFusionError, match="do not follow from the labels"):
        relaxed.remove("silo-0")
    assert relaxed.remove("silo-0", rematch=True).n_silos == 7
    spahm = kf.baselines.spahm(normal_wishart_silos()[0])
    assert spahm.remove("silo-0", rematch=True).settings.method == spahm.settings.method
    unknown = replace(spahm.settings, method=method_from_config({"name": "of another library"}))
    with pytest.raises(kf.KLFusionError, match="expected a method of"):
        replace(spahm, settings=unknown).remove("silo-0", rematch=True)


# What a fusion remembers between changes ----------------------------------------------------------


def equal(one: kf.Fusion, two: kf.Fusion) -> None:
    """The same in every number."""
    np.testing.assert_allclose(one.posterior.natural, two.posterior.natural, rtol=1e-13)
    for a, b in zip((*one.labels, *one.divergences), (*two.labels, *two.divergences), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    for name in ("prior", "counts"):
        a, b = getattr(one.posterior, name), getattr(two.posterior, name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-13)
    assert one.silo_names == two.silo_names
    assert [s.name for s in one.silos] == [s.name for s in two.silos]
    assert one.objective == pytest.approx(two.objective, rel=1e-9)
    assert one.lower_bound == pytest.approx(two.lower_bound, rel=1e-9)
    assert one.settings.weights == two.settings.weights
    assert one.settings.certainty == pytest.approx(two.settings.certainty, rel=1e-12)


def reread(fusion: kf.Fusion) -> kf.Fusion:
    """Without what it remembers beside its fields: all that is in a file."""
    return storage.loads(storage.dumps(fusion))


@pytest.mark.parametrize("min_support", [1, 2])
@pytest.mark.parametrize(
    "pooling", ["average", "product", "random-effects", "hierarchical", "robust"]
)
def test_a_chain_of_changes_is_the_same_from_files(pooling, min_support):
    silos, _ = normal_wishart_silos(n_silos=10)
    silos = [replace(s, prior=weak_prior(s.family)) for s in silos]
    fusion = kf.fuse(silos[:7], pooling=pooling, weights=1.0 + np.arange(7))
    remembers = from_files = fusion.with_min_support(min_support)
    for action, subject in [
        ("remove", "silo-2"), ("add", silos[7]), ("add", silos[8]), ("remove", "silo-0"),
        ("add", silos[2]), ("remove", "silo-8"), ("add", silos[9]),
    ]:  # fmt: skip
        remembers = getattr(remembers, action)(subject)
        from_files = getattr(reread(from_files), action)(subject)
        equal(remembers, from_files)
    assert remembers.posterior.prior is not None


def test_splits_and_what_silos_do_not_tell_come_and_go():
    silos, _ = normal_wishart_silos(n_silos=8)
    prior = weak_prior(silos[0].family)
    silos = [replace(s, prior=prior) for s in silos]
    half = replace(
        silos[5], natural=np.vstack([silos[5].natural, prior]), counts=[*silos[5].counts, 0.0]
    )
    untold = replace(silos[6], prior=None, counts=None)
    fusion = kf.fuse(silos[:5])
    for other in (half, untold, silos[7]):
        fusion = fusion.add(other)
        equal(fusion.remove("silo-1"), reread(fusion).remove("silo-1"))
    assert fusion.posterior.prior is None
    assert fusion.posterior.counts is None
    left = fusion.remove("silo-6")
    assert left.posterior.prior is not None
    assert left.posterior.counts is not None
    equal(left, reread(fusion).remove("silo-6"))


def test_a_loud_silo_leaves_nothing_in_the_rounding():
    silos, _ = rate_silos()
    family = silos[0].family
    fusion = kf.fuse(silos)
    loud = kf.Posterior(family, 1e12 * silos[0].natural, name="loud", counts=silos[0].counts)
    same_model(fusion.add(loud).remove("loud"), fusion)


def test_what_is_remembered_is_of_that_fusion_only():
    silos, _ = normal_wishart_silos()
    fusion = kf.fuse(silos)
    fusion.remove("silo-0")
    moved = replace(fusion.posterior, natural=fusion.posterior.natural * 1.01)
    with pytest.raises(kf.KLFusionError, match="do not follow from the labels"):
        replace(fusion, posterior=moved).remove("silo-0")
    with pytest.raises(kf.KLFusionError, match="keep_silos=True"):
        replace(fusion, silos=None).remove("silo-0")


def test_products_of_families_and_networks_are_compared_with_who_is_there():
    product = kf.families.Product(rate=kf.families.Gamma(), share=kf.families.Beta())
    rng = np.random.default_rng(0)

    def silo(name):
        shape, a = rng.uniform(0.9, 1.1, (2, 3)) * [[30, 900, 5000], [10, 100, 400]]
        natural = product.natural(rate={"shape": shape, "rate": [10.0] * 3}, share={"a": a, "b": a})
        return kf.Posterior(product, natural, name=name)

    a, b, c, d = map(silo, "abcd")
    fusion = kf.fuse([a, b, c]).add(d).remove("b")
    assert "certainty" not in fusion.provenance
    same_model(fusion, kf.fuse([a, c, d]))
    assert fusion.objective == pytest.approx(replace(fusion).remove("a").add(a).objective)


def test_newcomers_are_checked_against_everyone():
    from klfusion.posteriors.structure import Structure

    silos, _ = normal_wishart_silos(n_silos=4)

    def named(silo, *features):
        arrays = {"counts": silo.counts, "weight_prior": 1.0}
        info = {"covariance_type": "full", "features": list(features) or None}
        return replace(silo, structure=Structure("mixture", arrays, info))

    names = [f"x{i}" for i in range(silos[0].family.dim)]
    fusion = kf.fuse([named(silos[0]), named(silos[1], *names), named(silos[2])])
    with pytest.raises(kf.KLFusionError, match="expected the features"):
        fusion.add(named(silos[3], *reversed(names)))
    assert fusion.add(named(silos[3], *names)).posterior.structure.arrays["counts"].sum() > 0
    with pytest.raises(kf.KLFusionError, match="Gamma"):
        fusion.add(rate_silos()[0][0], name="rates")
    product = kf.fuse(
        [replace(s, prior=weak_prior(s.family)) for s in silos[:3]], pooling="product"
    )
    with pytest.raises(kf.KLFusionError, match="expected a posterior with a prior"):
        product.add(silos[3])


def test_newcomers_with_fewer_words():
    from klfusion.posteriors.structure import Structure

    def topics(name, *words):
        natural = np.array([[1.0 + len(word) for word in words], [9.0] * len(words)]) * 50
        family, info = kf.families.Dirichlet(len(words)), {"vocabulary": list(words)}
        structure = Structure("topics", info=info)
        prior = np.full(len(words), 0.1)
        return kf.Posterior(family, natural, name=name, prior=prior, structure=structure)

    a, b, c = topics("a", "ball", "to", "win"), topics("b", "ball", "yes"), topics("c", "to", "win")
    fusion = kf.fuse([a, b])
    equal(fusion.add(c), reread(fusion).add(c))
    assert kf.vocabulary.words(fusion.add(c).posterior) == ["ball", "to", "win", "yes"]
    assert kf.vocabulary.words(fusion.add(c).remove("b").posterior) == ["ball", "to", "win"]
    more = topics("d", "new", "win")
    assert "new" in kf.vocabulary.words(fusion.add(c).add(more).posterior)
    equal(fusion.add(c).add(more), reread(fusion.add(c)).add(more))


# Other sizes ------------------------------------------------------------------------------------


def test_every_size_of_the_path_can_be_had():
    silos, _ = rate_silos()
    fusion = kf.fuse(silos)
    sizes = fusion.path.n_components
    for steps, size in enumerate(sizes):
        other = fusion.at(n_components=int(size))
        assert other.n_components == size
        assert other.objective == pytest.approx(fusion.path.objectives[steps], abs=1e-6)
        assert other.path is fusion.path
    same_model(fusion.at(n_components=fusion.n_components), fusion)
    same_model(fusion.at(penalty=fusion.penalty), fusion)
    assert other.at(n_components=int(sizes[0])).n_components == sizes[0]
    with pytest.raises(kf.KLFusionError, match="expected n_components from"):
        fusion.at(n_components=int(sizes[0]) + 1)
    with pytest.raises(kf.KLFusionError, match="expected either"):
        fusion.at()
    with pytest.raises(kf.KLFusionError, match="with a path"):
        fusion.remove("silo-0").at(n_components=3)


def test_one_silo_has_no_other_sizes_unless_its_components_may_merge():
    silos, _ = rate_silos()
    with pytest.raises(kf.KLFusionError, match=r"silo 'silo-0' is the only one.* expected two"):
        kf.fuse(silos[:1]).at(n_components=1)
    merging = kf.fuse(silos[:1], method=kf.MaxLoss(0.5, within_silos=True))
    assert merging.at(n_components=1).n_components == 1


def test_the_right_size_lasts_longest():
    silos, truth = rate_silos(n_silos=12)
    path = kf.fuse(silos).path
    late = len(path.merges) // 2  # early merges are of near copies, whose ratios are chance
    lasts = path.stability[late:]
    assert path.n_components[late:][lasts.argmax()] == len(np.unique(np.concatenate(truth)))
    assert (path.stability >= 0).all()
    assert path.stability[-1] == np.inf


def test_networks_come_and_go():
    rng = np.random.default_rng(0)
    shapes = {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (3, 8), "fc2.bias": (3,)}
    deep = {**shapes, "fc2.weight": (6, 8), "fc2.bias": (6,), "fc3.weight": (3, 6)}
    deep["fc3.bias"] = (3,)
    for layers in (shapes, deep):
        nets = {
            name: {key: (rng.normal(size=s), np.full(s, 0.01)) for key, s in layers.items()}
            for name in "abc"
        }
        fusion = kf.fuse(nets)
        if layers is shapes:
            assert fusion.remove("a").silo_names == ("b", "c")
        else:
            with pytest.raises(kf.errors.KLFusionError, match=r"layer 2.*rematch=True"):
                fusion.remove("a")
        again = fusion.remove("a", rematch=True)
        alone = kf.fuse({name: nets[name] for name in "bc"})
        np.testing.assert_allclose(again.posterior.natural, alone.posterior.natural)


def _mixture_of(*centres, seed=0):
    rng = np.random.default_rng(seed)
    data = np.vstack([np.add(c, rng.normal(size=(200, 2))) for c in centres])
    return BayesianGaussianMixture(n_components=len(centres), random_state=0).fit(data)


@pytest.mark.parametrize("method", [kf.Auto(), kf.MaxLoss(0.0), kf.MaxLoss(0.3)])
def test_where_nothing_tells_the_price_of_a_component_everyone_is_matched_anew(method):
    one, other = _mixture_of((0, 0), (8, 0)), _mixture_of((100, 100), (0, 100), seed=1)
    alone = kf.fuse([one], method=method)
    assert alone.penalty == 0
    both = alone.add(other)
    assert both.n_components == 4
    assert both.provenance["history"][-1]["rematch"]


def test_a_size_that_was_given_stays_when_a_silo_is_added():
    one, other = _mixture_of((0, 0), (8, 0)), _mixture_of((100, 100), (0, 100), seed=1)
    assert kf.fuse([one], n_components=2).add(other).n_components == 2


def test_what_has_no_path_says_how_to_have_one():
    one, other = _mixture_of((0, 0), (8, 0)), _mixture_of((8, 0), (0, 100), seed=1)
    fusion = kf.fuse([one, other, _mixture_of((0, 0), (8, 0), seed=2)]).remove("silo-1")
    with pytest.raises(KLFusionError, match="rematch=True"):
        fusion.at(n_components=2)
    assert fusion.remove("silo-3", rematch=True).path is None  # of one silo
    with pytest.raises(KLFusionError, match="expected two silos or more"):
        fusion.remove("silo-3").at(n_components=2)


def test_rematching_keeps_the_sizes_of_every_layer_and_the_random_state():
    *silos, last = networks((9, 7), n_silos=4)
    fusion = kf.fuse(silos, n_components=(18, 15), random_state=5)
    both = fusion.add(last, rematch=True)
    for one in (fusion, both, both.remove(last.name, rematch=True)):
        assert one.settings.n_components == (18, 15)
        assert one.settings.random_state == 5
        assert one.n_components == 18
        assert len(one.posterior.structure.arrays["mean.1"]) == 15
    anew = kf.fuse([*silos, last], n_components=(18, 15), random_state=5)
    np.testing.assert_array_equal(both.posterior.natural, anew.posterior.natural)


@pytest.mark.parametrize("seed", range(5, 9))
def test_a_third_silo_of_the_same_clusters_opens_none(seed):
    rng, kinds = np.random.default_rng(seed), np.array([[-18.0, 0.0], [0.0, 18.0], [18.0, 0.0]])

    def fitted(own):
        return BayesianGaussianMixture(
            n_components=3, mean_prior=[0, 0], covariance_prior=np.eye(2),
            degrees_of_freedom_prior=4, random_state=0,
        ).fit(own[rng.choice(3, 150)] + rng.normal(size=(150, 2)))  # fmt: skip

    fusion = kf.fuse({"a": fitted(kinds), "b": fitted(kinds)})
    assert fusion.add(fitted(kinds), name="c").n_components == 3
    other = np.vstack([kinds[:2], [[0.0, -18.0]]])
    assert fusion.add(fitted(other), name="d").n_components == 4


def test_one_global_component_shows_no_price():
    rates = kf.families.Gamma()
    a, b, c = (
        kf.Posterior(rates, rates.natural([shape], [10]), name=name)
        for name, shape in {"a": 300, "b": 310, "c": 320}.items()
    )
    assert kf.fuse([a, b]).add(c).n_components == kf.fuse([a, b, c]).n_components == 1
