"""Addition of one silo to a fusion of 1,000, against a new fusion of 1,001."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

import klfusion as kf
from benchmarks.measure import Row, compare, measure


def silos(n_silos: int, dim: int, n_true: int = 5, seed: int = 0) -> list[kf.Posterior]:
    """Normal-Wishart posteriors with a random subset of ``n_true`` components per silo."""
    rng = np.random.default_rng(seed)
    family = kf.families.NormalWishart(dim)
    means = rng.normal(scale=3.0, size=(n_true, dim))
    made = []
    for j in range(n_silos):
        chosen = rng.permutation(n_true)[: rng.integers(2, n_true + 1)]
        count = rng.uniform(40, 200, size=len(chosen))
        natural = family.natural(
            mean=means[chosen] + rng.normal(scale=0.1, size=(len(chosen), dim)),
            kappa=1.0 + count,
            scale_inv=count[:, None, None] * np.eye(dim),
            dof=dim + count,
        )
        made.append(kf.Posterior(family, natural, name=f"silo-{j}", counts=count))
    return made


def run(quick: bool = False) -> list[Row]:
    """Two rows per change and dimension; the peer is `klfusion.fuse` on all silos.

    The first change of a fusion reads all of its silos. Later changes do not.
    """
    n_silos, rows = (100 if quick else 1000), []
    for dim in (3, 10):
        given = silos(n_silos + 1, dim)
        anew = measure(partial(kf.fuse, given[:-1]), repeats=3)
        changes: dict[str, kf.Posterior | str] = {"add": given[-1], "remove": given[0].name}
        for what, subject in changes.items():
            problem = f"{what} one of {n_silos} silos, {dim} dimensions"
            first = measure(partial(_first, anew.result, what, subject), repeats=5)
            rows.append(compare(f"{problem}, first change", "fusing anew", first, anew))
            change = partial(getattr(anew.result, what), subject)
            change()
            rows.append(compare(problem, "fusing anew", measure(change, repeats=5), anew))
    return rows


def _first(fusion: kf.Fusion, what: str, subject: kf.Posterior | str) -> kf.Fusion:
    changed: kf.Fusion = getattr(replace(fusion), what)(subject)
    return changed
