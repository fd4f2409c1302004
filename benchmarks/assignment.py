"""Assignment at fixed costs against cvxpy, the KL matrix against a bare product, whole fusions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import klfusion as kf
from benchmarks.conic import fuse_conic, solve_conic
from benchmarks.timing import timed
from experiments.simulation import Simulation, fit_mixture, simulate
from klfusion.assignment.exact import binary_objective, solve_exact
from klfusion.assignment.relaxed import certified_bound, solve_relaxed
from klfusion.families import NormalWishart
from klfusion.problem import FusionProblem

FloatArray = NDArray[np.float64]
Row = dict[str, Any]


def simulated_costs(
    n_silos: int, n_true: int, largest: int, n_candidates: int, seed: int = 0
) -> tuple[FloatArray, NDArray[np.intp], list[slice]]:
    """Squared distances, of unit standard deviation, of noisy local points to candidates."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(n_true, 10))
    sizes = rng.integers(2, largest + 1, size=n_silos)
    points = np.concatenate(
        [true[rng.permutation(n_true)[:n]] + 0.5 * rng.normal(size=(n, 10)) for n in sizes]
    )
    chosen = [int(rng.integers(len(points)))]
    nearest = np.square(points - points[chosen[0]]).sum(axis=1)
    while len(chosen) < n_candidates:
        chosen.append(int(rng.choice(len(points), p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, np.square(points - points[chosen[-1]]).sum(axis=1))
    costs = np.square(points[:, None] - points[chosen][None]).sum(axis=2)
    edges = np.concatenate([[0], np.cumsum(sizes)])
    silos = [slice(int(a), int(b)) for a, b in pairwise(edges)]
    return costs / costs.std(), np.repeat(np.arange(n_silos), sizes), silos


def _exact_and_relaxed(shape: tuple[int, int, int, int], penalty: float) -> list[Row]:
    costs, silo, silos = simulated_costs(*shape)
    name = f"{shape[0]} silos x {shape[3]} candidates, penalty {penalty}"
    exact = timed(lambda: solve_exact(costs, silos, penalty), repeats=5)
    relaxed = timed(lambda: solve_relaxed(costs, silo, penalty), repeats=5)
    bound = certified_bound(costs, silo, penalty, exact.result.labels, tol=1e-5)
    rows = []
    for solver in ("CLARABEL", "SCS"):
        peer = timed(lambda solver=solver: solve_conic(costs, silo, penalty, solver))  # type: ignore[misc]
        exact_value = binary_objective(costs, exact.result.labels, penalty)
        rows += [
            {
                "problem": f"exact: {name}", "peer": f"cvxpy + {solver}",
                "ours_s": exact.seconds, "peer_s": peer.seconds,
                "ratio": peer.seconds / exact.seconds,
                "objective": exact_value, "peer_objective": peer.result[1],
                "lower_bound": bound, "gap": exact_value / bound - 1.0,
            },
            {
                "problem": f"relaxed: {name}", "peer": f"cvxpy + {solver}",
                "ours_s": relaxed.seconds, "peer_s": peer.seconds,
                "ratio": peer.seconds / relaxed.seconds,
                "objective": relaxed.result.objective, "peer_objective": peer.result[1],
                "lower_bound": relaxed.result.lower_bound, "gap": relaxed.result.gap,
            },
        ]  # fmt: skip
    return rows


def _random_normal_wisharts(family: NormalWishart, n: int, rng: np.random.Generator) -> FloatArray:
    d = family.dim
    half = rng.normal(size=(n, d, d + 5))
    return family.natural(
        mean=rng.normal(size=(n, d)),
        kappa=rng.gamma(5.0, 10.0, size=n),
        scale_inv=half @ half.swapaxes(1, 2),
        dof=d + rng.gamma(5.0, 10.0, size=n),
    )


def _kl_matrix() -> Row:
    family, rng = NormalWishart(20), np.random.default_rng(0)
    centres = _random_normal_wisharts(family, 200, rng)
    locals_ = _random_normal_wisharts(family, 20_000, rng)
    known = family.log_partition(locals_)
    mean = family.mean(centres)
    ours = timed(lambda: family.kl_from(centres, locals_, known), repeats=9)
    bare = timed(lambda: locals_ @ mean.T, repeats=9)
    return {
        "problem": "KL matrix of 20,000 x 200 Normal-Wisharts, 20 dimensions",
        "peer": "bare matrix product (the limit)",
        "ours_s": ours.seconds, "peer_s": bare.seconds, "ratio": bare.seconds / ours.seconds,
    }  # fmt: skip


def _whole_fusion(n_candidates: int) -> Row:
    """The paper's simulation: 50 silos fitted by scikit-learn, 5 true components, 10 dimensions."""
    simulated = simulate(Simulation(), np.random.default_rng(0))
    silos = [
        kf.extract(fit_mixture(x, len(components), seed=0, n_init=8), name=f"silo-{j}")
        for j, (x, components) in enumerate(zip(simulated.data, simulated.components, strict=True))
    ]
    natural = np.concatenate([s.natural for s in silos])
    silo = np.repeat(np.arange(len(silos)), [s.n_components for s in silos])
    problem = FusionProblem(silos[0].family, natural, silo, np.ones(len(silo))).centred()
    ours = timed(lambda: kf.fuse(silos), repeats=9)
    peer = timed(lambda: fuse_conic(problem, n_candidates, "SCS"))
    return {
        "problem": f"whole fusion, 50 silos, 5 components, peer with {n_candidates} candidates",
        "peer": f"the paper's alternation, cvxpy + SCS ({peer.result[0]} iterations)",
        "ours_s": ours.seconds, "peer_s": peer.seconds, "ratio": peer.seconds / ours.seconds,
        "components": ours.result.n_components, "true_components": len(simulated.means),
    }  # fmt: skip


def run(quick: bool = False) -> list[Row]:
    """All rows; ``quick`` leaves out the large problems."""
    shapes = [(50, 5, 5, 15), (50, 20, 10, 60)] + ([] if quick else [(200, 20, 10, 60)])
    rows = [
        row
        for shape in shapes
        for penalty in (0.1, 0.5)
        for row in _exact_and_relaxed(shape, penalty)
    ]
    return [*rows, _kl_matrix(), *(_whole_fusion(n) for n in (15, 60))]
