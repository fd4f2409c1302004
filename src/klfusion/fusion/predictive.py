"""`Predictive`: the model of a fusion's size that predicts best from what the silos sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.package import provenance, provided
from klfusion.errors import KLFusionError
from klfusion.families import Tempered, require
from klfusion.families.gaussian import GaussianPosterior
from klfusion.fusion.by_silo import BySilo
from klfusion.pooling import reduction
from klfusion.pooling.gaussian_reduction import CERTAIN, by_draws
from klfusion.posteriors.posterior import LEAST_SHARE, Posterior, less_prior
from klfusion.posteriors.structure import fuse_structures
from klfusion.posteriors.structure.kinds import HMM, MIXTURE, TOPICS
from klfusion.posteriors.structure.structure import is_point, is_tied, scatter

_KINDS = (MIXTURE, HMM, TOPICS)


@dataclass(frozen=True, eq=False)
class Predictive:
    """What `Fusion.predictive` returns.

    Parameters
    ----------
    posterior : Posterior
        The components, with weights, transitions or topic masses.
    responsibilities : sequence of arrays (L, G), one per silo
        What share of each local component each global one has, by position or name of the silo.
    """

    posterior: Posterior
    responsibilities: BySilo[FloatArray]

    def model(self) -> Any:
        """A fitted model of the library the silos used, ready to predict."""
        return provided("rebuild")(self.posterior)


def predictive(
    silos: Sequence[Posterior],
    labels: Sequence[IntArray],
    size: int,
    weights: Sequence[float],
    random_state: int,
) -> Predictive:
    """Reduce aligned silos to ``size`` components, beginning with their matching."""
    kind = _check(silos)
    family = require(silos[0].family, Tempered, "predictive")
    tied = all(is_tied(p.structure) for p in silos)
    parts = [_statistics(p, tied) for p in silos]
    edges = np.cumsum([len(part) for part in parts])[:-1]
    statistics, start = np.concatenate(parts), np.concatenate(labels)
    counts = family.effective_size(statistics)
    silo = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    scale = np.array(weights)[silo]
    order = _sorted(statistics, silo)
    prior = np.mean([p.prior for p in silos if p.prior is not None], axis=0)
    atoms = reduction.Atoms(
        family,
        prior,
        (statistics / counts[:, None])[order],
        (counts * scale)[order],
        start[order],
        size,
        tied,
    )
    if kind == TOPICS:
        natural, share = reduction.by_words(atoms)
    elif kind == MIXTURE and isinstance(family, GaussianPosterior):
        number = np.cumsum(np.diff(silo[order], prepend=silo[order[0]]) != 0)
        sent, of_draws = np.concatenate([p.natural for p in silos])[order], None
        if all(is_point(p.structure) for p in silos):
            # Silos had no prior. That of the comparison is as wide as all data: narrow components
            # would take the observations of others.
            sent, of_draws = CERTAIN * statistics[order], LEAST_SHARE * prior
        rng = np.random.default_rng(random_state)
        natural, share = by_draws(atoms, number, sent, rng, of_draws)
        # Silos' priors are often those of all observations, which components do not look like.
        learned = family.likelier_prior(natural, prior)
        natural, prior = natural - prior + learned, learned
    else:
        natural, share = reduction.by_components(atoms)
    by_row = np.empty_like(share)
    by_row[order] = share
    found = np.split(by_row, edges)
    known = [p.counts for p in silos if p.counts is not None]
    posterior = Posterior(
        family=family,
        natural=natural,
        name="global",
        prior=prior,
        counts=scatter(known, found, size) if len(known) == len(silos) else None,
        structure=fuse_structures([p.structure for p in silos], found, size),
        provenance=provenance(silos=[p.name for p in silos]),
    )
    return Predictive(posterior, BySilo(found, [p.name for p in silos]))


def _sorted(statistics: FloatArray, silo: IntArray) -> IntArray:
    """Components silo by silo, in an order that does not depend on that of the silos."""
    position = np.argsort(np.lexsort(statistics.T))
    first = np.full(silo[-1] + 1, len(silo))
    np.minimum.at(first, silo, position)
    return np.lexsort([position, first[silo]])


def _check(silos: Sequence[Posterior]) -> str:
    """The kind of the models; refuse those that have no density, or no known prior."""
    for posterior in silos:
        structure = posterior.structure
        where = f"silo {posterior.name!r}: predictive: expected"
        if structure is None or structure.kind not in _KINDS:
            kind = "none" if structure is None else f"structure {structure.kind!r}"
            raise KLFusionError(f"{where} a mixture, an HMM or topics, got {kind}")
        if posterior.prior is None:
            raise KLFusionError(f"{where} a posterior with a prior, got none")
    assert silos[0].structure is not None
    return silos[0].structure.kind


def _statistics(posterior: Posterior, tied: bool) -> FloatArray:
    """What each component's observations added to the prior, (L, p)."""
    family, natural, prior = posterior.family, posterior.natural, posterior.prior
    assert prior is not None
    if tied:
        # Each component has the same share of the scatter of all. With its own mean, it need not
        # be in the family before the scatters are added up.
        natural = prior + reduction.tied(family, natural - prior)
    # Moments need no more observations than there are dimensions, as a posterior of them does.
    factor = CERTAIN if isinstance(family, GaussianPosterior) else 1.0
    added = less_prior(family, factor * natural, factor * prior) / factor
    return reduction.tied(family, added) if tied else added
