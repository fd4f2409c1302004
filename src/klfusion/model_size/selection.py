"""The size of the global model: where on the path to stop, estimated from the silos alone.

Clusters that share a silo are known to differ. The distances between them are the null distribution
of "different" at every stage of the path. The p-value of a merge is the probability that two
different components lie as near as its clusters. Merges are accepted up to the last one with a low
p-value. A component of one silo alone may be a failed local fit; its p-value is multiplied by the
prior odds of a component that no other silo has.
"""

import math
from bisect import insort
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from klfusion._utils.arrays import BoolArray, FloatArray, merge_saving
from klfusion.merging.agglomeration import Distances
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import MergePath

# p-value below which a merge is accepted.
_LEVEL = 0.15
# False discovery rate: where few merges have low p-values, those may be the lowest of many.
_FALSE_DISCOVERIES = 0.4
# A merge is rejected beyond this share of the way, in log-distance, from the `_QUANTILE` of the
# merges before it to different components. While there are fewer than `_FEW_BEFORE` before it, it
# is rejected only beyond a clear jump.
_REACH = 2.0 / 3.0
_QUANTILE = 0.9
_FEW_BEFORE = 5
# Log-distance, relative to different components, below which clusters are copies.
_LOG_NOTHING = math.log(1e-6)
# p-value below which a merge is possible, if it lies before a clear jump.
_POSSIBLE = 1.0 / 3.0
# Among many merges of different components some have low p-values. So a merge counts only if no run
# of merges before it has far more rejections than this share: at most `_SLACK` more.
_REJECTIONS = 0.3
_SLACK = 2.0
# Prior of the standard deviation of log-distances between different components, and the number of
# clusters that this prior is worth.
_PRIOR_DEVIATION = 0.4
_PRIOR_COUNT = 3.0
# Share of local components that are failed fits, such as one component for two true ones.
_FAILED_FITS = 0.003
# Log of squared distances: a clear jump is by a factor of two in distance.
_CLEAR_JUMP = math.log(4.0)
# Where every silo has one component, the path ends at a jump. The k-th jump of ordered numbers,
# times k, is exponentially distributed: it exceeds this with probability 1 %.
_EVIDENT = math.log(100.0)
# Standard deviations of their observations: components farther apart do not merge then.
_UNLIKE = 10.0
_ROUNDING = 1e-9
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Choice:
    """The number of merges accepted, a penalty that gives them, and the number possible."""

    steps: int
    penalty: float
    possible: int


def choose(
    problem: FusionProblem, path: MergePath, distances: Distances, *, topics: bool = False
) -> Choice:
    """Choose the number of merges to accept, and a penalty that gives as many."""
    if len(path.ratios) == 0:
        return Choice(0, 1.0, 0)
    noise = _noise(problem, distances)
    if problem.largest_silo > 1:
        p_values = _p_values(problem, path, distances)
        steps = _last_accepted(p_values, len(problem.silos))
        p_values[_beyond_a_jump(distances, steps)] = 1.0
        possible = int((p_values < _POSSIBLE).sum())
        if steps and not topics:
            steps = max(steps, _accepted_with_few_silos(p_values, len(problem.silos)))
    else:
        steps = possible = min(_steps_to_jump(path, noise), _steps_to_unlike(problem, path))
    # Merges at almost no cost are of copies, whatever their p-values.
    steps = max(steps, int(np.searchsorted(path.penalties, noise, side="right")))
    return Choice(steps, _penalty_between(path, distances, steps, noise), max(steps, possible))


def _penalty_between(path: MergePath, distances: Distances, steps: int, noise: float) -> float:
    """A penalty at which so many merges lower the objective and, if possible, no more."""
    before = float(np.max(path.ratios[:steps], initial=noise))
    if steps == len(path.ratios):  # all clusters left share silos: the price if they could merge
        apart = float(np.exp(distances.typical[-1]) / (2.0 * merge_saving(1, 1)))
        return max(1.2 * before, math.sqrt(before * apart) if np.isfinite(apart) else 0.0)
    after = max(float(path.ratios[steps]), noise)
    if steps == 0:
        return 0.5 * after
    return math.sqrt(before * after)


def _noise(problem: FusionProblem, distances: Distances) -> float:
    """Penalty that is no difference: rounding, or far below the distance of different ones."""
    rounding = 1e-12 * float(np.abs(problem.weights * problem.log_partition).max())
    real = math.exp(_LOG_NOTHING + distances.typical[0]) if distances.known[0] else 0.0
    return max(rounding, real, math.sqrt(_TINY))


def _p_values(problem: FusionProblem, path: MergePath, distances: Distances) -> FloatArray:
    """p-value of each merge under "different", (m,)."""
    odds = np.where(path.sizes.min(axis=1) == 1, _odds_of_one_silo(problem, path), 1.0)
    p_values = _near_by_chance(distances) * odds
    return np.where(_too_far(distances) & (odds == 1.0), 1.0, p_values)


