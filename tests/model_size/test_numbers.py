"""Every number of `kf.Auto` decides: half of it, or twice it, gives another size of some problem.

Along each series one quantity grows, so the size changes once, at a place that the number sets.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import klfusion as kf
from klfusion.model_size.evidence import LinkageSettings
from tests.model_size.test_linkage import UNITS, one_each


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
    "failed_fits": (one_that_strays, np.arange(2.5, 6.0, 0.25)),
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
