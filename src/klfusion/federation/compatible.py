"""Which of the posteriors received can be fused with each other, and why others cannot."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np

from klfusion._fuse import read_silos
from klfusion._utils.arrays import IntArray
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.posteriors.compatibility import aligned_silos, check_counted_once, counted
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import fuse_structures


def check_same(first: Posterior, second: Posterior) -> None:
    """Refuse a second posterior of another silo or another kind of model."""
    reason = _incompatibility(first, second)
    if second.name != first.name:
        reason = f"expected silo {first.name!r} again, got {second.name!r}"
    if reason is not None:
        raise IncompatibleSilosError(reason)


def compatible(posteriors: Sequence[Posterior]) -> tuple[list[Posterior], dict[str, str]]:
    """Largest set of compatible posteriors, by name; and the reason per refused silo.

    The order of arrival does not matter. Names are unique. Of two largest sets neither is taken:
    all their silos are refused, until another message decides.
    """
    refused = _false_claims(posteriors)
    groups: list[list[Posterior]] = []
    # Silos without names of columns fit silos of any, so they join the most.
    for posterior in sorted(posteriors, key=lambda p: (not _has_columns(p), p.name)):
        if posterior.name in refused:
            continue
        fitting = [group for group in groups if _misfit(group, posterior) is None]
        if not fitting:
            groups.append([])
        max(fitting or groups[-1:], key=len).append(posterior)
    groups.sort(key=len, reverse=True)
    n_largest = sum(len(group) == len(groups[0]) for group in groups)
    for number, group in enumerate(groups):
        if n_largest > 1 or number > 0:
            other = groups[0 if number else 1]
            tie = ", and as many silos are like either" if number < n_largest else ""
            refused |= {p.name: f"{_misfit(other, p)}{tie}" for p in group}
    kept = groups[0] if n_largest == 1 else []
    return sorted(kept, key=lambda p: p.name), refused


def _has_columns(posterior: Posterior) -> bool:
    structure = posterior.structure
    return structure is not None and structure.info.get("features") is not None


def _false_claims(posteriors: Sequence[Posterior]) -> dict[str, str]:
    """Silos whose posteriors count silos that sent their own, or that another counts."""
    # Who sends in his own name alone comes first: a claim excludes none of these.
    accepted: list[Posterior] = []
    refused = {}
    for posterior in sorted(posteriors, key=lambda p: (_claims(p), p.name)):
        try:
            check_counted_once([*accepted, posterior] if _claims(posterior) else [])
        except IncompatibleSilosError as error:
            refused[posterior.name] = f"cannot be fused: {error}"
        else:
            accepted.append(posterior)
    return refused


def _claims(posterior: Posterior) -> bool:
    """Whether a posterior counts other silos than its own."""
    return counted(posterior) != [posterior.name]


def _misfit(group: Sequence[Posterior], posterior: Posterior) -> str | None:
    """Reason why a posterior cannot join a group: not like its first, or its first with names."""
    named = filter(_has_columns, group)
    reasons = (_incompatibility(one, posterior) for one in [group[0], *islice(named, 1)])
    return next((reason for reason in reasons if reason is not None), None)


def _incompatibility(first: Posterior, other: Posterior) -> str | None:
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
