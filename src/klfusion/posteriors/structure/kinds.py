"""The kinds of structure, and the function that fuses each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import IncompatibleSilosError
from klfusion.posteriors.structure import components, head, network, regression
from klfusion.posteriors.structure.structure import (
    POINT,
    Structure,
    agreed_info,
    is_point,
    scatter,
)

MIXTURE, HMM, SITES, TOPICS = "mixture", "hmm", "sites", "topics"
CLASSES, NAMED = "classes", "named"
NAMES = "components"  # key in `info`: the names of the components, where they have any
MEASURED = "measured"  # array of mixtures over columns: measured cells, (L, fitted columns)
SCALING = "agreed_scaling"  # key in `info` of pipelines: means and deviations of each step
VOCABULARY = "vocabulary"  # key in `info` of topics: the words of the columns, or None
_Labels = Sequence[IntArray | FloatArray]
_Bounded = Callable[[Sequence[FloatArray], Sequence[IntArray]], Sequence[FloatArray]]
# Arrays of counts and pseudo-counts; the first of mixtures and topics counts observations.
_COUNTS = {
    MIXTURE: ("counts", "weight_prior"),
    HMM: ("start", "transition", "start_prior", "transition_prior"),
    TOPICS: ("topic_mass", "doc_topic_prior"),
    network.KIND: ("class_counts",),
    components.KIND: ("counts", "weight_prior", "transition", "transition_prior"),
}
_NOT_BY_COMPONENT = ("weight_prior", "transition_prior", "class_counts")


def blocks_of(schema: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """The block of each fitted column of a schema; a semicontinuous column is two columns."""
    return [
        block
        for column in schema
        for block in [column.get("block")] * (1 if column.get("point_mass") is None else 2)
    ]


def factors_of(blocks: Sequence[str | None]) -> list[list[int]]:
    """The columns of each factor: those of one block are one, where its first column is."""
    out: dict[str | int, list[int]] = {}
    for place, block in enumerate(blocks):
        out.setdefault(place if block is None else f"block {block}", []).append(place)
    return list(out.values())


def fuse_structures(
    structures: Sequence[Structure | None],
    labels: _Labels,
    n_components: int,
    match: network.Match = network.match_anew,
) -> Structure | None:
    """Fuse the structures of silos; None if any is None, or of an unregistered kind.

    ``labels`` has per silo the global component of each local one, -1 for none; or, but for
    networks, responsibilities (L, n_components). ``match`` matches the units of the later layers of
    a network.
    """
    present = [s for s in structures if s is not None]
    if len(present) < len(structures):
        return None
    kinds = sorted({s.kind for s in present})
    if len(kinds) > 1:
        raise IncompatibleSilosError(f"expected models of one kind, got {', '.join(kinds)}")
    if kinds[0] == network.KIND:
        hard = [own.astype(np.intp) for own in labels]
        return network.fuse(present, hard, n_components, match)
    fuse = _FUSE.get(kinds[0])
    fused = None if fuse is None else fuse(present, labels, n_components)
    if fused is None or not all(s.info.get(NAMES) for s in present):
        return fused
    pairs = ((s.info[NAMES], own) for s, own in zip(present, labels, strict=True))
    name_of = {int(g): name for names, own in pairs for name, g in zip(names, own, strict=True)}
    names = [name_of[g] for g in range(n_components)]
    return replace(fused, info={**fused.info, NAMES: names})


def _fuse_mixtures(silos: Sequence[Structure], labels: _Labels, n_components: int) -> Structure:
    """Add the expected ``counts`` (L,); average the pseudo-count ``weight_prior`` ()."""
    counts = scatter([s.arrays["counts"] for s in silos], labels, n_components)
    prior = np.mean([s.arrays["weight_prior"] for s in silos])
    arrays = {"counts": counts, "weight_prior": np.asarray(prior)}
    if all(MEASURED in s.arrays for s in silos):
        cells = zip(*(s.arrays[MEASURED].T for s in silos), strict=True)
        columns = [scatter(list(own), labels, n_components) for own in cells]
        arrays[MEASURED] = np.column_stack(columns)
    info = dict(agreed_info(silos, "covariance_type"))
    if not all(is_point(s) for s in silos):
        info.pop(POINT, None)
    return Structure(MIXTURE, arrays, info)


def _fuse_hmms(silos: Sequence[Structure], labels: _Labels, n_components: int) -> Structure:
    """Add expected counts; average the priors, which are Dirichlet pseudo-counts.

    ``start`` (L,) holds the expected number of sequences that begin in each state, ``transition``
    (L, L) that of steps from row to column. A step between two states that no silo has both of gets
    the smallest entry of all priors, because larger ones belong to staying in a sticky prior.
    """
    arrays = {}
    for key in ("start", "transition"):
        arrays[key] = scatter([s.arrays[key] for s in silos], labels, n_components)
        priors = [s.arrays[f"{key}_prior"] for s in silos]
        total = scatter(priors, labels, n_components)
        n_silos = scatter([np.ones_like(p) for p in priors], labels, n_components)
        lowest = min(float(p.min()) for p in priors)
        average = total / np.where(n_silos > 0, n_silos, 1.0)
        arrays[f"{key}_prior"] = np.where(n_silos > 0, average, lowest)
    info = dict(agreed_info(silos, "covariance_type"))
    if all("frame_weight" in s.info for s in silos):  # each silo has its own estimate
        info["frame_weight"] = float(np.mean([s.info["frame_weight"] for s in silos]))
    return Structure(HMM, arrays, info)


def with_bounded_counts(
    structures: Sequence[Structure], labels: Sequence[IntArray], bounded: _Bounded
) -> list[Structure]:
    """The structures with the shares of their counts and pseudo-counts that ``bounded`` leaves.

    It gets the sum of each row, and the label of each row, per silo.
    """
    arrays = [dict(s.arrays) for s in structures]
    for key in _COUNTS.get(structures[0].kind, ()):
        if all(key in own for own in arrays):
            given = [np.atleast_1d(own[key]) for own in arrays]
            rows = [array.reshape(len(array), -1).sum(axis=1) for array in given]
            apart = key in _NOT_BY_COMPONENT
            shares = bounded(rows, [np.arange(len(r)) for r in rows] if apart else labels)
            for own, array, share in zip(arrays, given, shares, strict=True):
                own[key] = (array.T * share).T.reshape(own[key].shape)
    return [replace(s, arrays=own) for s, own in zip(structures, arrays, strict=True)]


def observations(structure: Structure | None) -> FloatArray | None:
    """Expected observations per component, (L,), as the structure counts them, if it does."""
    if structure is None or structure.kind == network.KIND:
        return None
    if structure.kind == HMM:
        return visits(structure.arrays)
    return structure.arrays.get(_COUNTS.get(structure.kind, ("",))[0])


def visits(arrays: Mapping[str, FloatArray]) -> FloatArray:
    """Expected observations per state of an HMM: starts of sequences plus steps to the state."""
    return np.asarray(arrays["start"] + arrays["transition"].sum(axis=0))


def _fuse_topics(silos: Sequence[Structure], labels: _Labels, n_components: int) -> Structure:
    """Add ``topic_mass`` (L,), the expected words per topic; pool ``doc_topic_prior`` (L,).

    A normalised prior is the expected share of each topic. Shares are averaged over silos, each
    weighted by its number of words. Without these arrays, only the vocabulary is kept.
    """
    if not all({"topic_mass", "doc_topic_prior"} <= s.arrays.keys() for s in silos):
        return Structure(TOPICS, {}, silos[0].info)
    masses, priors = ([s.arrays[k] for s in silos] for k in ("topic_mass", "doc_topic_prior"))
    mass = scatter(masses, labels, n_components)
    words = [max(own.sum(), 1.0) for own in masses]  # a silo without words keeps its topics
    shares = [n * prior / prior.sum() for n, prior in zip(words, priors, strict=True)]
    pooled = scatter(shares, labels, n_components)
    prior = np.mean([prior.sum() for prior in priors]) * pooled / pooled.sum()
    return Structure(TOPICS, {"topic_mass": mass, "doc_topic_prior": prior}, silos[0].info)


def _fuse_sites(silos: Sequence[Structure], labels: _Labels, n_components: int) -> Structure:
    """Average the shared sites, ``site.mean`` and ``site.variance``, in natural parameters."""
    del labels, n_components  # shared sites do not depend on the matching
    first = silos[0].info
    for other in silos[1:]:
        for key in ("sites", "shared"):
            if other.info[key] != first[key]:
                one, two = _readable(first[key]), _readable(other.info[key])
                raise IncompatibleSilosError(
                    f"expected silos with the same {key}, got {one} and {two}"
                )
    arrays: dict[str, FloatArray] = {}
    for site in first["shared"]:
        mean, variance = f"{site['name']}.mean", f"{site['name']}.variance"
        precision = np.mean([1.0 / s.arrays[variance] for s in silos], axis=0)
        shift = np.mean([s.arrays[mean] / s.arrays[variance] for s in silos], axis=0)
        arrays |= {mean: shift / precision, variance: 1.0 / precision}
    return Structure(SITES, arrays, first)


def _fuse_named(silos: Sequence[Structure], labels: _Labels, n_components: int) -> Structure:
    """Names, and the settings of classifiers, on which silos must agree."""
    del labels, n_components
    info = agreed_info(silos, "class", "features", "settings", "type")
    return Structure(silos[0].kind, {}, {k: v for k, v in info.items() if k != "sums"})


def _readable(sites: Sequence[dict[str, object]]) -> str:
    return ", ".join(f"{s['name']} {s['shape']} ({s['support']})" for s in sites) or "none"


_FUSE: dict[str, Callable[[Sequence[Structure], _Labels, int], Structure]] = {
    MIXTURE: _fuse_mixtures,
    HMM: _fuse_hmms,
    SITES: _fuse_sites,
    CLASSES: _fuse_named,
    NAMED: _fuse_named,
    head.KIND: head.fuse,
    regression.KIND: regression.fuse,
    components.KIND: components.fuse,
    TOPICS: _fuse_topics,
}
