"""Plans of a known size: those of which the global components predict most together.

A document mixes topics: what an average no longer predicts, another may. Here each local component
is predicted by the best *mixture* of the global ones and loses ``KL(component || mixture)``; alone
with its own average, as in `klfusion.merging.loss_path`, it loses as much at least. Between plans
that are all good the loss of mixtures tells which predicts documents better.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, relabel
from klfusion._utils.iterate import descend
from klfusion._utils.progress import Report
from klfusion.families import Located, require
from klfusion.methods.search import known_size_starts
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Limits

_OUTCOMES = 500  # words that are told apart; of rarer ones chance tells more than topics do
_STEPS = 40  # towards the best mixtures
_POLISHED = 5  # of the starts, those that lose least
_TRIES = 12  # moves of a sweep, those that promise most
_MOST_ENTRIES = 1_500_000  # of such steps at all polished starts: fewer are where steps are long
_LEAST_GAIN = 1e-6  # nats an observation
_COUNTS = 0.02  # share of a mixture from which on a change in it is looked at


def best_reconstruction(
    limits: Limits,
    observed: FusionProblem,
    size: int,
    rng: np.random.Generator,
    report: Report,
    *,
    n_init: int,
) -> IntArray:
    """The plan that loses least in prediction by mixtures, of many starts.

    Parameters
    ----------
    limits : Limits
    observed : FusionProblem
        Divergences are nats per observation (`FusionProblem.per_observation`), locations are
        probabilities .
    size : int
        Number of global components, no less than the largest silo's.
    rng : numpy.random.Generator
    report : callable
        Told of progress.
    n_init : int
        Starts: whole silos of that size, then seeds.

    Returns
    -------
    int array of shape (n,)
    """
    coarse = observed.coarser(_OUTCOMES)
    together = Reconstruction(coarse, size)
    runs = known_size_starts(limits, coarse, size, rng, report, n_init=n_init, from_silos=True)
    plans = {together.mixed(run.labels).loss: run.labels for run in runs}
    n_polished = min(_POLISHED, _MOST_ENTRIES // (coarse.n * size * coarse.family.size))
    if n_polished == 0:
        return plans[min(plans)]
    best, polished = sorted(plans)[:n_polished], []
    for number, loss in enumerate(best):
        report("polishing", number + 1, len(best))
        polished.append(together.polished(plans[loss], limits.max_iter))
    labels = min(polished, key=lambda found: found.loss).labels
    # A start may have left places empty, and not all of them need have been taken since.
    return relabel(labels)


class Mixed(NamedTuple):
    """A plan, the mixtures of its global components that predict local ones, and what is lost."""

    loss: float
    labels: IntArray
    mixtures: FloatArray


class Reconstruction:
    """What plans of one size lose if their global components predict together.

    Parameters
    ----------
    observed : FusionProblem
    size : int
    """

    def __init__(self, observed: FusionProblem, size: int) -> None:
        share = observed.weights / observed.weights.sum()
        family = require(observed.family, Located, "topics")
        self._probability = family.location(observed.natural)
        self._counts = share[:, None] * self._probability
        self._self = float(np.sum(self._counts * np.log(self._probability)))
        self._silo, self._silos, self._size = observed.silo, observed.silos, size

    def mixed(self, labels: IntArray, mixtures: FloatArray | None = None) -> Mixed:
        """Mixtures and loss of a plan, from where mixtures of a similar one were (EM)."""
        centres = _normalised(self._sums(labels))
        if mixtures is None:
            mixtures = 0.5 * np.eye(self._size)[labels] + 0.5 / self._size
        for _ in range(_STEPS):
            mixtures = mixtures * ((self._probability / (mixtures @ centres)) @ centres.T)
        predicted = float(np.sum(self._counts * np.log(mixtures @ centres)))
        return Mixed(self._self - predicted, labels, mixtures)

    def polished(self, labels: IntArray, max_iter: int) -> Mixed:
        """The plan after every move of a component that lowers the loss: places are swapped."""
        start = self.mixed(*self.mixed(labels)[1:])
        return descend(self._improved, start, start.loss, max_iter=max_iter).state

    def _improved(self, found: Mixed) -> tuple[Mixed, float]:
        """The plan after a sweep over the most promising moves."""
        for one, other, place in self._promising(found):
            if self._possible(found.labels, one, other, place):
                trial = self._moved(found, one, other, place)
                if trial.loss < found.loss - _LEAST_GAIN:
                    found = trial
        return found, found.loss

    def _possible(self, labels: IntArray, one: int, other: int, place: int) -> bool:
        """Whether a move that was possible before others were made still is."""
        if other >= 0:
            return bool(labels[other] == place)
        alone = (labels == labels[one]).sum() == 1
        taken = ((labels == place) & (self._silo == self._silo[one])).any()
        return not (alone or taken)

    def _moved(self, found: Mixed, one: int, other: int, place: int) -> Mixed:
        labels, mixtures = found.labels.copy(), found.mixtures.copy()
        old = labels[one]
        rows = [one] if other < 0 else [one, other]
        labels[rows] = [place, old][: len(rows)]
        mixtures[np.ix_(rows, [old, place])] = mixtures[np.ix_(rows, [place, old])]
        # A share of nothing would stay nothing.
        return self.mixed(labels, 0.8 * mixtures + 0.2 / self._size)

    def _promising(self, found: Mixed) -> list[tuple[int, int, int]]:
        """Moves that lose least while mixtures stay as they are; those are upper bounds."""
        sums = self._sums(found.labels)
        centres = _normalised(sums)
        predicted = found.mixtures @ centres
        moves = self._moves(found.labels)
        bounds = np.empty(len(moves))
        for k, (one, other, place) in enumerate(moves):
            old = found.labels[one]
            change = -self._counts[one] if other < 0 else self._counts[other] - self._counts[one]
            after = _normalised(np.stack([sums[old] + change, sums[place] - change]))
            rows = np.flatnonzero(found.mixtures[:, [old, place]].sum(axis=1) > _COUNTS)
            shares = found.mixtures[rows][:, [old, place]]
            swapped = np.isin(rows, [one, other])
            later = np.where(swapped[:, None], shares[:, ::-1], shares)
            mixed = predicted[rows] - shares @ centres[[old, place]] + later @ after
            ratio = np.maximum(mixed, np.finfo(np.float64).tiny) / predicted[rows]
            bounds[k] = -np.sum(self._counts[rows] * np.log(ratio))
        return [moves[k] for k in np.argsort(bounds, kind="stable")[:_TRIES]]

    def _moves(self, labels: IntArray) -> list[tuple[int, int, int]]:
        """Which component goes where, and which of its silo makes room for it (-1: none)."""
        members = np.bincount(labels, minlength=self._size)
        moves = []
        for rows in self._silos:
            holder = np.full(self._size, -1)
            holder[labels[rows]] = np.arange(rows.start, rows.stop)
            for one in range(rows.start, rows.stop):
                for place, other in enumerate(holder.tolist()):
                    if other > one or (other < 0 and members[labels[one]] > 1):
                        moves.append((one, other, place))
        return moves

    def _sums(self, labels: IntArray) -> FloatArray:
        """Shares of all observations that global components predict, by outcome, (G, d)."""
        belongs = labels == np.arange(self._size)[:, None]
        return np.asarray(belongs.astype(np.float64) @ self._counts)


def _normalised(rows: FloatArray) -> FloatArray:
    """Probabilities; an empty row stays empty, and predicts nothing."""
    total = rows.sum(axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(total, np.finfo(np.float64).tiny))
