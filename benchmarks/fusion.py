"""Whole fusions against the paper's algorithm in cvxpy, SPAHM, and POT's mixture barycenter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import klfusion as kf
from benchmarks.measure import Row, compare, has, measure
from experiments.simulation import Silos, Simulation, fit_mixture, hausdorff, simulate
from klfusion.families import Located, require
from klfusion.methods.search import kl_plus_plus
from klfusion.objective.problem import FusionProblem

FloatArray = NDArray[np.float64]
N_SILOS, QUICK_SILOS = 50, 8
POT_ITERATIONS = 10  # its means converge long before the default of 100


def fitted(n_silos: int, seed: int = 0) -> tuple[list[kf.Posterior], Silos]:
    """The paper's simulation (5 components, 10 dimensions), fitted by scikit-learn."""
    simulated = simulate(Simulation(n_silos=n_silos), np.random.default_rng(seed))
    silos = [
        kf.extract(fit_mixture(x, len(components), seed=0, n_init=8), name=f"silo-{j}")
        for j, (x, components) in enumerate(zip(simulated.data, simulated.components, strict=True))
    ]
    return silos, simulated


def stacked(silos: list[kf.Posterior]) -> FusionProblem:
    """All components in one array, as the paper's algorithm needs them."""
    natural = np.concatenate([s.natural for s in silos])
    silo = np.repeat(np.arange(len(silos)), [s.n_components for s in silos])
    return FusionProblem(silos[0].family, natural, silo, np.ones(len(silo)))


def pot_barycenter(silos: list[kf.Posterior], size: int) -> FloatArray:
    """Means of POT's barycenter of the silos' mixtures, from KL k-means++ seeds."""
    from ot.gmm import gmm_barycenter_fixed_point

    means, covariances, weights = [], [], []
    for silo in silos:
        params = silo.params()
        assert silo.counts is not None  # mixtures of scikit-learn have counts
        means.append(params["mean"])
        covariances.append(params["scale_inv"] / params["dof"].reshape(-1, 1, 1))
        weights.append(silo.counts / silo.counts.sum())
    rows = kl_plus_plus(stacked(silos), size, np.random.default_rng(0))
    found = gmm_barycenter_fixed_point(
        means, covariances, weights,
        np.concatenate(means)[rows], np.concatenate(covariances)[rows],
        np.full(len(silos), 1.0 / len(silos)), iterations=POT_ITERATIONS,
    )  # fmt: skip
    return np.asarray(found[0])


def run(quick: bool = False) -> list[Row]:
    """One row per peer; ``quick`` has few silos."""
    n_silos = QUICK_SILOS if quick else N_SILOS
    silos, truth = fitted(n_silos)
    ours = measure(lambda: kf.fuse(silos), repeats=9)
    given = measure(lambda: kf.fuse(silos, n_components=len(truth.means)), repeats=9)
    problem = f"whole fusion, {n_silos} silos, 5 components, 10 dimensions"

    def row(peer: str, call: Callable[[], Any], means: Callable[[Any], FloatArray]) -> Row:
        """Compare with a peer; ``means`` extracts the means of its result."""
        side = given if "size given" in peer else ours
        theirs = measure(call)
        off = [hausdorff(m, truth.means) for m in (_means(side.result), means(theirs.result))]
        return compare(
            f"{problem}{', size given' * (side is given)}", peer, side, theirs,
            hausdorff=off[0], peer_hausdorff=off[1],
            note=f"size {side.result.n_components} of {len(truth.means)}, peer "
            f"{len(means(theirs.result))}; means off by {off[0]:.2f}, peer {off[1]:.2f}",
        )  # fmt: skip

    rows = [row("SPAHM", lambda: kf.baselines.spahm(silos), _means)]
    if has("ot"):
        peer = f"POT, Gaussian-mixture barycenter, size given, {POT_ITERATIONS} iterations"
        call = partial(pot_barycenter, silos, len(truth.means))
        rows.append(row(peer, call, lambda found: found))
    if has("cvxpy"):
        from benchmarks.conic import fuse_conic

        for n in (15,) if quick else (15, 60):
            name = f"the paper's alternation, cvxpy + SCS, {n} candidates"
            call = partial(fuse_conic, stacked(silos), n, "SCS")
            family = require(silos[0].family, Located, name)
            rows.append(row(name, call, family.location))
    return rows


def _means(fusion: kf.Fusion) -> FloatArray:
    return fusion.posterior.params()["mean"]
