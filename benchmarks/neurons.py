"""Hidden units of five networks, 750 x 795, against SPAHM and PFNM: time and size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import klfusion as kf
from benchmarks.measure import Measured, Row, compare, measure

N_SILOS = 5
N_IN, N_OUT = 784, 10  # with the bias, 795 weights per unit
# Units per silo, and global units from which each silo has a subset.
SIZES, QUICK_SIZES = (150, 300), (20, 40)
NOISE = 0.5  # standard deviation of a silo's weights, relative to that of the global weights

Moments = tuple[NDArray[np.float64], NDArray[np.float64]]


def simulated(size: int, total: int, seed: int = 0) -> tuple[list[Moments], int]:
    """Means and variances of each silo's units, and the number of distinct global units."""
    rng = np.random.default_rng(seed)
    dim = N_IN + 1 + N_OUT
    weights = rng.normal(size=(total, dim))
    silos, seen = [], set()
    for _ in range(N_SILOS):
        chosen = rng.permutation(total)[:size]
        seen |= set(chosen.tolist())
        mean = weights[chosen] + NOISE * rng.normal(size=(size, dim))
        silos.append((mean, np.exp(rng.normal(-3.0, 0.5, size=mean.shape))))
    return silos, len(seen)


def as_posteriors(silos: list[Moments]) -> list[kf.Posterior]:
    """Diagonal Normals without structure."""
    family = kf.families.DiagonalNormal(N_IN + 1 + N_OUT)
    return [kf.Posterior(family, family.natural(*s), name=f"silo-{j}") for j, s in enumerate(silos)]


def as_networks(silos: list[Moments]) -> dict[str, dict[str, Any]]:
    """Networks with these hidden units: incoming weights, bias, outgoing weights."""
    bias = np.zeros(N_OUT), np.full(N_OUT, 0.1)

    def layers(mean: Any, variance: Any) -> dict[str, Any]:
        both = np.stack([mean, variance])
        return {
            "fc1.weight": tuple(both[:, :, :N_IN]), "fc1.bias": tuple(both[:, :, N_IN]),
            "fc2.weight": tuple(both[:, :, N_IN + 1 :].swapaxes(1, 2)), "fc2.bias": bias,
        }  # fmt: skip

    return {f"silo-{j}": layers(*silo) for j, silo in enumerate(silos)}


def run(quick: bool = False) -> list[Row]:
    """The default on posteriors against SPAHM, and on networks against PFNM."""
    size, total = QUICK_SIZES if quick else SIZES
    silos, truth = simulated(size, total)
    posteriors, networks = as_posteriors(silos), as_networks(silos)
    shape = f"{N_SILOS} x {size} of {N_IN + 1 + N_OUT} weights"

    def row(problem: str, peer: str, ours: Measured, theirs: Measured) -> Row:
        sizes = [side.result.n_components for side in (ours, theirs)]
        return compare(
            f"{problem}, {shape}", peer, ours, theirs,
            size=sizes[0], peer_size=sizes[1], true_size=truth,
            note=f"size {sizes[0]} of {truth}, peer {sizes[1]}",
        )  # fmt: skip

    return [
        row(
            "neurons as posteriors", "SPAHM",
            measure(lambda: kf.fuse(posteriors), repeats=3),
            measure(lambda: kf.baselines.spahm(posteriors)),
        ),
        row(
            "neurons as networks", "PFNM, given the true variances",
            measure(lambda: kf.fuse(networks), repeats=3),
            measure(
                lambda: kf.baselines.pfnm(networks, variance=NOISE**2, prior_variance=1.0)
            ),
        ),
    ]  # fmt: skip