def _too_far(distances: Distances) -> BoolArray:
    """Which merges have the distance of different components, not that of merges before.

    The nearest of many different components is nearer than the nearest of the few in a silo.
    """
    far = np.zeros(len(distances.merged), dtype=bool)
    before: list[float] = []  # sorted, without copies and merges that are too far
    for step, (merged, different) in enumerate(
        zip(distances.merged.tolist(), distances.typical.tolist(), strict=True)
    ):
        if before:
            most = before[int(_QUANTILE * len(before))]
            jump = 0.0 if len(before) >= _FEW_BEFORE else _CLEAR_JUMP
            reach = max(_REACH * (different - most), jump)
            far[step] = most < different and merged > most + reach
        if not (far[step] or merged < different + _LOG_NOTHING):
            insort(before, merged)
    return far


def _odds_of_one_silo(problem: FusionProblem, path: MergePath) -> FloatArray:
    """Before each merge, the odds that a singleton is a component, not a failed fit, (m,).

    If a component is equally likely to be in any number of silos, one in ``J + 1`` is in just one.
    """
    components = path.n_components[:-1] / (len(problem.silos) + 1.0)
    return np.asarray(np.minimum(components / (_FAILED_FITS * problem.n), 1.0))


def _near_by_chance(distances: Distances) -> FloatArray:
    """Probability that different components lie as near as each merge (Student's t), (m,)."""
    dof = _PRIOR_COUNT + distances.known
    seen = np.where(distances.known > 0, distances.known * distances.spread**2, 0.0)
    scale = np.sqrt((_PRIOR_COUNT * _PRIOR_DEVIATION**2 + seen) / dof)
    with np.errstate(invalid="ignore"):
        z = (distances.merged - distances.typical) / scale
    return np.where(np.isnan(z), 1.0, stdtr(dof, z))


def _last_accepted(p_values: FloatArray, n_silos: int) -> int:
    """Number of steps up to the last with a low p-value, without those low by chance."""
    low = p_values <= min(_LEVEL, _level_of_few_false(p_values, n_silos))
    balance = np.cumsum(np.where(low, 1.0 - _REJECTIONS, -_REJECTIONS))
    best = np.maximum(np.maximum.accumulate(balance), 0.0) if len(balance) else balance
    accepted = np.flatnonzero(low & (balance >= best - _SLACK - _ROUNDING))
    return int(accepted[-1]) + 1 if len(accepted) else 0


def _level_of_few_false(p_values: FloatArray, n_silos: int) -> float:
    """The highest level with a low false discovery rate (Benjamini and Hochberg).

    Each of the other silos may hold a different component that lies near. The number of merges of
    different components is estimated by those with a p-value above one half (Storey).
    """
    if len(p_values) == 0:
        return -np.inf
    ordered = np.sort(p_values)
    different = min(2.0 * (1 + np.count_nonzero(ordered > 0.5)), len(p_values))
    ranks = np.arange(1, len(p_values) + 1)
    few = _in_any(ordered, n_silos) * different <= _FALSE_DISCOVERIES * ranks
    return float(ordered[few].max(initial=-np.inf))


def _accepted_with_few_silos(p_values: FloatArray, n_silos: int) -> int:
    """Number of merges to accept where silos are few, once they are known to share some.

    With one or two other silos, a merge that is only possible is more likely right than wrong.
    """
    if _in_any(_LEVEL, n_silos) >= _POSSIBLE:
        return 0
    return int((_in_any(p_values, n_silos) < _POSSIBLE).sum())


def _in_any(p_values: FloatArray | float, n_silos: int) -> FloatArray:
    """p-values for the nearest of all other silos (Sidak)."""
    return np.asarray(1.0 - (1.0 - p_values) ** (n_silos - 1))


def _beyond_a_jump(distances: Distances, steps: int) -> BoolArray:
    """Which merges have far larger distances than the first ``steps``, if there are any."""
    farthest = float(distances.merged[:steps].max(initial=-np.inf)) if steps else np.inf
    return np.asarray(distances.merged > farthest + _CLEAR_JUMP)


def _steps_to_jump(path: MergePath, noise: float) -> int:
    """Number of merges before the largest jump of the path; all of them if no jump is clear.

    The first of many merges are of pairs that happen to coincide, some far more closely than
    others. So a jump is stronger evidence the more merges precede it.
    """
    penalties = np.maximum(path.penalties, noise)
    jumps = np.log(penalties[1:] / penalties[:-1])
    evidence = np.where(jumps > _CLEAR_JUMP, jumps * np.arange(1, len(jumps) + 1), 0.0)
    if evidence.max(initial=0.0) < _EVIDENT:
        return len(penalties)
    return int(evidence.argmax()) + 1


def _steps_to_unlike(problem: FusionProblem, path: MergePath) -> int:
    """Number of merges before the first of components that are too far apart to be one."""
    centres = problem.as_given.copy()
    for step, ((a, b), (n_a, n_b)) in enumerate(zip(path.merges, path.sizes, strict=True)):
        if problem.family.separation(centres[[a]], centres[[b]])[0] > _UNLIKE:
            return step
        centres[a] = (n_a * centres[a] + n_b * centres[b]) / (n_a + n_b)
    return len(path.merges)
