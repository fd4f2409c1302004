"""Wines of three growers over three silos, and what the medians of a mixture say of them."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine

import klfusion as kf

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


def compare(fit, pooled=True):
    """Fusion of the silos' fits, and held-out log-likelihoods of each model.

    ``fit(x, size, name)`` gives a posterior and the medians of its sites. Prints the figures of
    the documentation: run with ``-s`` to see them.
    """
    silos, test = wine()
    fits = {name: fit(x, 2, name) for name, x in silos.items()}
    fusion = kf.fuse([posterior for posterior, _ in fits.values()])
    score = {name: log_likelihood(medians, test) for name, (_, medians) in fits.items()}
    if pooled:
        _, medians = fit(np.concatenate(list(silos.values())), 3, "pooled")
        score["pooled"] = log_likelihood(medians, test)
    fused = {name: site["median"] for name, site in fusion.model().items()}
    score["fused"] = log_likelihood(fused, test)
    rounded = {name: round(value, 3) for name, value in score.items()}
    print(f"\n{fusion.n_components} components: {rounded}")  # noqa: T201
    return fusion, score
