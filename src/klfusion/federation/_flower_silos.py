"""Which of the posteriors that arrived can be fused with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.families import Family
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import fuse_structures
from klfusion.read import read_silos


def sift(posteriors: Mapping[int, Posterior]) -> tuple[list[Posterior], dict[int, str]]:
    """Keep the largest set that belongs together; of the others, say by node why not.

    Two silos of one name are both refused: nobody can tell which is which. The result depends on
    what was sent, not on the order it came in; those kept are in the order of their names.
    """
    refused: dict[int, str] = {}
    named = Counter(posterior.name for posterior in posteriors.values())
    groups: list[list[Posterior]] = []
    nodes = {}
    for node, posterior in sorted(posteriors.items(), key=lambda item: item[1].name):
        if named[posterior.name] > 1:
            refused[node] = f"{named[posterior.name]} silos are named {posterior.name!r}"
            continue
        nodes[posterior.name] = node
        home = next((g for g in groups if quarrel(g[0], posterior) is None), None)
        if home is None:
            groups.append([posterior])
        else:
            home.append(posterior)
    kept = max(groups, key=len, default=[])  # the first of equals
    for group in groups:
        if group is not kept:
            refused |= {nodes[p.name]: str(quarrel(kept[0], p)) for p in group}
    return kept, refused


def quarrel(first: Posterior, other: Posterior) -> str | None:
    """Why these two cannot be fused, if so.

    Any exception is a reason: what surrounds the components was checked to be numbers and words,
    but not to be those that its kind of model has.
    """
    try:
        if other.name == first.name:  # sent again, and one of the two will be used
            other = replace(other, name=f"{other.name}, second", provenance={})
        pair = aligned_silos(read_silos([first, other]))
        sizes = [posterior.n_components for posterior in pair]
        fuse_structures([p.structure for p in pair], *_apart(sizes), _later_apart)
    except Exception as error:
        words = str(error) if isinstance(error, KLFusionError) else repr(error)
        return f"cannot be fused with silo {first.name!r}: {words}"
    return None


def _apart(sizes: Sequence[int]) -> tuple[list[IntArray], int]:
    """Labels that match nothing, and how many they are."""
    edges = np.concatenate([[0], np.cumsum(sizes)])
    return [np.arange(a, b) for a, b in pairwise(edges)], int(edges[-1])


def _later_apart(
    family: Family, naturals: Sequence[FloatArray], layer: int
) -> tuple[list[IntArray], int]:
    """The same for a later layer of networks."""
    del family, layer
    return _apart([len(own) for own in naturals])
