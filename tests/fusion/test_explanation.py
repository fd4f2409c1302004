"""Why a fusion has its size: sentences that follow from the evidence and the probabilities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from klfusion.fusion.explanation import decisions, sizes
from tests.report import gallery

RATES = kf.families.Gamma()
SHAPES = {"a": [30, 900], "b": [910, 32], "c": [31, 250]}


def rates(shapes=SHAPES):
    return [
        kf.Posterior(RATES, RATES.natural(own, np.full(len(own), 10.0)), name=name)
        for name, own in shapes.items()
    ]


def test_the_rivals_are_named_with_nats_and_odds():
    fusion = kf.fuse(rates())
    text = fusion.explain()
    evidence = dict(zip(fusion.path.n_components, fusion.path.evidence, strict=True))
    assert text.startswith("3 components have the highest evidence")
    for rival in (2, 4):
        behind = evidence[3] - evidence[rival]
        assert f"{rival} components are {behind:.1f} nats less probable" in text


def test_probabilities_of_sizes_add_up_and_differences_are_from_the_best():
    fusion = kf.fuse(rates())
    known = sizes(fusion)
    assert sum(one.probability for one in known) == pytest.approx(1.0)
    assert [one.behind for one in known if one.n_components == 3] == [0.0]
    best = max(known, key=lambda one: one.probability)
    assert best.n_components == fusion.n_components
    odds = known[0].probability / best.probability
    assert np.log(odds) == pytest.approx(-known[0].behind)


def test_the_least_certain_decisions_come_first_and_are_named():
    fusion = kf.fuse(rates())
    sure = [np.array([0.99, 1.0]), np.array([1.0, 0.7]), np.array([0.98, 0.6])]
    doubtful = replace(fusion, probability=sure)
    first, second, *_ = decisions(doubtful)
    assert (first.silo, first.component, first.matched) == ("c", 1, False)
    assert (second.silo, second.component, second.matched) == ("b", 1, True)
    assert "c:1 alone (60%), b:1 in 0 (70%)." in doubtful.explain()
    assert doubtful.expected_false_matches == pytest.approx(0.01 + 0.3 + 0.02)
    assert "0.33 are expected to be matched wrongly" in doubtful.explain()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"n_components": 4}, "4 components: the size was asked for."),
        ({"method": kf.Penalised(0.001)}, "6 components: the size at a penalty of 0.001 nats."),
        ({"method": "relaxed"}, "the method 'relaxed' gives no evidence of other sizes."),
    ],
)
def test_other_reasons_of_a_size(options, expected):
    assert expected in kf.fuse(rates(), **options).explain()


def test_a_single_silo_and_names_say_so():
    assert "only one silo" in kf.fuse(rates()[:1]).explain()
    named = [kf.coefficients([0.1], [[1.0]], ["age"], name=name) for name in "ab"]
    assert "matched by their names" in kf.fuse(named).explain()


def test_a_size_that_was_picked_says_so():
    assert "the size was picked" in kf.fuse(rates()).at(n_components=2).explain()


@pytest.mark.parametrize(
    ("moved", "expected"),
    [(-1, "found to be one, or parts of others"), (1, "moved out of the path's clusters")],
)
def test_a_size_that_is_not_the_best_on_the_path_says_why(moved, expected):
    fusion = kf.fuse(rates())
    path = fusion.path
    best = np.where(path.n_components == fusion.n_components - moved, 1e3, path.evidence)
    other = replace(fusion, path=replace(path, evidence=best))
    text = other.explain()
    assert f"This fusion has {fusion.n_components} components: " in text
    assert expected in text
    known = {one.n_components: one.behind for one in sizes(other)}
    assert min(known.values()) == known[fusion.n_components - moved] == 0.0
    assert (
        f"{fusion.n_components} components are {known[fusion.n_components]:.1f} nats less" in text
    )


def test_a_matching_that_was_kept_says_so():
    first, second, third = rates()
    assert "the matching was kept" in kf.fuse([first, second]).add(third).explain()


def test_where_merges_end_the_text_says_why():
    fusion, _ = gallery.topics()
    assert fusion.path.n_components[-1] == fusion.n_components == 4
    assert "Fewer than 4 cannot be had by merges" in fusion.explain()


def test_names_of_silos_are_printed_without_control_characters():
    fusion = kf.fuse(rates({"a\x1b[2J": [30, 900], "b": [910, 32]}))
    doubtful = replace(fusion, probability=[np.array([0.5, 0.5]), np.array([1.0, 1.0])])
    assert "\x1b" not in doubtful.explain()
    assert "\\x1b" in doubtful.explain()


def test_what_was_left_out_says_where_the_reason_is():
    text = kf.fuse(rates()).with_min_support(2).explain()
    assert "1 local component was left out: fusion.unmatched says why." in text


def test_matched_components_that_lie_far_apart_are_named():
    family = kf.families.NormalWishart(2)

    def silo(name, means):
        scales = [200.0 * np.eye(2)] * len(means)
        natural = family.natural(means, [200.0] * len(means), scales, [203.0] * len(means))
        return kf.Posterior(family, natural, name=name)

    near = [silo("a", [[0, 0], [40, 0]]), silo("b", [[0.1, 0], [40.1, 0]])]
    assert "deviations" not in kf.fuse(near).explain()
    far = [*near, silo("c", [[0.1, 0], [40, 9]])]
    text = kf.fuse(far, n_components=2).explain()
    assert "a:1 and c:1 are of one global component, and lie 9 standard deviations" in text


def test_nothing_shared_is_compared_where_it_is_not_unlikely():
    sites = [rates()[0], rates()[1]]
    fusion = kf.fuse(sites)
    gap = fusion.path.evidence.max() - fusion.path.evidence[0]
    assert (f"{fusion.path.n_components[0]} components" in fusion.explain()) == (gap < np.log(1e4))
