"""Doubtful matches, silos that do not fit, made-up components; and what hostile silos can do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from klfusion.pooling.robust import RADIUS, equally_certain
from klfusion.posteriors.structure import Structure
from tests.helpers.silos import normal_wishart_silos, rate_silos


def located(*means, name, kappa=100.0, counts=None):
    family = kf.families.NormalWishart(2)
    n = len(means)
    natural = family.natural(
        np.array(means, dtype=float), np.full(n, kappa), np.stack([kappa * np.eye(2)] * n),
        np.full(n, kappa + 2.0),
    )  # fmt: skip
    return kf.Posterior(family, natural, name=name, counts=counts)


def agreeing(n_silos=10, seed=0, kappa=100.0):
    rng = np.random.default_rng(seed)
    return [
        located(*(np.array([[0.0, 0.0], [8.0, 0.0]]) + rng.normal(scale=0.1, size=(2, 2))),
                name=f"silo-{j}", kappa=kappa * rng.uniform(0.5, 2.0))
        for j in range(n_silos)
    ]  # fmt: skip


# Matches ----------------------------------------------------------------------------------------


def test_margin_is_what_the_next_best_plan_costs():
    silos = [*agreeing(6), located([0.0, 0.1], [3.9, 0.0], name="doubtful")]
    fusion = kf.fuse(silos, n_components=2)
    found = kf.diagnose(fusion)
    clear = np.concatenate(found.margins[:-1])
    assert (clear > 0).all()
    # A component halfway between two has the least margin.
    assert np.concatenate(found.margins).min() == found.margins[-1].min()
    # By hand: exchange the two components of the first silo.
    swapped = [own.copy() for own in fusion.labels]
    swapped[0] = swapped[0][::-1]
    problem = matching(silos, np.array(fusion.settings.variation))
    better, worse = (problem.divergence(np.concatenate(x), 2) for x in (fusion.labels, swapped))
    np.testing.assert_allclose(found.margins[0], worse - better, rtol=1e-9)


def matching(silos, variation):
    from klfusion.pooling.pool import matched

    labels = [np.arange(s.n_components) for s in silos]
    problem = matched(silos, labels, np.ones(len(silos))).problem
    return problem.centred().comparable().with_variation(variation)


def test_stability_tells_lasting_matches():
    silos, _ = rate_silos(n_silos=8)
    found = kf.diagnose(kf.fuse(silos), resamples=6)
    values = np.concatenate(found.stability)
    assert np.nanmin(values) >= 0.0
    assert np.nanmean(values) > 0.9
    again = kf.diagnose(kf.fuse(silos), resamples=6)
    np.testing.assert_array_equal(values, np.concatenate(again.stability))


def test_left_out_components_have_no_margin():
    silos, _ = normal_wishart_silos()
    empty = replace(silos[0], counts=[0.0, *silos[0].counts[1:]])
    fusion = kf.fuse([empty, *silos[1:]])
    assert fusion.labels[0][0] == -1
    found = kf.diagnose(fusion, resamples=2)
    assert np.isnan(found.margins[0][0])
    assert np.isnan(found.stability[0][0])


# Silos ------------------------------------------------------------------------------------------


def test_good_silos_raise_no_finding():
    assert kf.diagnose(kf.fuse(agreeing())).findings == ()
    for make in (rate_silos, normal_wishart_silos):
        silos, _ = make(n_silos=10)
        reasons = [f.reason for f in kf.diagnose(kf.fuse(silos)).findings]
        assert not [r for r in reasons if "copy" in r or "certain" in r or "worth" in r]


def test_what_looks_wrong_is_found():
    good = agreeing()
    shifted = located([0.6, 0.6], [8.6, 0.6], name="shifted")
    sure = located([0.0, 0.0], [8.0, 0.0], name="sure", kappa=1e7)
    copy = replace(good[3], name="copy")
    lone = located([0.0, 0.0], [90.0, 0.0], name="lone")
    for bad, reason, who in (
        (shifted, "times the median", "shifted"),
        (sure, "times as certain as the median", "sure"),
        (copy, "a copy of component 0 of silo 'silo-3'", "copy"),
        (lone, "matches no other silo's", "lone"),
    ):
        found = kf.diagnose(kf.fuse([*good, bad])).findings
        assert any(f.silo == who and reason in f.reason for f in found), (who, found)
    assert kf.diagnose(kf.fuse([*good, shifted])).misfit.argmax() == len(good)


def test_a_component_of_one_of_two_silos_is_found():
    both = located([0.0, 0.0], [8.0, 0.0], name="both")
    more = located([0.02, 0.0], [8.02, 0.0], [90.0, 0.0], name="more")
    (found,) = [
        f for f in kf.diagnose(kf.fuse([both, more])).findings if "no other silo" in f.reason
    ]
    assert (found.silo, found.component) == ("more", 2)
    apart = located([-90.0, 0.0], [60.0, 0.0], name="apart")
    fusion = kf.fuse([both, apart], n_components=4)
    assert not [f for f in kf.diagnose(fusion).findings if "no other silo" in f.reason]


def states(means, rng, name, n=100.0):
    """A silo of hidden Markov states of as many observations each."""
    k, family = len(means), kf.families.NormalWishart(2)
    own, kappa = means + rng.normal(size=(k, 2)) / np.sqrt(n), np.full(k, n)
    natural = family.natural(own, kappa, n * np.stack([np.eye(2)] * k), kappa + 2.0)
    prior = family.natural(np.zeros((1, 2)), [1.0], np.eye(2)[None], [2.0])[0]
    shapes = {"start": k, "start_prior": k, "transition": (k, k), "transition_prior": (k, k)}
    arrays = {key: np.ones(shape) for key, shape in shapes.items()}
    structure = Structure("hmm", arrays)
    return kf.Posterior(family, natural, name, prior, kappa, structure)


@pytest.mark.parametrize("n_components", [20, 50])
@pytest.mark.parametrize("pooling", ["auto", "robust"])
def test_one_silo_of_overlapping_states_stops_no_matching_elsewhere(n_components, pooling):
    """Before all silos counted alike, nothing of ten silos matched. Where it attacks, less does."""
    rng = np.random.default_rng(0)
    centres = np.array([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0], [0.0, -6.0]])
    silos = [states(centres, rng, f"h{j}") for j in range(10)]
    near = centres[0] + 0.02 * rng.normal(size=(n_components, 2))
    fusion = kf.fuse([*silos, states(near, rng, "many")], pooling=pooling)
    elsewhere = np.stack([fusion.labels[j][1:] for j in range(10)])
    assert (elsewhere == elsewhere[0]).all() and (elsewhere >= 0).all()
    (found,) = [f for f in kf.diagnose(fusion).findings if "without it" in f.reason]
    assert (found.silo, found.component) == ("many", None)


@pytest.mark.parametrize("n_components", [20, 50])
def test_a_silo_of_overlapping_rates_is_named(n_components):
    rng, rates = np.random.default_rng(1), kf.families.Gamma()

    def silo(true, name):
        counted = rng.poisson(100.0 * np.asarray(true))
        return kf.Posterior(rates, rates.natural(1.0 + counted, np.full(len(true), 101.0)), name)

    silos = [silo([2.0, 10.0, 40.0, 150.0], f"h{j}") for j in range(10)]
    many = silo(10.0 * np.exp(0.1 * rng.normal(size=n_components)), "many")
    found = kf.diagnose(kf.fuse([*silos, many], pooling="robust")).findings
    assert [f.silo for f in found if "without it" in f.reason] == ["many"]
    assert not [f for f in kf.diagnose(kf.fuse(silos)).findings if "without it" in f.reason]


@pytest.mark.parametrize("n_components", [60, 200])
def test_a_silo_beside_which_hardly_anything_matches_is_named(n_components):
    """Components that overlap: as if all that is different were as near as these."""
    rng, rates = np.random.default_rng(0), kf.families.Gamma()
    shapes = [rng.uniform(0.95, 1.05, 5) * [30, 100, 300, 900, 2700] for _ in range(10)]
    silos = [
        kf.Posterior(rates, rates.natural(own, [10.0] * 5), f"h{j}") for j, own in enumerate(shapes)
    ]
    near = rates.natural(rng.uniform(90, 110, n_components), [10.0] * n_components)
    fusion = kf.fuse([*silos, kf.Posterior(rates, near, "many")])
    assert fusion.n_components > 50
    (found,) = [f for f in kf.diagnose(fusion).findings if "hardly anything matches" in f.reason]
    assert found.silo == "many"
    without = fusion.remove("many", rematch=True)
    assert (without.n_components, kf.diagnose(without).findings) == (5, ())
    honest = kf.fuse(
        [kf.Posterior(rates, rates.natural([10.0**j] * 1, [1]), f"{j}") for j in range(4)]
    )
    assert kf.diagnose(honest).findings == ()


def test_certainty_that_observations_do_not_give():
    good = [replace(s, counts=s.params()["kappa"]) for s in agreeing()]
    bad = located([0.0, 0.02], [8.0, 0.02], name="claims", counts=[5.0, 100.0])
    (found,) = kf.diagnose(kf.fuse([*good, bad])).findings
    assert (found.silo, found.component) == ("claims", 0)
    assert "as certain as the median for its observations" in found.reason


def test_much_data_explains_much_certainty():
    good = [replace(s, counts=s.params()["kappa"]) for s in agreeing()]
    large = located([0.0, 0.02], [8.0, 0.02], name="large", kappa=5000.0, counts=[5000.0, 5000.0])
    assert kf.diagnose(kf.fuse([*good, large])).findings == ()


def test_findings_are_printed_first():
    sure = located([0.0, 0.0], [8.0, 0.0], name="sure", kappa=1e7)
    lines = repr(kf.diagnose(kf.fuse([*agreeing(), sure]), resamples=1)).splitlines()
    assert lines[0].startswith("Diagnosis: ")
    assert lines[1].startswith("  silo 'sure'")
    assert any("silo 'sure', component 0: " in line for line in lines[1:-4])
    assert [line.split()[0] for line in lines[-4:]] == ["margins", "misfit", "support", "stability"]
    assert str(kf.diagnose(kf.fuse(agreeing()))).startswith("Diagnosis: no findings\n  margins")


# Support ----------------------------------------------------------------------------------------


def test_min_support_leaves_out_what_few_have():
    silos = [*agreeing(), located([0.0, 0.0], [90.0, 0.0], name="lone")]
    assert kf.fuse(silos).n_components == 3
    fusion = kf.fuse(silos).with_min_support(2)
    assert fusion.n_components == 2
    assert fusion.labels[-1].tolist() == [fusion.labels[0][0], -1]
    assert np.isnan(fusion.divergences[-1][1])
    assert fusion.at(n_components=3).n_components == 2  # the third is the one silo's
    more = fusion.remove("silo-0").add(located([0.1, 0.0], [-70.0, 0.0], name="new"))
    assert more.n_components == 2
    assert more.labels[-1][1] == -1
    with pytest.raises(kf.KLFusionError, match="at least min_support=12 silos, got at most 11"):
        kf.fuse(silos).with_min_support(12)
    with pytest.raises(kf.KLFusionError, match="expected min_support to be an integer"):
        kf.fuse(silos).with_min_support(0)


# Hostile silos ----------------------------------------------------------------------------------

ATTACKS = {
    "far": located([1e3, -1e3], name="x"),
    "very far and very sure": located([1e3, -1e3], name="x", kappa=1e9),
    "near and very sure": located([0.5, 0.5], name="x", kappa=1e9),
    "hardly any data": located([50.0, 0.0], name="x", kappa=1.0),
    "just outside": located([0.7, 0.0], name="x"),
    "just inside": located([0.25, 0.0], name="x"),
}


def first_component(silos):
    return [replace(s, natural=s.natural[:1]) for s in silos]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("n_hostile", [1, 4])
def test_hostile_silos_move_a_component_by_no_more_than_the_bound(attack, n_hostile):
    honest = first_component(agreeing(9))
    hostile = [replace(ATTACKS[attack], name=f"x{k}") for k in range(n_hostile)]
    family = honest[0].family
    members = equally_certain(family, np.concatenate([s.natural for s in [*honest, *hostile]]))
    between = family.kl(members[:9], members[:9])
    fused = kf.fuse([*honest, *hostile], n_components=1, pooling="robust").posterior.natural
    medoid = int(np.median(family.kl(members, members), axis=1).argmin())
    moved = family.kl(members[medoid : medoid + 1], fused)[0, 0]
    share = 1.0 if medoid >= 9 else n_hostile / len(members)
    assert moved <= (1.0 + (RADIUS - 1.0) * share) * between.max() + 1e-9
    location = family.location(fused)[0]
    assert np.linalg.norm(location) < 0.5


def test_averages_have_no_such_bound():
    honest = first_component(agreeing(9))
    average = kf.fuse([*honest, ATTACKS["very far and very sure"]], n_components=1)
    assert np.linalg.norm(average.posterior.params()["mean"]) > 1000


def test_robust_is_the_average_where_nobody_is_far():
    silos = [located([x, 0.0], name=f"s{k}") for k, x in enumerate((-0.09, -0.05, 0.0, 0.05, 0.09))]
    one, two = (
        kf.fuse(silos, n_components=1, pooling=pooling).posterior.params()
        for pooling in ("robust", "average")
    )
    np.testing.assert_allclose(one["mean"], two["mean"], atol=0.03)
    np.testing.assert_allclose(one["kappa"], two["kappa"])


def test_two_silos_are_averaged():
    silos = [located([0.0, 0.0], name="a"), located([1.0, 0.0], name="b")]
    fusion = kf.fuse(silos, n_components=1, pooling="robust")
    np.testing.assert_allclose(fusion.posterior.params()["mean"], [[0.5, 0.0]])
