"""Merge two states, or drop one, if that raises the lower bound."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.learners._inference import Fit, Model, Problem, iterate
from klfusion.learners._transitions import log_normaliser

_TRIALS = 6  # merges tried per round
_TRIAL_ITERATIONS = 8  # iterations within which a move must raise the bound
_SETTLING = 10  # iterations between an accepted move and the next trial


def simplify(problem: Problem, fit: Fit, max_iter: int) -> Fit:
    """Accept moves until none raises the bound; rejected moves leave no bound in the trace."""
    rejected: set[bytes] = set()
    settled = fit.converged
    while fit.statistics.n_states > 1:
        moved = _one_move(problem, fit, rejected)
        if moved is not None:
            fit, settled = moved, False
        elif settled:
            return fit
        else:  # iterate to convergence, then try once more
            fit, settled = _continued(problem, fit, max_iter), True
    return _continued(problem, fit, max_iter)


def _one_move(problem: Problem, fit: Fit, rejected: set[bytes]) -> Fit | None:
    """The first proposal that raises the bound, after `_SETTLING` iterations; None if none does."""
    for labels in _proposals(problem.model, fit):
        proposal = fit.statistics.merged(labels).largest_first()
        key = np.round(np.sort(proposal.frames), 3).tobytes()
        if key in rejected:
            continue
        trial = iterate(problem, proposal, _TRIAL_ITERATIONS, enough=fit.bound)
        if trial.bound > fit.bound:
            trial = replace(trial, trace=[*fit.trace, trial.bound])
            return _continued(problem, trial, _SETTLING)
        rejected.add(key)
    return None


def _continued(problem: Problem, fit: Fit, max_iter: int) -> Fit:
    """The fit after more iterations."""
    rest = iterate(problem, fit.statistics, max_iter)
    return replace(rest, trace=[*fit.trace, *rest.trace])


def _proposals(model: Model, fit: Fit) -> Iterator[IntArray]:
    """Labels that merge two states or drop one, the largest estimated gain first."""
    n, frames = fit.statistics.n_states, fit.statistics.frames
    smallest = int(frames.argmin())
    a, b = np.triu_indices(n, k=1)
    best = np.argsort(-_gains(model, fit, a, b), kind="stable")[:_TRIALS]
    moves = [(int(b[pair]), int(a[pair])) for pair in best]
    moves.insert(0 if frames[smallest] < model.family.least_count else len(moves), (smallest, -1))
    for gone, onto in moves:
        labels = np.arange(n)
        labels[gone] = onto
        labels[gone + 1 :] -= 1
        yield labels


def _gains(model: Model, fit: Fit, a: IntArray, b: IntArray) -> FloatArray:
    """Evidence gained by each merge with the states of all frames fixed, up to a constant."""
    statistics, family = fit.statistics, model.family
    natural = model.prior + statistics.moments
    log_partition = family.log_partition(natural)
    merged = family.log_partition(natural[a] + natural[b] - model.prior)
    gain = merged - log_partition[a] - log_partition[b]
    counts = np.pad(statistics.counts, [(0, 0), (0, 1)])
    prior = model.transitions.rows(fit.estimate.transitions.sticks)
    for number, (i, j) in enumerate(zip(a, b, strict=True)):
        rows = _merged_columns(counts, i, j)
        rows[i] += rows[j]
        rows += _merged_columns(prior, i, j)
        gain[number] -= log_normaliser(np.delete(rows, j, axis=0)).sum()
    return np.asarray(gain)


def _merged_columns(rows: FloatArray, i: int, j: int) -> FloatArray:
    """Add column ``j`` to column ``i < j`` and delete it."""
    merged = np.delete(rows, j, axis=1)
    merged[:, i] += rows[:, j]
    return merged
