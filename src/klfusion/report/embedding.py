"""A map of components in a plane by their divergences, and the confidence of each match."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.families import Family, Tempered
from klfusion.fusion.result import Fusion
from klfusion.posteriors.compatibility import align
from klfusion.posteriors.posterior import Posterior
from klfusion.report.views import rounded, short

MAX_GLOBAL, MAX_LOCAL = 150, 400  # marks that remain distinguishable on one map
_SWEEPS = 40  # of the majorisation
_GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))


def local_natural(fusion: Fusion, silos: Sequence[Posterior]) -> FloatArray:
    """Natural parameters (n, p) of all local components of the silos that were fused."""
    return np.concatenate([silo.natural for silo in local_silos(fusion, silos)])


def local_silos(fusion: Fusion, silos: Sequence[Posterior]) -> list[Posterior]:
    """The silos that were fused, aligned, in the order of the fusion."""
    if not (isinstance(silos, Sequence) and all(isinstance(silo, Posterior) for silo in silos)):
        raise KLFusionError(f"silos: expected a list of the posteriors fused, got {silos!r}")
    expected = {n: len(own) for n, own in zip(fusion.silo_names, fusion.labels, strict=True)}
    got = {silo.name: silo.n_components for silo in silos}
    if got != expected:
        wrong = sorted(set(got.items()) ^ set(expected.items()))[0][0]
        raise KLFusionError(
            f"silo {wrong!r}: expected the silos that were fused, with "
            f"{expected.get(wrong, 'no')} components there, got {got.get(wrong, 'none')}"
        )
    aligned = {silo.name: silo for silo in align(silos)}
    family = fusion.posterior.family
    for silo in aligned.values():
        if silo.family != family:
            raise KLFusionError(f"silo {silo.name!r}: expected {family}, got {silo.family}")
    return [aligned[name] for name in fusion.silo_names]


def local_arrays(fusion: Fusion) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Label, divergence, silo and number in its silo of every local component."""
    sizes = [len(labels) for labels in fusion.labels]
    silo = np.repeat(np.arange(fusion.n_silos), sizes)
    local = np.concatenate([np.arange(n) for n in sizes])
    return np.concatenate(fusion.labels), np.concatenate(fusion.divergences), silo, local


def centres_of(fusion: Fusion, natural: FloatArray | None) -> FloatArray:
    """Global components (G, p) to compare with local ones, as certain as these.

    Pooling ``"auto"`` makes components of all data; averages, or their shares, stand for them.
    """
    family, centres, size = fusion.posterior.family, fusion.posterior.natural, fusion.n_components
    if fusion.settings.pooling != "auto" or fusion.settings.pooled == "average":
        return centres
    labels = np.concatenate(fusion.labels)
    members = np.maximum(np.bincount(labels[labels >= 0], minlength=size), 1)
    if natural is not None:
        total = np.zeros_like(centres)
        np.add.at(total, labels[labels >= 0], natural[labels >= 0])
        return total / members[:, None]
    if isinstance(family, Tempered):
        return family.tempered(centres, 1.0 / members)
    return centres / members[:, None]


def confidence(fusion: Fusion, natural: FloatArray | None) -> FloatArray:
    """Confidence of each local component's match, (n,), in [-1, 1], as a silhouette coefficient.

    It is ``(b - a) / max(a, b)`` with ``a = KL(match || local)`` and ``b`` the divergence from the
    second nearest global component. Without the silos' parameters ``b`` is the divergence of the
    match from its nearest global component. NaN for unmatched components, and everywhere if there
    is only one global component.
    """
    family, centres = fusion.posterior.family, centres_of(fusion, natural)
    labels, own, _, _ = local_arrays(fusion)
    result = np.full(len(labels), np.nan)
    matched = np.flatnonzero(labels >= 0)
    if len(centres) < 2:
        return result
    if natural is None:
        between = family.kl_from(centres, centres)
        np.fill_diagonal(between, np.inf)
        nearest = between.min(axis=1)[labels[matched]]
    else:
        others = family.kl_from(centres, natural[matched])
        others[np.arange(len(matched)), labels[matched]] = np.inf
        nearest = others.min(axis=1)
    larger = np.maximum(np.maximum(own[matched], nearest), np.finfo(float).tiny)
    result[matched] = (nearest - own[matched]) / larger
    return result


