"""Every number of the default decides: half of it, or twice it, gives another result of a problem.

Along each series one quantity grows, so the size changes once, at a place that the number sets.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import klfusion as kf
from klfusion._utils.arrays import relabel
from klfusion.methods.topics import OUTCOMES
from klfusion.model_size.cleaning import with_data
from klfusion.model_size.densities import LOWEST, Different
from klfusion.model_size.evidence import LinkageSettings
from klfusion.model_size.linkage import link
from klfusion.model_size.probabilities import memberships
from tests.methods.test_networks import silos as units_of_silos
from tests.model_size.test_linkage import UNITS, one_each, silent, units


def one_that_strays(distance):
    """Six silos with the same four units; one unit of one silo lies at a distance from the rest."""
    rng = np.random.default_rng(0)
    centres, away = rng.normal(size=(4, 20)), rng.normal(size=20)
    away *= distance / np.linalg.norm(away)
    silos = []
    for j in range(6):
        means = centres + 0.3 * rng.normal(size=centres.shape)
        means[0] += away * (j == 0)
        silos.append(kf.Posterior(UNITS, UNITS.natural(means, np.full(means.shape, 0.05)), str(j)))
    return silos


def one_component_each(distance):
    """Two silos of one component, so far apart."""
    return one_each([[0.0, 0.0], [distance, 0.0]])


FALSE_MATCHES = 0.008  # None by default
SERIES = {
    "failed_fits": (one_that_strays, np.arange(2.5, 6.0, 0.1)),
    "separation": (one_component_each, np.arange(1.0, 6.0, 0.5)),
    "false_matches": (one_that_strays, np.arange(2.0, 4.5, 0.1)),
}


def sizes(name, value):
    """Size of each problem of the series at a value of the number."""
    make, along = SERIES[name]
    method = kf.Auto(**{name: value})
    return [kf.fuse(make(x), method=method).n_components for x in along]


@pytest.mark.parametrize("name", SERIES)
def test_half_and_double_of_each_number_decide_otherwise(name):
    value = getattr(kf.Auto(), name) or FALSE_MATCHES
    half, own, double = (sizes(name, factor * value) for factor in (0.5, 1.0, 2.0))
    assert half != own
    assert own != double
    rising = np.array([half, own, double])
    assert (np.diff(rising, axis=1) >= 0).all()  # farther apart is never fewer
    assert (np.diff(rising.sum(axis=1)) > 0).all() or (np.diff(rising.sum(axis=1)) < 0).all()


def test_every_number_of_the_model_has_a_series():
    own = {field.name for field in fields(LinkageSettings)}
    assert own <= SERIES.keys() <= {field.name for field in fields(kf.Auto)}


# Numbers that are no field of `kf.Auto` -----------------------------------------------------------


@pytest.mark.parametrize(("name", "dim"), [("within", 3), ("loss", 30)])
def test_half_and_double_of_the_numbers_of_networks_decide_otherwise(name, dim):
    posteriors, _ = units_of_silos(dim=dim, noise=0.6)
    value = getattr(kf.Networks(), name)
    half, own, double = (
        kf.fuse(posteriors, method=kf.Networks(**{name: factor * value})).n_components
        for factor in (0.5, 1.0, 2.0)
    )
    assert half > own > double


@pytest.mark.parametrize(("share", "stays"), [(0.03, False), (0.05, True)])
def test_a_small_component_stays_if_its_share_is_not_negligible(share, stays):
    """The number, 4 %, lies between; half of it keeps both, and twice it keeps neither."""
    counts = np.array([1.0 - share, share]) * 60.0  # below the least count of the family
    family = kf.families.NormalWishart(10)
    natural = family.natural(np.zeros((2, 10)), counts, np.stack([np.eye(10)] * 2), counts + 10.0)
    assert (1 in with_data(kf.Posterior(family, natural, counts=counts))) == stays


def test_words_beyond_the_most_frequent_are_one():
    """Twice the number keeps all words, half of it merges those of the smaller vocabulary."""
    rng = np.random.default_rng(0)
    for n_words, merged in ((int(0.9 * OUTCOMES), False), (int(1.8 * OUTCOMES), True)):
        family = kf.families.Dirichlet(n_words)
        natural = family.natural(rng.gamma(0.5, size=(4, n_words)) + 0.01)
        coarse, _ = family.coarser(natural, np.ones(4), OUTCOMES)
        assert (coarse.size < n_words) == merged


def test_what_is_nearer_than_the_lowest_distance_counts_as_that():
    different = Different.of(np.linspace(-1.0, 1.0, 50), 50, 0.05, 10.0)
    x = different.centre + LOWEST * np.array([0.6, 0.9, 1.1, 1.9])
    found = different.log_density(x)
    assert found[1] < found[0] - 1.0  # half of the number would make them equal
    assert found[3] == found[2]  # twice the number would not


def test_probabilities_have_half_of_the_log_odds():
    problem, _ = units(2, n_silos=2, noise=0.5)
    linked = link(problem, LinkageSettings(), silent)
    there, rows = memberships(linked), np.arange(problem.n)
    assert (np.bincount(linked.labels) == 2).all()
    for row, own in zip(rows, linked.labels, strict=True):
        apart = np.where(rows == row, problem.n, linked.labels)
        gain = linked.evidence(linked.labels) - linked.evidence(relabel(apart))
        assert np.log(there[row, own] / there[row, -1]) == pytest.approx(0.5 * gain, rel=0.05)
