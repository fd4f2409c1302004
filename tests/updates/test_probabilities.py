"""P(same) of a fusion: pairs by silo and component, other methods, what is unmatched."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import KLFusionError
from tests.report import gallery

RATES = kf.families.Gamma()
SHAPES = {"a": [30, 900], "b": [910, 32], "c": [31, 250]}


@pytest.fixture
def fusion():
    return kf.fuse(
        {name: kf.Posterior(RATES, RATES.natural(own, [10, 10])) for name, own in SHAPES.items()}
    )


def test_pairs_are_those_of_the_matrix_in_the_rows_of_the_frame(fusion):
    table = fusion.probabilities_same()
    assert fusion.probability_same(("a", 0), ("b", 1)) == table[0, 3]
    assert fusion.probability_same(("b", 1), ("a", 0)) == table[0, 3]
    assert table[0, 3] > 0.95
    assert table[0, 2] < 0.01
    assert table[0, 1] == 0.0  # two of one silo
    assert table[0, 0] == 1.0


def test_the_probability_of_a_match_is_near_that_of_both_components(fusion):
    table, sure = fusion.probabilities_same(), np.concatenate(fusion.probability)
    assert table[0, 3] == pytest.approx(sure[0] * sure[3], abs=1e-6)


@pytest.mark.parametrize("noise", [0.5, 1.0, 1.5])
def test_a_pair_has_one_probability_whatever_is_asked(noise):
    rng, family = np.random.default_rng(2), kf.families.DiagonalNormal(8)
    centres, silos = rng.normal(size=(5, 8)), []
    for name in "ab":
        prior = family.natural(rng.normal(size=(1, 8)), np.full((1, 8), 4.0))[0]
        means = centres + 0.3 * noise * rng.normal(size=centres.shape)
        natural = family.natural(means, np.full((5, 8), 0.05)) + prior
        silos.append(kf.Posterior(family, natural, name=name, prior=prior))
    fusion = kf.fuse(silos)
    assert fusion.n_components == 5
    for g in range(5):
        (a,), (b,) = (np.flatnonzero(own == g) for own in fusion.labels)
        alone = fusion.probability["a"][a], fusion.probability["b"][b]
        same = fusion.probability_same(("a", int(a)), ("b", int(b)))
        assert alone == pytest.approx((same, same), abs=1e-3)


def test_parts_of_a_split_count_as_one_and_unmatched_ones_have_none():
    rng = np.random.default_rng(0)
    from sklearn.mixture import BayesianGaussianMixture

    means = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    silos = {
        f"{j}": BayesianGaussianMixture(n_components=4, random_state=j).fit(
            means[rng.integers(3, size=300)] + rng.normal(size=(300, 2))
        )
        for j in range(4)
    }
    fusion = kf.fuse(silos)
    labels, table = np.concatenate(fusion.labels), fusion.probabilities_same()
    silo = np.repeat(np.arange(4), 4)
    parts = (labels[:, None] == labels) & (silo[:, None] == silo) & (labels >= 0)
    assert (table[parts] == 1.0).all()
    assert np.isnan(table[labels < 0]).all()
    assert fusion.n_unmatched + fusion.n_merged_within_silos > 0
    assert np.isfinite(table[labels >= 0][:, labels >= 0]).all()


@pytest.mark.parametrize("kind", ["mixture", "topics", "hmm", "plain"])
def test_every_kind_of_model_has_them(kind):
    fusion, _ = gallery.KINDS[kind]()
    labels, table = np.concatenate(fusion.labels), fusion.probabilities_same()
    silo = np.repeat(np.arange(fusion.n_silos), [len(own) for own in fusion.labels])
    others = silo[:, None] != silo
    assert table[(labels[:, None] == labels) & others].min() > 0.9
    assert table[(labels[:, None] != labels) & others].max() < 0.1


def test_other_sizes_and_methods_have_them_as_well(fusion):
    smaller = fusion.at(n_components=2)
    assert smaller.probability_same(("a", 1), ("c", 1)) < 0.5  # though they are matched
    asked = kf.fuse(fusion.silos, method=kf.Penalised(1.0))
    assert asked.probability_same(("a", 0), ("b", 1)) > 0.95


def test_a_saved_fusion_gives_the_same(fusion, tmp_path):
    kf.save(tmp_path / "fusion.safetensors", fusion)
    loaded = kf.load(tmp_path / "fusion.safetensors")
    assert (loaded.probabilities_same() == fusion.probabilities_same()).all()


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (("d", 0), "expected a silo of 'a', 'b', 'c', got 'd'"),
        (("a", 2), "silo 'a': expected a component, an integer from 0 to 1, got 2"),
        (("a", True), "silo 'a': expected a component"),
        ("a", r"expected a pair \(silo, component\), got 'a'"),
        ((["a"], 0), "expected a silo of"),
    ],
)
def test_bad_components_are_named(fusion, first, message):
    with pytest.raises(KLFusionError, match=message):
        fusion.probability_same(first, ("b", 0))


def test_what_the_silos_sent_is_needed(fusion):
    with pytest.raises(KLFusionError, match="cannot compare components"):
        fusion.without_silos().probabilities_same()


def test_components_with_names_have_none():
    named = [kf.coefficients([0.1], [[1.0]], ["age"], name=name) for name in "ab"]
    with pytest.raises(KLFusionError, match="matched by their names"):
        kf.fuse(named).probabilities_same()