def component_map(fusion: Fusion, natural: FloatArray | None) -> dict[str, Any]:
    """Positions in a plane of global components and of local components around them.

    Distances approximate `distance` at a common effective sample size. Without the silos'
    parameters the distance from the match is exact, and the direction depends on the silo only.
    """
    labels, own, silo, local = local_arrays(fusion)
    n_global = min(fusion.n_components, MAX_GLOBAL)
    candidates = np.flatnonzero((labels >= 0) & (labels < n_global))
    n = len(candidates)
    shown = candidates[np.unique(np.linspace(0, n - 1, min(n, MAX_LOCAL)).round().astype(np.intp))]
    family, centres = fusion.posterior.family, centres_of(fusion, natural)[:n_global]
    if natural is None:
        places, stress = embed(_between(family, centres))
        angle = _GOLDEN_ANGLE * silo[shown]
        radius = distance(2.0 * own[shown])  # J is nearly twice the divergence in one direction
        around = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        of_local = places[labels[shown]] + around
    else:
        rows = np.concatenate([centres, natural[shown]])
        if isinstance(family, Tempered):
            rows = family.comparable(rows)
        places, stress = embed(_between(family, rows))
        of_local = places[n_global:]
    marks = [
        {"at": at, "silo": fusion.silo_names[silo[i]], "local_component": int(local[i])}
        | {"component": int(labels[i]), "divergence": short(own[i])}
        for i, at in zip(shown, rounded(of_local), strict=True)
    ]
    return {
        "from_parameters": natural is not None,
        "stress": short(stress) or 0.0,
        "global": rounded(places[:n_global]),
        "local": marks,
        "n_local_not_shown": int((labels >= 0).sum()) - len(shown),
    }


def distance(divergence: FloatArray) -> FloatArray:
    """``log(1 + sqrt(J))`` of a symmetrised divergence J; logarithms keep small ones visible."""
    return np.asarray(np.log1p(np.sqrt(np.maximum(divergence, 0.0))))


def _between(family: Family, natural: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        divergences = family.kl(natural, natural)
        found = distance(divergences + divergences.T)
    known = np.isfinite(found)  # what cannot be computed is drawn as far off as anything is
    return np.where(known, found, found.max(where=known, initial=1.0))


def embed(distances: FloatArray) -> tuple[FloatArray, float]:
    """Positions (n, 2) with distances near those given, and the remaining stress.

    Classical scaling, then majorisation of ``sum (|x_i - x_j| / d_ij - 1)^2``; stress is the root
    mean square relative error.
    """
    n = len(distances)
    if n == 1:
        return np.zeros((1, 2)), 0.0
    # A floor keeps the weights of copies, at distance 0, finite.
    largest = float(distances.max()) or 1.0
    target = np.maximum(distances, 1e-3 * largest)
    places = _classical(target)
    weight = target**-2.0
    np.fill_diagonal(weight, 0.0)
    inverse = np.linalg.pinv(np.diag(weight.sum(axis=1)) - weight, hermitian=True)
    for _ in range(_SWEEPS):
        pull = weight * target / np.maximum(_pairwise(places), 1e-9 * largest)
        places = inverse @ (pull.sum(axis=1)[:, None] * places - pull @ places)
    off = ~np.eye(n, dtype=bool)
    error = (_pairwise(places)[off] / target[off] - 1.0) ** 2
    return places, float(np.sqrt(error.mean()))


def _classical(distances: FloatArray) -> FloatArray:
    centred = distances**2 - (distances**2).mean(axis=0)
    gram = -0.5 * (centred - centred.mean(axis=1, keepdims=True))
    values, vectors = np.linalg.eigh(gram)
    top = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0.0))
    sign = np.sign(top[np.abs(top).argmax(axis=0), np.arange(top.shape[1])])  # on every platform
    # The majorisation never separates coincident points; jitter does.
    jitter = 1e-3 * distances.max() * np.random.default_rng(0).normal(size=top.shape)
    return np.asarray(top * np.where(sign == 0, 1.0, sign) + jitter)


def _pairwise(places: FloatArray) -> FloatArray:
    difference = places[:, None] - places[None]
    return np.asarray(np.sqrt(np.einsum("ijk,ijk->ij", difference, difference)))
