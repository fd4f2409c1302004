"""How large the global model should be: where on the path to stop, told from the silos alone.

Clusters that share a silo are known to differ, so the distances between them show what *different*
looks like at every stage of the path. Each merge is judged by the chance that two different
components would lie as near as these do, and merges are believed up to the last one that different
components do not explain. What one silo alone has may be a failed local fit: that is weighed
against the odds of a component that no other silo has.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.merging.penalty_path import Distances
from klfusion.objective.clusters import merge_saving
from klfusion.objective.merge_path import PenaltyPath
from klfusion.objective.problem import FusionProblem

# A merge is believed if different components look like this in fewer than one case of seven. Where
# few merges pass, those few may be what chance finds among many: no more than two in five of
# the merges believed may be expected to be false.
_LEVEL = 0.15
_FALSE = 0.4
# Nor is one at a distance beyond two thirds of the way from that of nine in ten merges before to
# that of different components, both as logarithms; while there are few before, it must be beyond a
# clear jump, too.
_REACH = 2.0 / 3.0
_USUAL = 0.9
_FEW_BEFORE = 5
_LOG_NOTHING = math.log(1e-6)  # relative to different components: merges of copies
# A merge is possible if different components look like this in fewer than one case of three, and
# if it is not at a distance more than twice that of every merge believed.
_POSSIBLE = 1.0 / 3.0
# Of many merges of different components some pass by chance. So a merge counts only while, of
# those before it, no stretch has far more failures than three in ten: at most two beyond that.
_FAILURES = 0.3
_SLACK = 2.0
# What is assumed of the deviation of log-distances between different components before any are
# seen, and how many clusters that is worth.
_PRIOR_SPREAD = 0.4
_PRIOR_COUNT = 3.0
# Share of local components that are failed fits (two true ones in one, say), like nothing else.
_FAILED_FITS = 0.003
# A clear jump is one to twice the distance, which is squared.
_CLEAR_JUMP = math.log(4.0)
# Without two components in any silo a jump of the path is taken for its end: by a clear one, and
# by so much that points in no order would hardly jump like this (k times the k-th jump of
# ordered numbers is exponentially distributed).
_EVIDENT = math.log(100.0)
# Nor do components merge then that are so many deviations of their observations apart.
_UNLIKE = 10.0
_ROUNDING = 1e-9
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Choice:
    """Where the path was cut, and how many of its merges are possible at all."""

    steps: int
    penalty: float
    possible: int


def choose(problem: FusionProblem, path: PenaltyPath, distances: Distances) -> Choice:
    """The number of merges to believe, and a penalty that asks for them."""
    if len(path.ratios) == 0:
        return Choice(0, 1.0, 0)
    noise = _noise(problem, distances)
    if problem.largest_silo > 1:
        chance = _chance_if_different(problem, path, distances)
        steps = _last_believed(chance, len(problem.silos))
        chance[_beyond_a_jump(distances, steps)] = 1.0
        possible = int((chance < _POSSIBLE).sum())
        if steps and not problem.merged_by_loss:
            steps = max(steps, _believed_of_few(chance, len(problem.silos)))
    else:
        steps = possible = min(_steps_to_jump(path, noise), _steps_to_unlike(problem, path))
    # Merges of next to no cost are of copies, whatever else is thought of them.
    steps = max(steps, int(np.searchsorted(path.penalties, noise, side="right")))
    return Choice(steps, _penalty_between(path, distances, steps, noise), max(steps, possible))


def _penalty_between(path: PenaltyPath, distances: Distances, steps: int, noise: float) -> float:
    """A penalty that pays for so many merges and, as far as possible, for no more."""
    before = float(np.max(path.ratios[:steps], initial=noise))
    if steps == len(path.ratios):  # all that are left share silos: what would merging them take?
        one = np.ones(1, dtype=np.intp)
        apart = float(np.exp(distances.typical[-1]) / (2.0 * merge_saving(one, one)[0]))
        return max(1.2 * before, math.sqrt(before * apart) if np.isfinite(apart) else 0.0)
    after = max(float(path.ratios[steps]), noise)
    if steps == 0:
        return 0.5 * after
    return math.sqrt(before * after)


def _noise(problem: FusionProblem, distances: Distances) -> float:
    """What is nothing on the path's scale: rounding, or far below any real difference."""
    rounding = 1e-12 * float(np.abs(problem.weights * problem.log_partition).max())
    real = math.exp(_LOG_NOTHING + distances.typical[0]) if distances.known[0] else 0.0
    return max(rounding, real, math.sqrt(_TINY))


def _chance_if_different(
    problem: FusionProblem, path: PenaltyPath, distances: Distances
) -> FloatArray:
    """For each merge, the chance that different components explain it, (m,)."""
    alone = np.where(_smaller_sizes(path) == 1, _odds_of_one_silo(problem, path), 1.0)
    chance = _chance_of_lying_near(distances) * alone
    return np.where(_too_far(distances) & (alone == 1.0), 1.0, chance)


