"""Fewer states: merge two, or drop one, wherever that raises the lower bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.learners._inference import Fit, Frames, Model, iterate
from klfusion.learners._transitions import log_normaliser

_TRIALS = 6  # merges looked at before a round of moves is given up
_TRIAL_ITERATIONS = 8  # in which a move has to show that it raises the bound
_SETTLING = 10  # iterations after a move, before the next is looked for


def simplify(model: Model, frames: Frames, fit: Fit, *, max_iter: int, tol: float) -> Fit:
    """Make moves until none raises the bound. The bounds of rejected moves are not recorded."""
    rejected: set[bytes] = set()
    settled = fit.converged
    while fit.statistics.n_states > 1:
        moved = _one_move(model, frames, fit, rejected, tol)
        if moved is not None:
            fit, settled = moved, False
        elif settled:
            return fit
        else:  # settle for good, and look once more
            fit, settled = _go_on(model, frames, fit, max_iter, tol), True
    return _go_on(model, frames, fit, max_iter, tol)


def _one_move(
    model: Model, frames: Frames, fit: Fit, rejected: set[bytes], tol: float
) -> Fit | None:
    """The first proposal that raises the bound, settled a little; None if there is none."""
    for labels in _proposals(model, fit):
        proposal = fit.statistics.merged(labels).largest_first()
        key = np.round(np.sort(proposal.frames), 3).tobytes()
        if key in rejected:
            continue
        trial = iterate(
            model, frames, proposal, max_iter=_TRIAL_ITERATIONS, tol=tol, enough=fit.bound
        )
        if trial.bound > fit.bound:
            trial = replace(trial, trace=[*fit.trace, trial.bound])
            return _go_on(model, frames, trial, _SETTLING, tol)
        rejected.add(key)
    return None


def _go_on(model: Model, frames: Frames, fit: Fit, max_iter: int, tol: float) -> Fit:
    """More iterations from where a fit is."""
    sticks = fit.estimate.transitions.sticks
    rest = iterate(model, frames, fit.statistics, max_iter=max_iter, tol=tol, sticks=sticks)
    return replace(rest, trace=[*fit.trace, *rest.trace])


def _proposals(model: Model, fit: Fit) -> Iterator[IntArray]:
    """Labels that merge two states or drop one, the most promising first."""
    statistics = fit.statistics
    n = statistics.n_states
    smallest = int(statistics.frames.argmin())
    drop = np.arange(n)
    drop[smallest] = -1
    drop[smallest + 1 :] -= 1
    if statistics.frames[smallest] < model.family.least_count:
        yield drop
    a, b = np.triu_indices(n, k=1)
    gain = _gains(model, fit, a, b)
    for pair in np.argsort(-gain, kind="stable")[:_TRIALS]:
        labels = np.arange(n)
        labels[b[pair]] = a[pair]
        labels[b[pair] + 1 :] -= 1
        yield labels
    if statistics.frames[smallest] >= model.family.least_count:
        yield drop


def _gains(model: Model, fit: Fit, a: IntArray, b: IntArray) -> FloatArray:
    """Evidence gained by each merge if every frame stayed where it is, up to a constant."""
    statistics, family = fit.statistics, model.family
    natural = model.prior + statistics.moments
    log_partition = family.log_partition(natural)
    together = family.log_partition(natural[a] + natural[b] - model.prior)
    gain = together - log_partition[a] - log_partition[b]
    counts = np.pad(statistics.counts, [(0, 0), (0, 1)])
    prior = model.transitions.rows(fit.estimate.transitions.sticks)
    for number, (i, j) in enumerate(zip(a, b, strict=True)):
        rows = _columns_joined(counts, i, j)
        rows[i] += rows[j]
        rows += _columns_joined(prior, i, j)
        gain[number] -= log_normaliser(np.delete(rows, j, axis=0)).sum()
    return np.asarray(gain)


def _columns_joined(rows: FloatArray, i: int, j: int) -> FloatArray:
    joined = np.delete(rows, j, axis=1)
    joined[:, i] += rows[:, j]  # i < j
    return joined
