"""The kinds of structure, and the function that fuses each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klfusion._utils.arrays import IntArray
from klfusion.errors import IncompatibleSilosError
from klfusion.posteriors.structure import hmm, mixture, network, sites, topics
from klfusion.posteriors.structure.structure import Structure

_Fuse = Callable[[Sequence[Structure], Sequence[IntArray], int], Structure]
_FUSE: dict[str, _Fuse] = {
    mixture.KIND: mixture.fuse,
    hmm.KIND: hmm.fuse,
    topics.KIND: topics.fuse,
    sites.KIND: sites.fuse,
}


def fuse_structures(
    structures: Sequence[Structure | None],
    labels: Sequence[IntArray],
    n_components: int,
    match: network.Match = network.match_anew,
) -> Structure | None:
    """Fuse the silos' structures, given the matching of their components.

    Parameters
    ----------
    structures : sequence of Structure or None
        One per silo. The result is None if any is None, or of an unregistered kind.
    labels : sequence of int arrays
        Per silo the global component of each local one, -1 for none.
    n_components : int
        Number of global components.
    match : callable
        Matches the units of the later layers of a network.

    Examples
    --------
    >>> import numpy as np
    >>> from klfusion.posteriors.structure import Structure, fuse_structures
    >>> a = Structure("mixture", {"counts": [10, 5], "weight_prior": 1.0})
    >>> b = Structure("mixture", {"counts": [20], "weight_prior": 1.0})
    >>> fuse_structures([a, b], [np.array([0, 1]), np.array([1])], 2).arrays["counts"]
    array([10., 25.])
    """
    present = [s for s in structures if s is not None]
    if len(present) < len(structures):
        return None
    kinds = sorted({s.kind for s in present})
    if len(kinds) > 1:
        raise IncompatibleSilosError(f"expected models of one kind, got {', '.join(kinds)}")
    if kinds[0] == network.KIND:
        return network.fuse(present, labels, n_components, match)
    fuse = _FUSE.get(kinds[0])
    return None if fuse is None else fuse(present, labels, n_components)
