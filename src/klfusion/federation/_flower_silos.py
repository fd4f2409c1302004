"""Selection of received posteriors that can be fused with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from klfusion._utils.arrays import IntArray
from klfusion.errors import KLFusionError
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import fuse_structures
from klfusion.read import read_silos


def compatible_silos(posteriors: Mapping[int, Posterior]) -> tuple[list[Posterior], dict[int, str]]:
    """Largest set of compatible posteriors, by name; and the reason per refused node.

    Two silos with one name are both refused. The order of arrival does not matter.
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
        group = next((g for g in groups if incompatibility(g[0], posterior) is None), None)
        if group is None:
            groups.append(group := [])
        group.append(posterior)
    kept = max(groups, key=len, default=[])  # the first of equals
    for group in groups:
        if group is not kept:
            refused |= {nodes[p.name]: str(incompatibility(kept[0], p)) for p in group}
    return kept, refused


def incompatibility(first: Posterior, other: Posterior) -> str | None:
    """Reason why two posteriors cannot be fused, or None; any exception is a reason."""
    try:
        if other.name == first.name:  # a second posterior of the same silo
            other = replace(other, name=f"{other.name}, second", provenance={})
        pair = aligned_silos(read_silos([first, other]))
        sizes = [posterior.n_components for posterior in pair]
        fuse_structures(
            [p.structure for p in pair], *_unmatched(sizes),
            lambda _, naturals, layer: _unmatched([len(own) for own in naturals]),
        )  # fmt: skip
    except Exception as error:
        reason = str(error) if isinstance(error, KLFusionError) else repr(error)
        return f"cannot be fused with silo {first.name!r}: {reason}"
    return None


def _unmatched(sizes: Sequence[int]) -> tuple[list[IntArray], int]:
    """Labels that give every component its own cluster, and the number of clusters."""
    edges = np.concatenate([[0], np.cumsum(sizes)])
    return [np.arange(a, b) for a, b in pairwise(edges)], int(edges[-1])
