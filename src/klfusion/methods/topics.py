"""Choose a plan of given size by how well mixtures of the global components reconstruct local ones.

A document mixes topics. So each local component is predicted by the best *mixture* of the global
ones, and loses ``KL(component || mixture)``: no more than by its own average alone, as in
`klfusion.merging.loss_path`. Among plans good by that loss, this one shows which predicts better.
"""

from typing import NamedTuple

import numpy as np

from klfusion._utils.arrays import TINY, FloatArray, IntArray, relabel
from klfusion._utils.running import descend
from klfusion.families import Located, require
from klfusion.methods.search import known_size_starts
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Search

OUTCOMES = 500  # words that are kept apart; counts of rarer ones are mostly noise
_EM_STEPS = 40  # towards the best mixtures
_POLISHED = 5  # starts with the lowest loss
_TRIES = 12  # moves per sweep, those with the lowest upper bound
_MOST_ENTRIES = 1_500_000  # numbers of an EM step of all polished starts; fewer starts if larger
_LEAST_GAIN = 1e-6  # nats per observation by which a move must lower the loss
_LEAST_SHARE = 0.02  # of a mixture: smaller shares hardly change a bound
_SMOOTHING = 0.2  # weight of the uniform mixture after a move: EM never changes a share of zero


def best_reconstruction(
    observed: FusionProblem, size: int, search: Search, *, n_init: int
) -> IntArray:
    """Labels, (n,), of the plan with the least loss of mixtures, from silos and then seeds."""
    coarse = observed.coarser(OUTCOMES)
    reconstruction = Reconstruction(coarse, size)
    runs = known_size_starts(coarse, size, search, n_init=n_init, from_silos=True)
    plans = {reconstruction.fit(run.labels).loss: run.labels for run in runs}
    n_polished = min(_POLISHED, _MOST_ENTRIES // (coarse.n * size * coarse.family.size))
    if n_polished == 0:
        return plans[min(plans)]
    best, polished = sorted(plans)[:n_polished], []
    for number, loss in enumerate(best):
        search.report("polishing", number + 1, len(best))
        polished.append(reconstruction.polished(plans[loss], search.max_iter))
    # A start may leave columns empty, and moves need not fill all of them.
    return relabel(min(polished, key=lambda found: found.loss).labels)


class Fitted(NamedTuple):
    """A plan, the mixtures of global components that predict local ones, (n, G), and their loss."""

    loss: float
    labels: IntArray
    mixtures: FloatArray


class _Move(NamedTuple):
    """Component ``one`` goes to ``column``; ``other`` of its silo, if not -1, takes its place."""

    one: int
    other: int
    column: int


class Reconstruction:
    """Loss of plans of one size whose global components predict local ones in mixtures."""

    def __init__(self, observed: FusionProblem, size: int) -> None:
        share = observed.weights / observed.weights.sum()
        family = require(observed.family, Located, "topics")
        self._probability = family.location(observed.natural)
        self._counts = share[:, None] * self._probability
        self._self = float(np.sum(self._counts * np.log(self._probability)))
        self._silo, self._silos, self._size = observed.silo, observed.silos, size

    def fit(self, labels: IntArray, mixtures: FloatArray | None = None) -> Fitted:
        """Mixtures and loss of a plan by EM, started at the mixtures of a similar plan."""
        centres = _normalised(self._sums(labels))
        if mixtures is None:
            mixtures = 0.5 * np.eye(self._size)[labels] + 0.5 / self._size
        for _ in range(_EM_STEPS):
            mixtures = mixtures * ((self._probability / (mixtures @ centres)) @ centres.T)
        # EM approaches a mixture of one component slowly; its own average alone may lose less.
        both = (mixtures @ centres, centres[labels])
        predicted, own = (np.sum(self._counts * np.log(by), axis=1) for by in both)
        return Fitted(self._self - float(np.maximum(predicted, own).sum()), labels, mixtures)

    def polished(self, labels: IntArray, max_iter: int) -> Fitted:
        """The plan after all moves of a component that lower the loss."""
        start = self.fit(*self.fit(labels)[1:])
        return descend(self._improved, start, start.loss, max_iter=max_iter).state

    def _improved(self, found: Fitted) -> tuple[Fitted, float]:
        """The plan after a sweep over the most promising moves."""
        for move in self._promising(found):
            if self._possible(found.labels, move):
                trial = self._moved(found, move)
                if trial.loss < found.loss - _LEAST_GAIN:
                    found = trial
        return found, found.loss

    def _possible(self, labels: IntArray, move: _Move) -> bool:
        """Whether a move is still possible after others."""
        if move.other >= 0:
            return bool(labels[move.other] == move.column)
        single = (labels == labels[move.one]).sum() == 1
        taken = ((labels == move.column) & (self._silo == self._silo[move.one])).any()
        return not (single or taken)

    def _moved(self, found: Fitted, move: _Move) -> Fitted:
        labels, mixtures = found.labels.copy(), found.mixtures.copy()
        old = labels[move.one]
        rows = [move.one] if move.other < 0 else [move.one, move.other]
        labels[rows] = [move.column, old][: len(rows)]
        mixtures[np.ix_(rows, [old, move.column])] = mixtures[np.ix_(rows, [move.column, old])]
        return self.fit(labels, (1.0 - _SMOOTHING) * mixtures + _SMOOTHING / self._size)

    def _promising(self, found: Fitted) -> list[_Move]:
        """The moves with the least loss if mixtures stay the same, which is an upper bound."""
        sums = self._sums(found.labels)
        centres = _normalised(sums)
        predicted = found.mixtures @ centres
        moves = self._moves(found.labels)
        bounds = np.empty(len(moves))
        for k, (one, other, column) in enumerate(moves):
            old = found.labels[one]
            change = -self._counts[one] if other < 0 else self._counts[other] - self._counts[one]
            after = _normalised(np.stack([sums[old] + change, sums[column] - change]))
            rows = np.flatnonzero(found.mixtures[:, [old, column]].sum(axis=1) > _LEAST_SHARE)
            shares = found.mixtures[rows][:, [old, column]]
            swapped = np.isin(rows, [one, other])
            later = np.where(swapped[:, None], shares[:, ::-1], shares)
            mixed = predicted[rows] - shares @ centres[[old, column]] + later @ after
            ratio = np.maximum(mixed, TINY) / predicted[rows]
            bounds[k] = -np.sum(self._counts[rows] * np.log(ratio))
        return [moves[k] for k in np.argsort(bounds, kind="stable")[:_TRIES]]

    def _moves(self, labels: IntArray) -> list[_Move]:
        """All moves and swaps that keep a silo's components apart and no cluster empty."""
        members = np.bincount(labels, minlength=self._size)
        moves = []
        for rows in self._silos:
            holder = np.full(self._size, -1)
            holder[labels[rows]] = np.arange(rows.start, rows.stop)
            for one in range(rows.start, rows.stop):
                for column, other in enumerate(holder.tolist()):
                    if other > one or (other < 0 and members[labels[one]] > 1):
                        moves.append(_Move(one, other, column))
        return moves

    def _sums(self, labels: IntArray) -> FloatArray:
        """Shares of all observations in each global component, by outcome, (G, d)."""
        belongs = labels == np.arange(self._size)[:, None]
        return np.asarray(belongs.astype(np.float64) @ self._counts)


def _normalised(rows: FloatArray) -> FloatArray:
    """Probabilities; a row of zeros stays zero."""
    return np.asarray(rows / np.maximum(rows.sum(axis=1, keepdims=True), TINY))
