"""Which structures there are, and how each follows its components through a matching."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klfusion._utils.arrays import IntArray
from klfusion.errors import IncompatibleSilosError
from klfusion.posteriors.structure import hmm, mixture, sites, topics
from klfusion.posteriors.structure import network as layers
from klfusion.posteriors.structure.structure import Structure

_Fuse = Callable[[Sequence[Structure], Sequence[IntArray], int], Structure]
_FUSE: dict[str, _Fuse] = {
    "mixture": mixture.fuse,
    hmm.KIND: hmm.fuse,
    topics.KIND: topics.fuse,
    sites.KIND: sites.fuse,
}


def fuse_structures(
    structures: Sequence[Structure | None],
    labels: Sequence[IntArray],
    n_components: int,
    match: layers.Match = layers.match_anew,
) -> Structure | None:
    """Carry the silos' structures through the matching.

    ``labels[j]`` holds the global component of each local one of silo ``j``, -1 for none. Silos
    without structure give a fusion without; silos of different kinds are refused. ``match`` is for
    structures with components of their own: the later layers of a network.
    """
    present = [s for s in structures if s is not None]
    if len(present) < len(structures):
        return None
    kinds = sorted({s.kind for s in present})
    if len(kinds) > 1:
        raise IncompatibleSilosError(f"expected models of one kind, got {', '.join(kinds)}")
    if kinds[0] == layers.KIND:
        return layers.fuse(present, labels, n_components, match)
    if kinds[0] not in _FUSE:
        return None
    return _FUSE[kinds[0]](present, labels, n_components)
