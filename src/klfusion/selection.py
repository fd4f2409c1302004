"""How large the global model should be: where on the path to stop, told from the silos alone.

Two facts bear on whether two clusters are one component or two:

- clusters that share a silo are known to differ, so the distances between them show what
  *different* looks like;
- different components tend to meet in some silo; two halves of one component never do.

Each merge of the path is judged by the chance that two different components would lie as near as
these do and that some would never meet. Merges are believed up to the last one that different
components do not explain. Where silos specialise, components fail to meet for reasons of their
own: how often they do is estimated from clusters too far apart to be one, and weakens the second
fact accordingly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from klfusion._typing import BoolArray, FloatArray, IntArray
from klfusion.clusters import Clusters, merge_saving
from klfusion.path import Distances
from klfusion.penalty_path import PenaltyPath
from klfusion.problem import FusionProblem

# A merge is believed if different components look like this in fewer than one case of seven.
_LEVEL = 0.15
# Other evidence than nearness counts while different components lie so near in one case of four.
_NEAR_ENOUGH = 0.25
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
# Without two components in any silo a jump of the path by this factor is taken for its end.
_CLEAR_JUMP = 2.0
_MAX_PAIRS = 2_000  # looked at to learn how often different components fail to meet
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Choice:
    """Where the path was cut."""

    steps: int
    penalty: float


def choose(problem: FusionProblem, path: PenaltyPath, distances: Distances) -> Choice:
    """The number of merges to believe, and a penalty that asks for them."""
    if len(path.ratios) == 0:
        return Choice(0, 1.0)
    noise = _noise(problem, distances)
    if problem.largest_silo > 1:
        steps = _evident_steps(problem, path, distances)
    else:
        steps = _steps_to_jump(path, noise)
    # Merges of next to no cost are of copies, whatever else is thought of them.
    steps = max(steps, int(np.searchsorted(path.penalties, noise, side="right")))
    return Choice(steps, _penalty_between(path, distances, steps, noise))


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
    real = 1e-6 * math.exp(distances.typical[0]) if distances.known[0] else 0.0
    return max(rounding, real, math.sqrt(_TINY))


def _evident_steps(problem: FusionProblem, path: PenaltyPath, distances: Distances) -> int:
    """Merges up to the last one that different components do not explain."""
    near = _chance_of_lying_near(distances)
    pure = _last_believed(near)
    segregation = _segregation(problem, path.labels(pure))
    outside, inside, members = _merging_silos(problem, path)
    never = _chance_of_never_meeting(outside, inside, members)
    # There are many others, and only those that never meet come to be merged.
    never = 1.0 - (1.0 - never) ** np.maximum(path.n_components[:-1] - 1, 1)
    never = segregation + (1.0 - segregation) * never
    alone = np.where(members == 1, _odds_of_one_silo(problem, path), 1.0)
    # Never meeting makes no component of two that lie as far apart as different ones do.
    open_to_it = (near < _NEAR_ENOUGH) | (alone < 1.0)
    return max(pure, _last_believed(np.where(open_to_it, near * never * alone, 1.0)))


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


def _last_believed(chance: FloatArray) -> int:
    """Number of steps up to the last whose chance is low, not counting lucky ones."""
    low = chance < _LEVEL
    balance = np.cumsum(np.where(low, 1.0 - _FAILURES, -_FAILURES))
    best = np.maximum(np.maximum.accumulate(balance), 0.0) if len(balance) else balance
    believed = np.flatnonzero(low & (balance >= best - _SLACK))
    return int(believed[-1]) + 1 if len(believed) else 0


def _merging_silos(
    problem: FusionProblem, path: PenaltyPath
) -> tuple[FloatArray, FloatArray, IntArray]:
    """For each merge: places outside and inside the larger cluster's silos, smaller cluster's size.

    A silo has a place for each of its components; one that holds the larger cluster has one less.
    """
    places = _places(problem)
    holds = np.zeros((problem.n, len(places)), dtype=bool)
    holds[np.arange(problem.n), problem.silo] = True
    outside, inside = np.empty(len(path.merges)), np.empty(len(path.merges))
    smaller = np.empty(len(path.merges), dtype=np.intp)
    for step, (a, b) in enumerate(path.merges):
        outside[step], inside[step], smaller[step] = _room(places, holds[a], holds[b])
        holds[a] |= holds[b]
    return outside, inside, smaller


def _places(problem: FusionProblem) -> FloatArray:
    return np.array([rows.stop - rows.start for rows in problem.silos], dtype=np.float64)


def _room(places: FloatArray, a: BoolArray, b: BoolArray) -> tuple[float, float, int]:
    """Places outside and inside the silos of the larger of two clusters; size of the smaller."""
    n_a, n_b = int(a.sum()), int(b.sum())
    larger = a if n_a >= n_b else b
    held = float(places @ larger)
    return float(places.sum()) - held, held - max(n_a, n_b), min(n_a, n_b)


def _chance_of_never_meeting(
    outside: FloatArray, inside: FloatArray, members: IntArray
) -> FloatArray:
    """That ``members`` components, dealt to places at random, all fall outside.

    Each takes a place outside with it, so later ones find fewer: ``outside`` and the total shrink
    in proportion (a product of ``(outside - k) / (outside + inside - k)`` by its midpoint).
    """
    middle = 0.5 * (members - 1.0)
    left = np.maximum(outside - middle, 0.5)
    return np.asarray((left / (left + inside)) ** members)


def _segregation(problem: FusionProblem, labels: IntArray) -> float:
    """How often clusters too far apart to be one never meet, beyond chance: 0 (never) to 1."""
    state = Clusters(problem, labels)
    a, b = np.triu_indices(state.size, k=1)
    if len(a) > _MAX_PAIRS:
        some = np.linspace(0, len(a) - 1, _MAX_PAIRS).astype(np.intp)
        a, b = a[some], b[some]
    holds = state.occupied()
    meet = np.asarray((holds[a] & holds[b]).any(axis=1))
    if not meet.any():
        return 0.0
    distance = state.merge_increases(a, b) * (1.0 / state.counts[a] + 1.0 / state.counts[b])
    far = distance >= np.median(distance[meet])
    places = _places(problem)
    room = [_room(places, holds[i], holds[j]) for i, j in zip(a[far], b[far], strict=True)]
    outside, inside, members = (np.array(column) for column in zip(*room, strict=True))
    expected = _chance_of_never_meeting(outside, inside, members)
    # Pairs that chance alone would keep apart tell nothing.
    weight = 1.0 - expected
    excess = weight @ (~meet[far] - expected)
    return float(np.clip(excess / max(float(weight @ weight), _TINY), 0.0, 1.0))


def _steps_to_jump(path: PenaltyPath, noise: float) -> int:
    """Merges before the largest jump of the path; all of them if no jump is clear.

    The first of many merges are of pairs that happen to coincide, some far more closely than
    others; so a jump counts for more the more merges it ends.
    """
    penalties = np.maximum(path.penalties, noise)
    jumps = np.log(penalties[1:] / penalties[:-1])
    weighted = jumps * np.sqrt(np.arange(1, len(jumps) + 1))
    if len(jumps) == 0 or jumps[weighted.argmax()] < math.log(_CLEAR_JUMP):
        return len(penalties)
    return int(weighted.argmax()) + 1
