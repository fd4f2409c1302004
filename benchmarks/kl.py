"""KL matrices against loops over torch's `kl_divergence`, and against the matrix product alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Row, compare, has, measure
from klfusion.families import Dirichlet, Family, Gamma, Normal, NormalWishart

FloatArray = NDArray[np.float64]
DIM = 20
WORDS = 1_000
# Local components and centres per comparison; the last is too large for a loop over pairs.
SHAPES = {"pairs": (300, 30), "centres": (2_000, 100), "product": (20_000, 200)}
QUICK_SHAPES = {"pairs": (50, 10), "centres": (200, 20), "product": (1_000, 50)}
Params = dict[str, FloatArray]
Draw = Callable[[np.random.Generator, int], Params]


def _covariances(rng: np.random.Generator, n: int) -> FloatArray:
    half = rng.normal(size=(n, DIM, DIM + 5))
    return np.asarray(half @ half.swapaxes(1, 2) / DIM)


def _normal_wishart(rng: np.random.Generator, n: int) -> Params:
    return {
        "mean": rng.normal(size=(n, DIM)), "kappa": rng.gamma(5.0, 10.0, size=n),
        "scale_inv": DIM * _covariances(rng, n), "dof": DIM + rng.gamma(5.0, 10.0, size=n),
    }  # fmt: skip


def _normal(rng: np.random.Generator, n: int) -> Params:
    return {"mean": rng.normal(size=(n, DIM)), "covariance": _covariances(rng, n)}


def _dirichlet(rng: np.random.Generator, n: int) -> Params:
    return {"concentration": rng.gamma(0.5, 20.0, size=(n, WORDS)) + 0.1}


def _gamma(rng: np.random.Generator, n: int) -> Params:
    return {key: rng.gamma(5.0, 2.0, size=(n, DIM)) for key in ("shape", "rate")}


# Family, random parameters, and torch's class if torch has the divergence.
FAMILIES: dict[str, tuple[Family, Draw, str | None]] = {
    f"Normals, {DIM} dimensions": (Normal(DIM), _normal, "MultivariateNormal"),
    f"Dirichlets, {WORDS:,} words": (Dirichlet(WORDS), _dirichlet, "Dirichlet"),
    f"Gammas, {DIM} dimensions": (Gamma(DIM), _gamma, "Gamma"),
    f"Normal-Wisharts, {DIM} dimensions": (NormalWishart(DIM), _normal_wishart, None),
}


def torch_kl(name: str, centres: Params, locals_: Params, batched: bool) -> FloatArray:
    """``KL(centre || local)`` as a matrix, by a loop over pairs or over centres."""
    import torch
    from torch import distributions as d

    def make(params: Params, rows: Any) -> Any:
        values = [torch.from_numpy(np.asarray(v[rows])) for v in params.values()]
        made = getattr(d, name)(*values, validate_args=False)
        return d.Independent(made, 1, validate_args=False) if name == "Gamma" else made

    n, n_centres = (len(next(iter(side.values()))) for side in (locals_, centres))
    if batched:
        every = make(locals_, slice(None))
        columns = [d.kl_divergence(make(centres, slice(g, g + 1)), every) for g in range(n_centres)]
        return np.asarray(torch.stack(columns, dim=1).numpy())
    first, second = (
        [make(p, i) for i in range(m)] for p, m in ((centres, n_centres), (locals_, n))
    )
    return np.array([[float(d.kl_divergence(g, i)) for g in first] for i in second])


def run(quick: bool = False) -> list[Row]:
    """Each family against the loop over pairs, the loop over centres, and the product alone."""
    shapes, loops = (QUICK_SHAPES if quick else SHAPES), has("torch")
    rows = []
    for what, (family, draw, torch_name) in FAMILIES.items():
        for against, (n, n_centres) in shapes.items():
            rng = np.random.default_rng(0)
            centres, locals_ = draw(rng, n_centres), draw(rng, n)
            problem = f"KL matrix of {n:,} x {n_centres} {what}"
            if against == "product":
                rows.append(_against_product(problem, family, centres, locals_))
            elif loops and torch_name is not None:
                rows.append(_against_loop(problem, family, centres, locals_, torch_name, against))
    return rows


def _against_product(problem: str, family: Family, centres: Params, locals_: Params) -> Row:
    first, second = family.natural(**centres), family.natural(**locals_)
    known, mean = family.log_partition(second), family.mean(first)
    ours = measure(lambda: family.kl_from(first, second, known), repeats=9)
    bare = measure(lambda: second @ mean.T, repeats=9)
    return compare(problem, "bare matrix product (the limit)", ours, bare)


def _against_loop(
    problem: str, family: Family, centres: Params, locals_: Params, torch_name: str, over: str
) -> Row:
    first, second = family.natural(**centres), family.natural(**locals_)
    ours = measure(lambda: family.kl_from(first, second), repeats=5)
    peer = measure(lambda: torch_kl(torch_name, centres, locals_, batched=over == "centres"))
    error = np.abs(ours.result / peer.result - 1.0).max()
    name = f"torch.distributions.kl_divergence, loop over {over}"
    return compare(problem, name, ours, peer, note=f"equal to {error:.0e}")
