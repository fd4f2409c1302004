"""Simulated silos of the paper's appendix A: Gaussian mixtures that share some components.

Two details follow the authors' code, because the text does not define them. Covariances are
``U (c 11' + diag(s)) U'``; ``U`` and ``s <= 1`` decompose a random ``A'A``, and ``c = sqrt(g)`` for
the g-th component, so that each has a long direction. A local covariance is Wishart with ``100 D``
degrees of freedom around the global one.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wishart
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits

_PROCESS = "dirichlet_process"
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


@dataclass(frozen=True)
class Simulation:
    """Settings of the generator.

    Parameters
    ----------
    separation : float
        Means are ``N(0, separation * n_components)`` in each dimension (the paper's ``s``).
    noise : float
        Standard deviation of a silo's means around the global ones (the paper's ``sigma``).
    n_components, dim, n_silos : int
        The paper's G, D and J.
    n_points : int
        Observations in each silo.
    proportions : float
        Concentration of the Dirichlet distribution of a silo's mixture weights.
    homogeneous : bool
        Every silo has every component.
    most_points : int, optional
        Largest silo; sizes are log-uniform from ``n_points`` to it.
    extra_components : int
        Surplus components of a local fit, which then has a Dirichlet-process prior.
    """

    separation: float = 0.5
    noise: float = 0.5
    n_components: int = 5
    dim: int = 10
    n_silos: int = 50
    n_points: int = 300
    proportions: float = 10.0
    homogeneous: bool = False
    most_points: int | None = None
    extra_components: int = 0


@dataclass(frozen=True, eq=False)
class Silos:
    """Simulated data and their true components."""

    means: FloatArray  # (G, D), of the components that some silo uses
    covariances: FloatArray  # (G, D, D)
    data: list[FloatArray]  # (n_points, D) per silo
    components: list[IntArray]  # global components of each silo
    points: list[IntArray]  # the global component of each observation


def simulate(settings: Simulation, rng: np.random.Generator) -> Silos:
    """Draw global components, a subset per silo, and the silos' data."""
    g, d = settings.n_components, settings.dim
    means = rng.normal(scale=np.sqrt(settings.separation * g), size=(g, d))
    covariances = np.stack([_random_covariance(d, np.sqrt(1.0 + k), rng) for k in range(g)])
    frequency = rng.beta(1.0, 1.0, size=g)
    while np.sort(frequency)[-2] < 0.05:  # else hardly any silo has two components
        frequency = rng.beta(1.0, 1.0, size=g)
    data, components, points = [], [], []
    for _ in range(settings.n_silos):
        chosen = np.arange(g) if settings.homogeneous else _subset(frequency, rng)
        n_points = settings.n_points
        if settings.most_points is not None:
            low, high = np.log(n_points), np.log(settings.most_points)
            n_points = int(np.exp(rng.uniform(low, high)))
        local_means = rng.normal(means[chosen], settings.noise)
        proportions = rng.dirichlet(np.full(len(chosen), settings.proportions))
        which = rng.choice(len(chosen), size=n_points, p=proportions)
        x = np.empty((n_points, d))
        for k, component in enumerate(chosen):
            dof = 100 * d
            local = np.atleast_2d(wishart.rvs(dof, covariances[component] / dof, random_state=rng))
            rows = which == k
            x[rows] = rng.multivariate_normal(local_means[k], local, size=int(rows.sum()))
        data.append(x)
        components.append(chosen)
        points.append(chosen[which])
    used = np.unique(np.concatenate(components))
    renumber = np.searchsorted(used, np.arange(g))
    return Silos(
        means[used],
        covariances[used],
        data,
        [renumber[c] for c in components],
        [renumber[p] for p in points],
    )


def fit_mixture(
    x: FloatArray, n_components: int, seed: int, n_init: int = 16, process: bool = False
) -> BayesianGaussianMixture:
    """A silo's local fit: variational inference with Normal-Wishart posteriors.

    Starts are k-means++ seeds. k-means itself repeats the same start. With sixteen of its starts
    one fit in ten misses the best bound by tens of nats. ``process`` selects a
    Dirichlet-process prior of the weights, for fits with surplus components.
    """
    model = BayesianGaussianMixture(
        n_components=n_components,
        n_init=n_init,
        init_params="k-means++",
        max_iter=500,
        weight_concentration_prior_type=_PROCESS if process else "dirichlet_distribution",
        random_state=seed,
    )
    return _fitted(model, x)


def fit_once(x: FloatArray, n_components: int, seed: int) -> BayesianGaussianMixture:
    """One fit from k-means, the default of scikit-learn."""
    model = BayesianGaussianMixture(n_components=n_components, max_iter=500, random_state=seed)
    return _fitted(model, x)


def fit_pooled(x: FloatArray, n_components: int, seed: int, n_init: int) -> BayesianGaussianMixture:
    """One fit of all data, from the best of several starts on a fifth of the data."""
    model = fit_mixture(x[seed % 5 :: 5], n_components, seed, n_init)
    return _fitted(model.set_params(warm_start=True), x)


def _fitted(model: BayesianGaussianMixture, x: FloatArray) -> BayesianGaussianMixture:
    # Threads make operations on such small matrices ten times slower.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x)


def fit_silo(
    settings: Simulation, x: FloatArray, n_components: int, seed: int, n_init: int
) -> BayesianGaussianMixture:
    """A local fit, with surplus components if the settings have them."""
    extra = settings.extra_components
    return fit_mixture(x, n_components + extra, seed, n_init, process=extra > 0)


def hausdorff(estimated: FloatArray, true: FloatArray) -> float:
    """Hausdorff distance between two sets of means, (G', D) and (G, D)."""
    distance = np.linalg.norm(estimated[:, None] - true[None], axis=2)
    return float(max(distance.min(axis=0).max(), distance.min(axis=1).max()))


def _subset(frequency: FloatArray, rng: np.random.Generator) -> IntArray:
    """At least two components, each with its own frequency (Beta-Bernoulli)."""
    while True:
        chosen = np.flatnonzero(rng.random(len(frequency)) < frequency)
        if len(chosen) >= 2:
            return chosen


def _random_covariance(dim: int, spread: float, rng: np.random.Generator) -> FloatArray:
    a = rng.normal(size=(dim, dim))
    u, s, _ = np.linalg.svd(a.T @ a)
    return np.asarray(u @ (spread + np.diag(np.minimum(s, 1.0))) @ u.T)


def true_component(model: BayesianGaussianMixture, x: FloatArray, points: IntArray) -> IntArray:
    """Most frequent true component among each local component's observations; -1 for none."""
    assigned = model.predict(x)
    return np.array(
        [
            np.bincount(points[assigned == k]).argmax() if (assigned == k).any() else -1
            for k in range(model.n_components)
        ],
        dtype=np.intp,
    )
