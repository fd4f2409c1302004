"""The golden problems: which silos, and which call fuses them.

Every call with settings stands in `CALLS`, in `UPDATES` or in `from_files`, so that a change of the
signature of `fuse` is a change of this file alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import klfusion as kf
from benchmarks.trace import hospitals

from . import makers


def from_files(silos, **settings):
    """Fuse files, with no more memory than is allowed at least."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{silo.name}.safetensors" for silo in silos]
        for path, silo in zip(paths, silos, strict=True):
            kf.save(path, silo)
        return kf.fuse_files(paths, memory_limit="64MB", **settings)


def saved(fusion):
    """The fusion, written to a file and read again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fusion.safetensors"
        kf.save(path, fusion)
        return kf.load(path)


CALLS: dict[str, Callable[[Any], kf.Fusion]] = {
    "default": kf.fuse,
    "exact": lambda silos: kf.fuse(silos, method="binary"),
    "exact, penalty 20": lambda silos: kf.fuse(silos, method=kf.Binary(penalty=20.0)),
    "exact, 12 components": lambda silos: kf.fuse(silos, method="binary", n_components=12),
    "relaxed": lambda silos: kf.fuse(silos, method="relaxed"),
    "relaxed, penalty 20": lambda silos: kf.fuse(silos, method=kf.Relaxed(penalty=20.0)),
    "relaxed, 12 components": lambda silos: kf.fuse(silos, method="relaxed", n_components=12),
    "homogeneous": lambda silos: kf.fuse(silos, method="homogeneous"),
    "5 components": lambda silos: kf.fuse(silos, n_components=5),
    "10 components": lambda silos: kf.fuse(silos, n_components=10),
    "8 components": lambda silos: kf.fuse(silos, n_components=8),
    "15 components": lambda silos: kf.fuse(silos, n_components=15),
    "9 and 7 components": lambda silos: kf.fuse(silos, n_components=[9, 7]),
    "penalty 5": lambda silos: kf.fuse(silos, method=kf.Penalised(5.0)),
    "penalty 500": lambda silos: kf.fuse(silos, method=kf.Penalised(500.0)),
    "exact, penalty 500": lambda silos: kf.fuse(silos, method=kf.Binary(penalty=500.0)),
    "40 components": lambda silos: kf.fuse(silos, n_components=40),
    "max_loss 0.05": lambda silos: kf.fuse(silos, method=kf.MaxLoss(0.05)),
    "within silos": lambda silos: kf.fuse(silos, method=kf.MaxLoss(within_silos=True)),
    "within silos, 3 components": lambda silos: kf.fuse(
        silos, method=kf.MaxLoss(within_silos=True), n_components=3
    ),
    "within silos, max_loss 0.5": lambda silos: kf.fuse(
        silos, method=kf.MaxLoss(0.5, within_silos=True)
    ),
    "weights": lambda silos: kf.fuse(silos, weights=[1.0, 2.0, 0.5, 3.0, 1.5, 0.7]),
    "min_support 3": lambda silos: kf.fuse(silos).with_min_support(3),
    "3 starts, state 7": lambda silos: kf.fuse(silos, method=kf.Auto(n_init=3), random_state=7),
    "2 sweeps": lambda silos: kf.fuse(silos, method=kf.Binary(max_iter=2, tol=1e-3)),
    "product": lambda silos: kf.fuse(silos, pooling="product"),
    "average": lambda silos: kf.fuse(silos, pooling="average"),
    "random-effects": lambda silos: kf.fuse(silos, pooling="random-effects"),
    "hierarchical": lambda silos: kf.fuse(silos, pooling="hierarchical"),
    "robust": lambda silos: kf.fuse(silos, pooling="robust"),
    "kl-reverse": lambda silos: kf.fuse(silos, method=kf.Auto(divergence="kl-reverse")),
    "jeffreys": lambda silos: kf.fuse(silos, method=kf.Auto(divergence="jeffreys")),
    "jeffreys, penalty 2": lambda silos: kf.fuse(
        silos, method=kf.Penalised(2.0, divergence="jeffreys")
    ),
    "euclidean-natural": lambda silos: kf.fuse(
        silos, method=kf.Auto(divergence="euclidean-natural")
    ),
    "euclidean-mean": lambda silos: kf.fuse(silos, method=kf.Auto(divergence="euclidean-mean")),
    "wasserstein": lambda silos: kf.fuse(silos, method=kf.Auto(divergence="wasserstein")),
    "files": from_files,
    "files, 15 components": lambda silos: from_files(silos, n_components=15),
    "saved": lambda silos: saved(kf.fuse(silos)),
    "spahm": kf.baselines.spahm,
    "dp_clustering": kf.baselines.dp_clustering,
    "amps": kf.baselines.amps,
    "pfnm": kf.baselines.pfnm,
}
# What is done with a fusion of all silos but the last.
UPDATES: dict[str, Callable[[kf.Fusion, Any], kf.Fusion]] = {
    "add": lambda fusion, last: fusion.add(last),
    "add, weight 2": lambda fusion, last: fusion.add(last, weight=2.0),
    "add, rematch": lambda fusion, last: fusion.add(last, rematch=True),
    "remove": lambda fusion, last: fusion.remove("silo-1"),
    "remove, rematch": lambda fusion, last: fusion.remove("silo-1", rematch=True),
    "add and remove": lambda fusion, last: fusion.add(last).remove("silo-0"),
    "at 8 components": lambda fusion, last: fusion.at(n_components=8),
    "at 12 components": lambda fusion, last: fusion.at(n_components=12),
    "at penalty 100": lambda fusion, last: fusion.at(penalty=100.0),
    "fusion as a silo": lambda fusion, last: kf.fuse({"before": fusion, "last": last}),
}


def updated(name, silos):
    """Fuse all silos but the last, then update."""
    if isinstance(silos, dict):
        silos = [kf.extract(model, name=key) for key, model in silos.items()]
    return UPDATES[name](kf.fuse(silos[:-1]), silos[-1])


@dataclass(frozen=True)
class Problem:
    """Silos, the call that fuses them, and the library without which there are none."""

    silos: Callable[[], Any]
    call: Callable[[Any], kf.Fusion] = CALLS["default"]
    needs: str | None = None

    def solve(self) -> kf.Fusion:
        return self.call(self.silos())


COVARIANCES = ("full", "tied", "diag", "spherical")
families = kf.families
FAMILIES = {
    "Beta": families.Beta(3),
    "Categorical": families.Categorical(6),
    "DiagonalNormal": families.DiagonalNormal(4),
    "Dirichlet": families.Dirichlet(6),
    "Gamma": families.Gamma(3),
    "InverseGamma": families.InverseGamma(3),
    "IsotropicNormalGamma": families.IsotropicNormalGamma(2),
    "Normal": families.Normal(3),
    "NormalGamma": families.NormalGamma(3),
    "NormalWishart": families.NormalWishart(3),
    "Wishart": families.Wishart(3),
    "Product": families.Product(place=families.NormalWishart(2), words=families.Dirichlet(4)),
    "Product of one": families.Product(x=families.NormalWishart(3)),
    "Product of products": families.Product(
        rate=families.Gamma(2),
        inner=families.Product(share=families.Beta(2), noise=families.Wishart(2)),
    ),
}
# Calls on six silos of Normal-Wishart posteriors.
ON_SIX_SILOS = (
    "exact", "exact, penalty 20", "exact, penalty 500", "exact, 12 components", "10 components",
    "15 components", "penalty 5", "penalty 500", "max_loss 0.05", "within silos",
    "within silos, 3 components", "within silos, max_loss 0.5", "weights", "min_support 3",
    "3 starts, state 7", "2 sweeps", "kl-reverse", "euclidean-natural", "euclidean-mean", "files",
    "files, 15 components", "saved", "spahm", "dp_clustering",
)  # fmt: skip


def _problems() -> dict[str, Problem]:
    found = {"README": Problem(hospitals)}
    for kind in COVARIANCES:
        found[f"Bayesian mixtures, {kind}"] = Problem(partial(makers.bayesian_silos, kind))
        found[f"point mixtures, {kind}"] = Problem(partial(makers.point_silos, kind))
        found[f"hmmlearn, {kind}"] = Problem(
            partial(makers.hmmlearn_chains, kind), needs="hmmlearn"
        )
    for kind in ("full", "diag"):
        found[f"over-fitted, {kind}"] = Problem(partial(makers.over_fitted_silos, kind))
    found |= {
        "over-fitted, Dirichlet process": Problem(
            partial(makers.over_fitted_silos, "full", process=True)
        ),
        "over-fitted points": Problem(makers.over_fitted_points),
        "over-fitted, exact": Problem(partial(makers.over_fitted_silos, "full"), CALLS["exact"]),
        "two clusters in one component": Problem(makers.mixed_silos),
        "small components": Problem(makers.small_components),
        "silos of unequal size": Problem(makers.unequal_silos),
    }
    for name, family in FAMILIES.items():
        found[name] = Problem(partial(makers.family_silos, family, n_true=8, noise=0.15))
    for n_silos in (1, 2, 3, 20, 60):
        found[f"silos: {n_silos}"] = Problem(partial(makers.wishart_silos, n_silos))
    found |= {
        "one silo, within silos": Problem(
            partial(makers.wishart_silos, 1), CALLS["within silos, 3 components"]
        ),
        "counts unknown": Problem(partial(makers.wishart_silos, known=False)),
        "two silos that vary much": Problem(
            partial(
                makers.family_silos,
                families.DiagonalNormal(40),
                n_silos=2,
                n_true=12,
                seed=1,
                size=8,
                noise=2.0,
            )
        ),
        "one component per silo": Problem(makers.single_components),
        "nothing shared": Problem(makers.no_sharing),
        "all shared": Problem(partial(makers.wishart_silos, size=12)),
        "sampled silos": Problem(makers.many_silos),
        "sampled silos that vary": Problem(partial(makers.many_silos, noise=0.15)),
        "sampled silos, penalty 500": Problem(makers.many_silos, CALLS["penalty 500"]),
        "sampled silos, 40 components": Problem(makers.many_silos, CALLS["40 components"]),
        "sampled silos, files": Problem(makers.many_silos, CALLS["files"]),
        "sampled silos, rare components": Problem(makers.rare_components),
        "large files": Problem(makers.large_files, CALLS["files"]),
        "never in one silo": Problem(makers.never_in_one_silo),
        "probabilistic program": Problem(makers.program_sites),
    }
    found["six silos"] = Problem(makers.wishart_silos)
    for name in ON_SIX_SILOS:
        found[f"six silos, {name}"] = Problem(makers.wishart_silos, CALLS[name])
    for name in (name for name in UPDATES if name != "at 8 components"):
        found[f"six silos, {name}"] = Problem(makers.wishart_silos, partial(updated, name))
    # Elsewhere the relaxation shares one component between several copies of it, and the last
    # digits decide which copy is which.
    clear = partial(makers.wishart_silos, n_true=8, noise=0.05)
    for name in ("relaxed", "relaxed, penalty 20", "relaxed, 12 components"):
        found[f"clear components, {name}"] = Problem(clear, CALLS[name])
    for name in ("add", "remove", "at 8 components"):
        update = partial(updated, name)
        found[f"over-fitted, {name}"] = Problem(partial(makers.over_fitted_silos, "full"), update)
        found[f"HMM of symbols, {name}"] = Problem(makers.categorical_chains, update)
        found[f"topics, own vocabularies, {name}"] = Problem(makers.own_vocabularies, update)
    for name in ("default", "average", "product", "random-effects", "hierarchical"):
        found[f"pooling {name}"] = Problem(makers.prior_silos, CALLS[name])
    normals = partial(makers.family_silos, families.Normal(3), n_true=8, noise=0.15)
    diagonal = partial(makers.family_silos, families.DiagonalNormal(4), n_true=8, noise=0.15)
    return found | {
        "pooling default, foreign priors": Problem(makers.foreign_priors, CALLS["default"]),
        "pooling robust": Problem(makers.hostile_silos, CALLS["robust"]),
        "homogeneous": Problem(partial(makers.wishart_silos, size=8), CALLS["homogeneous"]),
        "wasserstein": Problem(normals, CALLS["wasserstein"]),
        "jeffreys": Problem(diagonal, CALLS["jeffreys"]),
        "jeffreys, penalty 2": Problem(diagonal, CALLS["jeffreys, penalty 2"]),
        "wasserstein, diagonal": Problem(diagonal, CALLS["wasserstein"]),
        "pooling random-effects, diagonal": Problem(diagonal, CALLS["random-effects"]),
        "HMM": Problem(makers.gaussian_chains),
        "HMM, 15 components": Problem(makers.gaussian_chains, CALLS["15 components"]),
        "HMM of symbols": Problem(makers.categorical_chains),
        "StickyHDPHMM": Problem(makers.sticky_hmm),
        "topics": Problem(makers.topic_silos),
        "topics, 8 components": Problem(makers.topic_silos, CALLS["8 components"]),
        "topics, 5 components": Problem(makers.topic_silos, CALLS["5 components"]),
        "topics, max_loss 0.05": Problem(makers.topic_silos, CALLS["max_loss 0.05"]),
        "topics, penalty 500": Problem(makers.topic_silos, CALLS["penalty 500"]),
        "topics, amps": Problem(makers.topic_silos, CALLS["amps"]),
        "vague topics": Problem(makers.vague_topics),
        "vague topics, 5 components": Problem(makers.vague_topics, CALLS["5 components"]),
        "topics, own vocabularies": Problem(makers.own_vocabularies),
        "gensim": Problem(makers.gensim_topics, needs="gensim"),
        "network": Problem(partial(makers.networks, (6,))),
        "network, 8 components": Problem(partial(makers.networks, (6,)), CALLS["8 components"]),
        "network, exact": Problem(partial(makers.networks, (6,)), CALLS["exact"]),
        "network, pfnm": Problem(partial(makers.networks, (6,)), CALLS["pfnm"]),
        "network, counts unknown": Problem(partial(makers.networks, (6,), counted=False)),
        "network, own classes": Problem(makers.own_classes),
        "wide network": Problem(partial(makers.networks, (30,))),
        "network, idle units": Problem(partial(makers.idle_units, (9,))),
        "deep network, idle units": Problem(partial(makers.idle_units, (9, 6))),
        "network, add": Problem(partial(makers.networks, (6,)), partial(updated, "add")),
        "deep network": Problem(partial(makers.networks, (6, 5))),
        "deep network, 9 and 7 components": Problem(
            partial(makers.networks, (6, 5)), CALLS["9 and 7 components"]
        ),
    }


PROBLEMS = _problems()
