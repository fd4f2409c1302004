"""How large the global model should be: where on the path to stop, told from the silos alone.

Two facts bear on whether two clusters are one component or two:

- components of one silo are known to differ, so their divergences show what *different* looks like;
- different components meet in some silos; two halves of one component never do.

Each merge of the path is judged by the chance that two different components would lie as near as
these do **and** never share a silo. From the smallest model on the path, merges are undone as long
as different components explain them; what is left has been shown to belong together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student_t

from klfusion._typing import FloatArray
from klfusion.fusion import PenaltyPath
from klfusion.path import nearest_within_silo
from klfusion.problem import FusionProblem

# A merge is believed if different components would look like this in fewer than one case of ten.
_LEVEL = 0.1
# What is assumed of the spread of log-divergences between different components before any are
# seen, and how many pairs that is worth.
_PRIOR_SPREAD = 0.4
_PRIOR_PAIRS = 3.0
# Without two components in any silo a jump of the path by this factor is taken for its end.
_CLEAR_JUMP = 2.0


@dataclass(frozen=True)
class Choice:
    """Where the path was cut."""

    steps: int
    penalty: float


def choose(problem: FusionProblem, path: PenaltyPath) -> Choice:
    """The number of merges to believe, and a penalty that asks for them."""
    if len(path.ratios) == 0:
        return Choice(0, 1.0)
    null = nearest_within_silo(problem)
    noise = _noise(problem, null)
    steps = _evident_steps(problem, path, null) if len(null) else _steps_to_jump(path, noise)
    # Merges of next to no cost are of copies, whatever else is thought of them.
    steps = max(steps, int(np.searchsorted(path.penalties, noise, side="right")))
    return Choice(steps, penalty_between(path, steps, noise))


def penalty_between(path: PenaltyPath, steps: int, noise: float) -> float:
    """A penalty that pays for so many merges and, as far as possible, for no more."""
    before = float(np.max(path.ratios[:steps], initial=noise))
    if steps == len(path.ratios):
        return 1.2 * before
    after = max(float(path.ratios[steps]), noise)
    if steps == 0:
        return 0.5 * after
    return math.sqrt(before * after)


def _noise(problem: FusionProblem, null: FloatArray) -> float:
    """What is nothing on the path's scale: rounding, or far below any real difference."""
    rounding = 1e-12 * float(np.abs(problem.weights * problem.log_partition).max())
    real = 1e-6 * float(np.median(null)) if len(null) else 0.0
    return max(rounding, real, math.sqrt(np.finfo(np.float64).tiny))


def _evident_steps(problem: FusionProblem, path: PenaltyPath, null: FloatArray) -> int:
    """Merges up to the last one that different components do not explain."""
    log_null = np.log(2.0 * np.maximum(null, 1e-300))  # squared distance of two single components
    middle = np.median(log_null)
    spread = 1.4826 * np.median(np.abs(log_null - middle))  # robust against copies in a silo
    dof = _PRIOR_PAIRS + len(null)
    scale = np.sqrt((_PRIOR_PAIRS * _PRIOR_SPREAD**2 + len(null) * spread**2) / dof)

    log_disjoint, inverse_sizes = _chance_of_never_meeting(problem, path)
    increase = np.diff(path.divergences)
    # Squared distance of the two centres, then what it would be for single components: these
    # scatter around their centre, as the merges so far tell, and larger clusters do so less.
    scatter = path.divergences[:-1] / np.maximum(np.arange(len(increase)), 1)
    distance = increase * inverse_sizes + scatter * (2.0 - inverse_sizes)
    z = (np.log(np.maximum(distance, 1e-300)) - middle) / scale
    log_chance = log_disjoint + student_t.logcdf(z, dof)
    believed = np.flatnonzero(log_chance < np.log(_LEVEL))
    return int(believed[-1]) + 1 if len(believed) else 0


def _chance_of_never_meeting(
    problem: FusionProblem, path: PenaltyPath
) -> tuple[FloatArray, FloatArray]:
    """For each merge, the log-chance that two different components share no silo; and 1/a + 1/b.

    The members of the smaller cluster are dealt, one after the other, to the places that silos have
    for components: ``L_j`` in a silo without the larger cluster, ``L_j - 1`` in one with it.
    """
    places = np.array([rows.stop - rows.start for rows in problem.silos], dtype=np.float64)
    holds = np.zeros((problem.n, len(places)), dtype=bool)
    holds[np.arange(problem.n), problem.silo] = True
    log_chance, inverse_sizes = np.empty(len(path.merges)), np.empty(len(path.merges))
    for step, (a, b) in enumerate(path.merges):
        n_a, n_b = int(holds[a].sum()), int(holds[b].sum())
        larger = holds[a] if n_a >= n_b else holds[b]
        outside, inside = places[~larger].sum(), (places[larger] - 1.0).sum()
        one_silo = outside / max(1, int((~larger).sum()))
        left = np.maximum(outside - one_silo * np.arange(min(n_a, n_b)), one_silo)
        log_chance[step] = np.log(left / (left + inside)).sum()
        inverse_sizes[step] = 1.0 / n_a + 1.0 / n_b
        holds[a] |= holds[b]
    return log_chance, inverse_sizes


def _steps_to_jump(path: PenaltyPath, noise: float) -> int:
    """Merges before the largest jump of the path; all of them if no jump is clear."""
    penalties = np.maximum(path.penalties, noise)
    jumps = penalties[1:] / penalties[:-1]
    if len(jumps) == 0 or jumps.max() < _CLEAR_JUMP:
        return len(penalties)
    return int(jumps.argmax()) + 1
