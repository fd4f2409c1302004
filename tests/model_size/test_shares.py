"""How large a share of a component a cluster may be."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.model_size.shares import Shares

DIM, ROWS = 4, 120
NW = kf.families.NormalWishart(DIM)
CENTRES = 7.0 * np.eye(DIM)


def of_observations(x):
    """Posterior of the mean and precision of observations, under hardly any prior."""
    scatter = (x - x.mean(axis=0)).T @ (x - x.mean(axis=0))
    return NW.natural([x.mean(axis=0)], [len(x)], [scatter + 0.1 * np.eye(DIM)], [len(x) + DIM])


def silos_of(seed, shift, n_silos=15):
    """Silos with all four clusters, which vary; the first describes two of them by one."""
    rng = np.random.default_rng(seed)
    silos = []
    for j in range(n_silos):
        centres = CENTRES + shift * rng.normal(size=CENTRES.shape)
        x = centres[:, None] + rng.normal(size=(len(centres), ROWS, DIM))
        groups = [np.concatenate(x[:2]), x[2], x[3]] if j == 0 else list(x)
        natural = np.concatenate([of_observations(own) for own in groups])
        silos.append(kf.Posterior(NW, natural, name=f"{j}"))
    return silos


@pytest.mark.parametrize("seed", range(4))
def test_a_fit_of_two_clusters_is_found_where_clusters_vary_between_silos(seed):
    fusion = kf.fuse(silos_of(seed, shift=0.6))
    assert fusion.n_components == len(CENTRES)
    assert fusion.labels[0][0] == -1


def test_a_share_of_two_clusters_is_evidence_and_a_share_of_one_is_none():
    rng = np.random.default_rng(3)
    x = CENTRES[:, None] + rng.normal(size=(4, ROWS, DIM))
    mixed = of_observations(np.concatenate([x[0], x[1]]))
    centres = np.concatenate([of_observations(own) for own in x])
    held = np.zeros((5, 4), dtype=bool)
    held[1:] = ~np.eye(4, dtype=bool)
    shares = Shares(NW, np.concatenate([mixed, centres]), centres, held)
    odds = shares.log_odds(0, np.array([[0, 1], [0, 2], [2, 3]]))
    assert odds[0] > 0.0
    assert (odds[1:] == -np.inf).all()
    # Were such shares common among different components, they would say little.
    held[0, :2] = True
    common = Shares(NW, np.concatenate([mixed, centres]), centres, held)
    assert common.log_odds(0, np.array([[0, 1]]))[0] < odds[0]


@pytest.mark.parametrize("family", [NW, kf.families.NormalGamma(DIM)])
@pytest.mark.parametrize("share", [0.04, 0.3])
def test_a_share_is_possible_where_the_rest_is_of_the_family(family, share):
    """Of clusters whose means are far apart nothing is computed but the distance."""
    rng = np.random.default_rng(5)
    means, counts = rng.normal(scale=2.0, size=(60, DIM)), np.full(60, 50.0)
    spread = rng.uniform(0.2, 3.0, size=(60, DIM))
    if family is NW:
        spread = spread[:, None] * np.eye(DIM)
    natural = family.observed(means, spread, counts)
    shares = Shares(family, natural, natural[:20], np.zeros((60, 20), dtype=bool))
    found = shares.possible(np.arange(60), np.arange(20), share)
    rest = natural[:, None] - share * natural[:20]
    inside = family.inside(rest.reshape(-1, family.size)).reshape(60, 20)
    assert 0 < inside.sum() < inside.size
    np.testing.assert_array_equal(found, inside)
