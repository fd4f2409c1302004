"""More rounds of communication: silos refit from the global model, and again.

As in partitioned variational inference, ``q = prior + sum_j t_j`` in natural parameters. In a round
silo ``j`` has the prior ``q - t_j``; what its data add to it is its new ``t_j``. No data are
counted twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from klfusion._fuse import fuse
from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import check_integer, is_number
from klfusion._utils.running import progress_bar
from klfusion._utils.text import brief
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import fuse_structures
from klfusion.posteriors.structure.kinds import MIXTURE

_HALVINGS = 30  # of a step that would leave the family


class LocalFit(Protocol):
    """How a silo fits its own data, which stay with it."""

    def __call__(self, start: Posterior | None, prior: FloatArray | None, /) -> Posterior:
        """Fit; in the first round, on its own (both None), with a prior that the result tells.

        Later, from the components of ``start``, each with its own prior, a row of ``prior``
        (G, p); the result has as many components, in this order.
        """


@dataclass(frozen=True, eq=False)
class Refined:
    """What `refine_rounds` returns.

    Parameters
    ----------
    posterior : Posterior
        The global model after the last round.
    fusion : Fusion
        Of the first round, which matched the silos' components.
    rounds : tuple of Posterior
        The global model after each round.
    changes : array of shape (rounds - 1,)
        The largest ``KL(new || old)`` of a component in each later round.
    contributions : mapping of name to array of shape (G, p)
        What each silo's data add to the prior, in natural parameters.
    """

    posterior: Posterior
    fusion: Fusion
    rounds: tuple[Posterior, ...]
    changes: FloatArray
    contributions: Mapping[str, FloatArray]


def refine_rounds(
    silos: Mapping[str, LocalFit],
    *,
    rounds: int = 3,
    damping: float = 1.0,
    progress: bool | None = None,
    **settings: Any,
) -> Refined:
    """Fuse, send the result back, let silos refit from it, and add up again.

    Parameters
    ----------
    silos : mapping of name to LocalFit
    rounds : int
        Rounds of communication; with 1 it is ``fuse(..., pooling="product")``.
    damping : float
        Share of each later round's change that is taken, in (0, 1]; less where rounds oscillate.
    progress : bool, optional
        Show a progress bar; default: only on a terminal.
    **settings
        Of `klfusion.fuse`, for the first round.

    Examples
    --------
    Each site knows its counts of events and the hours watched; the rate is shared:

    >>> import numpy as np, klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> prior = rates.natural(shape=[1.0], rate=[1.0])
    >>> def site(events, hours):
    ...     def local_fit(start, given):
    ...         own = prior if given is None else given
    ...         return kf.Posterior(rates, own + [events, hours], prior=prior[0])
    ...     return local_fit
    >>> found = kf.refine_rounds({"a": site(9.0, 4.0), "b": site(21.0, 10.0)}, rounds=3)
    >>> found.posterior.params()
    {'shape': array([[31.]]), 'rate': array([[15.]])}
    """
    check_integer("rounds", rounds)
    if not is_number(damping) or not 0.0 < damping <= 1.0:
        raise KLFusionError(f"expected damping in (0, 1], got {brief(damping)}")
    if not isinstance(silos, Mapping) or not all(map(callable, silos.values())):
        expected = "expected silos to be a mapping of names to functions that fit"
        raise KLFusionError(f"{expected}, got {brief(silos)}")
    with progress_bar(progress) as report:
        report("round", 1, rounds)
        first = {name: replace(fit(None, None), name=name) for name, fit in silos.items()}
        fusion = fuse(first, **{"pooling": "product", "progress": False, **settings})
        now = fusion.posterior
        shares = _shares(fusion)
        history, changes = [now], []
        for number in range(2, rounds + 1):
            report("round", number, rounds)
            change, found = {}, []
            for name, fit in silos.items():
                cavity = now.natural - shares[name]
                found.append(_refit(fit, name, now, cavity))
                change[name] = damping * (found[-1].natural - cavity - shares[name])
            total = sum(change.values(), np.zeros_like(now.natural))
            length = _largest_step(now, total)
            shares = {name: shares[name] + length * change[name] for name in silos}
            natural = now.natural + length * total
            before, now = now, replace(_with_counts(now, found), natural=natural)
            kl = [now.family.kl(natural[[g]], before.natural[[g]]) for g in range(len(natural))]
            changes.append(float(np.max(kl)))
            history.append(now)
    return Refined(now, fusion, tuple(history), np.array(changes), shares)


def _shares(fusion: Fusion) -> dict[str, FloatArray]:
    """What each silo added to its prior in each global component; nothing where it has none."""
    assert fusion.silos is not None
    shares = {}
    for posterior, labels in zip(fusion.silos, fusion.labels, strict=True):
        assert posterior.prior is not None  # products need it
        if posterior.family != fusion.posterior.family:
            raise IncompatibleSilosError(
                f"silo {posterior.name!r}: expected {fusion.posterior.family}, "
                f"got {posterior.family}: give all silos one vocabulary"
            )
        share = np.zeros_like(fusion.posterior.natural)
        kept = labels >= 0
        np.add.at(share, labels[kept], posterior.natural[kept] - posterior.prior)
        shares[posterior.name] = share
    return shares


def _with_counts(now: Posterior, found: Sequence[Posterior]) -> Posterior:
    """The global model with the observations that silos now assign to components."""
    structures, counts = [p.structure for p in found], [p.counts for p in found]
    kinds = {None if s is None else s.kind for s in structures}
    known = [c for c in counts if c is not None]
    if len(known) < len(found) or kinds != {MIXTURE}:
        return now
    same = [np.arange(now.n_components)] * len(found)
    structure = fuse_structures(structures, same, now.n_components)
    return replace(now, counts=np.sum(known, axis=0), structure=structure)


def _refit(fit: LocalFit, name: str, start: Posterior, cavity: FloatArray) -> Posterior:
    """What a silo's data and the others' share give."""
    start.family.check(cavity, f"silo {name!r}, prior of the others")
    found = fit(start, cavity)
    if found.family != start.family or found.n_components != start.n_components:
        raise IncompatibleSilosError(
            f"silo {name!r}: expected {start.n_components} components of {start.family}, as in "
            f"start, got {found.n_components} of {found.family}"
        )
    return found


def _largest_step(now: Posterior, change: FloatArray) -> float:
    """1, or as much of a change as leaves every component a distribution."""
    length = 1.0
    for _ in range(_HALVINGS):
        if now.family.in_domain(now.natural + length * change):
            return length
        length /= 2.0
    raise KLFusionError("silos' contributions leave the family however small the step")
