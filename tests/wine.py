"""Wines of three growers over three silos, and what the medians of a mixture say of them."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine

GROWERS = {"0+1": (0, 1), "1+2": (1, 2), "0+2": (0, 2)}


def wine():
    """Training wines of each silo, and wines of all growers for testing.

    Every second wine is for testing. No silo has seen all three growers, and no wine is in two
    silos: a grower's wines go by turns to the two silos that know it.
    """
    x, grower = load_wine(return_X_y=True)
    x = np.log(x[:, [0, 6, 9, 11, 12]])
    train, test = slice(None, None, 2), slice(1, None, 2)
    silos = {name: [] for name in GROWERS}
    for g in range(3):
        mine = x[train][grower[train] == g]
        for turn, name in enumerate(name for name, pair in GROWERS.items() if g in pair):
            silos[name].append(mine[turn::2])
    return {name: np.concatenate(parts) for name, parts in silos.items()}, x[test]


def start(x, size):
    """Centres of k-means, and the spread of the data: where a fit begins."""
    centre = KMeans(size, n_init=10, random_state=0).fit(x).cluster_centers_
    return {"centre": centre, "scale": np.tile(x.std(axis=0), (size, 1)), "mass": np.ones(size)}


def log_likelihood(medians, x):
    """Mean log-density of wines under the mixture at the medians of its sites."""
    mass, centre, scale = (np.asarray(medians[key]) for key in ("mass", "centre", "scale"))
    parts = norm.logpdf(x[:, None], centre, scale).sum(axis=2)
    return float(logsumexp(parts + np.log(mass / mass.sum()), axis=1).mean())