def _too_far(distances: Distances) -> BoolArray:
    """Which merges are at the distance of different components, not at that of merges before.

    The nearest of many different components is nearer than the nearest of the few in a silo.
    """
    far = np.zeros(len(distances.merged), dtype=bool)
    before: list[float] = []  # in order, without merges of copies and what is too far
    for step, (merged, different) in enumerate(
        zip(distances.merged.tolist(), distances.typical.tolist(), strict=True)
    ):
        if before:
            usual = before[int(_USUAL * len(before))]
            jump = 0.0 if len(before) >= _FEW_BEFORE else _CLEAR_JUMP
            reach = max(_REACH * (different - usual), jump)
            far[step] = usual < different and merged > usual + reach
        if not (far[step] or merged < different + _LOG_NOTHING):
            insort(before, merged)
    return far


def _smaller_sizes(path: PenaltyPath) -> IntArray:
    """Members of the smaller cluster of each merge, (m,)."""
    counts, smaller = np.ones(path.n_components[0], dtype=np.intp), []
    for a, b in path.merges:
        smaller.append(min(counts[a], counts[b]))
        counts[a] += counts[b]
    return np.array(smaller, dtype=np.intp)


def _odds_of_one_silo(problem: FusionProblem, path: PenaltyPath) -> FloatArray:
    """Before each merge, the odds that what one silo alone has is a component, not a failed fit.

    If a component is as likely to be in any number of silos, one in ``J + 1`` is in just one.
    """
    components = path.n_components[:-1] / (len(problem.silos) + 1.0)
    return np.asarray(np.minimum(components / (_FAILED_FITS * problem.n), 1.0))


def _chance_of_lying_near(distances: Distances) -> FloatArray:
    """For each merge, the chance that different components lie as near (Student's t)."""
    dof = _PRIOR_COUNT + distances.known
    seen = np.where(distances.known > 0, distances.known * distances.spread**2, 0.0)
    scale = np.sqrt((_PRIOR_COUNT * _PRIOR_SPREAD**2 + seen) / dof)
    with np.errstate(invalid="ignore"):
        z = (distances.merged - distances.typical) / scale
    return np.where(np.isnan(z), 1.0, stdtr(dof, z))


def _last_believed(chance: FloatArray, n_silos: int) -> int:
    """Number of steps up to the last whose chance is low, not counting lucky ones."""
    low = chance <= min(_LEVEL, _level_of_few_false(chance, n_silos))
    balance = np.cumsum(np.where(low, 1.0 - _FAILURES, -_FAILURES))
    best = np.maximum(np.maximum.accumulate(balance), 0.0) if len(balance) else balance
    believed = np.flatnonzero(low & (balance >= best - _SLACK - _ROUNDING))
    return int(believed[-1]) + 1 if len(believed) else 0


def _level_of_few_false(chance: FloatArray, n_silos: int) -> float:
    """The highest level at which few of the merges below it are false (Benjamini and Hochberg).

    Each of the other silos is a chance for something different to lie near. How many merges are of
    different components is told by those with a chance above a half (Storey).
    """
    if len(chance) == 0:
        return -np.inf
    ordered = np.sort(chance)
    different = min(2.0 * (1 + np.count_nonzero(ordered > 0.5)), len(chance))
    few = _in_any(ordered, n_silos) * different <= _FALSE * np.arange(1, len(chance) + 1)
    return float(ordered[few].max(initial=-np.inf))


def _believed_of_few(chance: FloatArray, n_silos: int) -> int:
    """How many merges to believe where few silos show little, once they are known to share some.

    With one or two others, a merge that is only possible is more likely right than wrong.
    """
    if _in_any(_LEVEL, n_silos) >= _POSSIBLE:
        return 0
    return int((_in_any(chance, n_silos) < _POSSIBLE).sum())


def _in_any(chance: FloatArray | float, n_silos: int) -> FloatArray:
    """The chance in any of the other silos (Sidak)."""
    return np.asarray(1.0 - (1.0 - chance) ** (n_silos - 1))


def _beyond_a_jump(distances: Distances, steps: int) -> BoolArray:
    """Which merges are at far larger distances than the first ``steps``, if there are any."""
    farthest = float(distances.merged[:steps].max(initial=-np.inf)) if steps else np.inf
    return np.asarray(distances.merged > farthest + _CLEAR_JUMP)


def _steps_to_jump(path: PenaltyPath, noise: float) -> int:
    """Merges before the largest jump of the path; all of them if no jump is clear.

    The first of many merges are of pairs that happen to coincide, some far more closely than
    others; so a jump counts for more the more merges it ends.
    """
    penalties = np.maximum(path.penalties, noise)
    jumps = np.log(penalties[1:] / penalties[:-1])
    evidence = np.where(jumps > _CLEAR_JUMP, jumps * np.arange(1, len(jumps) + 1), 0.0)
    if evidence.max(initial=0.0) < _EVIDENT:
        return len(penalties)
    return int(evidence.argmax()) + 1


def _steps_to_unlike(problem: FusionProblem, path: PenaltyPath) -> int:
    """Merges before the first of components so far apart that nobody would take them for one."""
    centres, counts = problem.as_given.copy(), np.ones(problem.n)
    for step, (a, b) in enumerate(path.merges):
        if problem.family.separation(centres[[a]], centres[[b]])[0] > _UNLIKE:
            return step
        total = counts[a] + counts[b]
        centres[a] = (counts[a] * centres[a] + counts[b] * centres[b]) / total
        counts[a] = total
    return len(path.merges)
