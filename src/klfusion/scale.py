"""The default for very many silos: the path on a sketch of them, assignments streamed over all.

The path compares all pairs, which is quadratic. So it is walked on the components of a random
sample of silos, small enough for that. Its penalty holds for all: it is the price at which a
component opens a global one of its own, whatever the number of silos. Then every silo is assigned
to the sketch's global components, all at once. What finds none near enough is sketched in its
turn, until all have been found. A second look at a sample of the result parts, leaves out and
gathers as `revision` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from klfusion._typing import BoolArray, FloatArray, IntArray
from klfusion.algorithm import Report
from klfusion.clusters import Clusters, merge_saving
from klfusion.families import Family
from klfusion.fusion import Status
from klfusion.path import penalty_path
from klfusion.problem import FusionProblem
from klfusion.revision import Usual, find_blends, part_doubles
from klfusion.search import Limits, Solution
from klfusion.streaming import (
    Parts,
    Stock,
    Tally,
    Without,
    bound,
    descend,
    rows_of,
    sweep,
    tangents,
)

_ROUNDS = 8  # of finding what the sketch had not seen
_LOOK = 8  # times the sketch: what is looked at a second time
_TOL = 1e-7  # relative fall of the objective in a sweep that is not worth another
_NEIGHBOURS = 4  # of a global component, those that may be one with it
_MOST_ALONE = 5_000  # that get a column each in the bound


@dataclass(frozen=True, eq=False)
class Globals:
    """Global components on the way: where they are, and how many local ones are in each."""

    centres: FloatArray
    counts: FloatArray

    @classmethod
    def of_labels(cls, problem: FusionProblem, labels: IntArray, share: float = 1.0) -> Globals:
        """The clusters of a problem that is a ``share`` of all."""
        labels = np.unique(labels, return_inverse=True)[1]
        counts = np.bincount(labels)
        return cls(problem.average(labels, len(counts)), counts / share)

    @classmethod
    def of(cls, tally: Tally) -> Globals:
        """Those of a sweep."""
        return cls(tally.centres, tally.counts.astype(np.float64))

    def sweep(self, parts: Parts, penalty: float, alone: float) -> Tally:
        """Assign every silo, with the choice of being alone."""
        return sweep(parts, self.centres, tangents(self.counts, penalty), alone)

    def some(self, which: IntArray | BoolArray) -> Globals:
        """Some of them."""
        return Globals(self.centres[which], self.counts[which])

    def joined(self, others: Globals) -> Globals:
        """These and others."""
        return Globals(
            np.concatenate([self.centres, others.centres]),
            np.concatenate([self.counts, others.counts]),
        )


def fuse_many(
    parts: Parts,
    on_sketch: Callable[[FusionProblem], Solution],
    limits: Limits,
    *,
    most: int,
    grows: bool,
    second_look: bool,
    rng: np.random.Generator,
    report: Report,
) -> Solution:
    """Match the components of very many silos.

    Parameters
    ----------
    parts : Parts
    on_sketch : callable
        The method for a problem small enough: labels and penalty.
    limits : Limits
        How long to descend.
    most : int
        Components a sketch may have.
    grows : bool
        Whether there may be more global components than the sketch has.
    second_look : bool
        Whether to part doubles, leave out blends and gather stragglers.
    rng : numpy.random.Generator
    report : callable

    Returns
    -------
    Solution
        Its path is that of the sketch; ``left_out`` are the blends.
    """
    stock = Stock.of(parts)
    sketch = stock.take(stock.first_silos(rng.permutation(stock.n_silos), most))
    found = on_sketch(sketch)
    while found.blends is not None:
        sketch = rows_of(sketch, np.flatnonzero(~found.blends))
        found = on_sketch(sketch)
    penalty = found.penalty
    state = Globals.of_labels(sketch, found.labels, len(sketch.silos) / stock.n_silos)
    if not grows:
        return _settled(stock, state, _Aside.none(stock), found, grows, limits, report)
    state = _merged(_grown(stock, state, penalty, most, rng, report), parts.family, penalty)
    if second_look:
        look = _second_look(stock, state, penalty, most, rng)
    else:
        look = _Look(state, np.zeros(len(state.counts), dtype=bool), penalty)
    labels = look.state.sweep(parts, penalty, look.alone).all_labels
    return _settled(stock, look.state, look.aside(stock, labels), found, grows, limits, report)


def _grown(
    stock: Stock,
    state: Globals,
    penalty: float,
    most: int,
    rng: np.random.Generator,
    report: Report,
) -> Tally:
    """Assign all; what is left alone is sketched for global components not seen before."""
    for number in range(_ROUNDS):
        report("sweeping", number + 1, None)
        tally = state.sweep(stock.parts, penalty, penalty).compact()
        alone = np.flatnonzero(tally.all_labels < 0)
        problem = stock.take(np.sort(rng.permutation(alone)[:most]))
        if problem.n < 2:
            break
        path, _ = penalty_path(problem, report)
        labels = path.labels(path.steps_at(penalty))
        new = Globals.of_labels(problem, labels, problem.n / len(alone))
        several = np.bincount(labels) > 1
        if not several.any():
            break
        state = Globals.of(tally).joined(new.some(several))
    return tally


def _merged(tally: Tally, family: Family, penalty: float) -> Globals:
    """Global components that never meet made one where that pays, the best pairs first."""
    mass, sums, counts = tally.mass.copy(), tally.sums.copy(), tally.counts.copy()
    meets = tally.meets.copy()
    while True:
        centres = sums / mass[:, None]
        log_partition = family.log_partition(centres)
        a, b = _near_pairs(family.kl_from(centres, centres, log_partition), meets)
        total = mass[a] + mass[b]
        increase = mass[a] * log_partition[a] + mass[b] * log_partition[b]
        increase -= total * family.log_partition((sums[a] + sums[b]) / total[:, None])
        gain = penalty * merge_saving(counts[a], counts[b]) - np.maximum(increase, 0.0)
        gone, changed = np.zeros((2, len(counts)), dtype=bool)
        for k in np.argsort(-gain, kind="stable")[: int((gain > 0).sum())]:
            i, j = a[k], b[k]
            if not (changed[i] or changed[j]):
                changed[[i, j]] = gone[j] = True
                for array in (mass, sums, counts, meets, meets.T):
                    array[i] += array[j]
        if not gone.any():
            return Globals(centres, counts.astype(np.float64))
        mass, sums, counts = mass[~gone], sums[~gone], counts[~gone]
        meets = meets[np.ix_(~gone, ~gone)]


def _near_pairs(kl: FloatArray, meets: FloatArray) -> tuple[IntArray, IntArray]:
    """Pairs of near global components that never meet, each once."""
    distance = np.where(meets > 0, np.inf, kl + kl.T)  # each meets itself
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :_NEIGHBOURS]
    a = np.repeat(np.arange(len(kl)), nearest.shape[1])
    pairs = np.stack([a, nearest.ravel()], axis=1)[np.isfinite(distance[a, nearest.ravel()])]
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


@dataclass(frozen=True, eq=False)
class _Look:
    """What a second look says.

    Parameters
    ----------
    state : Globals
        With doubles parted.
    blended : bool array of shape (G,)
        Which of them are blends of two others.
    alone : float
        The price of being alone: what is nearer than that to a global component is a straggler.
    """

    state: Globals
    blended: BoolArray
    alone: float

    def aside(self, stock: Stock, labels: IntArray) -> _Aside:
        """What is alone, and what is a blend and left out; no silo goes without any."""
        blends = (labels >= 0) & self.blended[labels]
        none_left = np.logical_and.reduceat(blends, stock.starts)[stock.silo]
        return _Aside((labels < 0) | (blends & none_left), blends & ~none_left)


@dataclass(frozen=True, eq=False)
class _Aside:
    """Components that take no part in the descent, (n,) each."""

    alone: BoolArray
    left_out: BoolArray

    @classmethod
    def none(cls, stock: Stock) -> _Aside:
        return cls(*np.zeros((2, stock.n), dtype=bool))


def _second_look(
    stock: Stock, state: Globals, penalty: float, most: int, rng: np.random.Generator
) -> _Look:
    """Look again at whole silos: part doubles, find blends, learn how far members lie."""
    tally = state.sweep(stock.parts, penalty, penalty).compact()
    state, labels = Globals.of(tally), tally.all_labels
    size = len(state.counts)
    rows = _rare_and_random(stock, labels, tally.counts, _LOOK * most, rng)
    problem, labels = stock.take(rows), labels[rows]
    single = np.flatnonzero(labels < 0)
    labels[single] = size + np.arange(len(single))
    parted = part_doubles(problem, labels)
    pieces = Globals.of_labels(problem, parted)
    whole = np.empty(len(pieces.counts), dtype=np.intp)  # what each is a piece of
    whole[parted] = labels
    blended = np.zeros(len(whole), dtype=bool)
    blended[parted[find_blends(problem, parted)]] = True
    seen = np.bincount(whole, weights=pieces.counts, minlength=size)
    entire = np.bincount(whole, minlength=size)[:size] < 2
    halves = np.flatnonzero(~np.append(entire, True)[np.minimum(whole, size)])
    ratio = state.counts[whole[halves]] / seen[whole[halves]]
    usual = Usual.of(Clusters(problem, parted))
    entire_blends = np.zeros(size, dtype=bool)
    entire_blends[whole[blended & (whole < size)]] = True
    # A blend that is alone becomes a global component, so that it can be left out.
    lonely = np.flatnonzero(blended & (whole >= size))
    new = Globals(
        pieces.centres[np.concatenate([halves, lonely])],
        np.concatenate([pieces.counts[halves] * ratio, pieces.counts[lonely]]),
    )
    return _Look(
        state=state.some(entire).joined(new),
        blended=np.concatenate([entire_blends[entire], blended[halves], blended[lonely]]),
        alone=penalty if usual is None else max(penalty, usual.farthest(stock.n)),
    )


def _rare_and_random(
    stock: Stock, labels: IntArray, counts: IntArray, most: int, rng: np.random.Generator
) -> IntArray:
    """Components of whole silos: half of those with the rarest global components, half of any."""
    rarest = np.minimum.reduceat(np.where(labels < 0, 1, counts[labels]), stock.starts)
    order = rng.permutation(stock.n_silos)
    rare = order[np.argsort(rarest[order], kind="stable")]
    half = most // 2
    return np.union1d(stock.first_silos(rare, half), stock.first_silos(order, half))


def _settled(
    stock: Stock,
    state: Globals,
    aside: _Aside,
    found: Solution,
    grows: bool,
    limits: Limits,
    report: Report,
) -> Solution:
    """Descend, with what is set aside where it is, and certify."""
    kept = ~(aside.alone | aside.left_out)
    parts = Without(stock.parts, [np.flatnonzero(own) for own in stock.by_part(kept)])
    trace: list[float] = []
    while True:
        tally, more, converged = descend(
            parts, state.centres, state.counts, found.penalty,
            max_iter=limits.max_iter, tol=max(limits.tol, _TOL), report=report,
        )  # fmt: skip
        trace += more
        state = _merged(tally, parts.family, found.penalty) if grows else state
        if not grows or len(state.counts) == len(tally.counts):
            break
    size, alone = len(tally.counts), np.flatnonzero(aside.alone)
    labels = np.zeros(stock.n, dtype=np.intp)
    labels[kept] = tally.all_labels
    labels[alone] = size + np.arange(len(alone))
    trace = [value + found.penalty * len(alone) for value in trace]
    lower = found.penalty * np.sqrt(stock.n)  # all sharing one column's norm
    if len(alone) <= _MOST_ALONE:
        rest = [np.flatnonzero(~own) for own in stock.by_part(aside.left_out)]
        centres, counts = tally.centres, tally.counts
        if len(alone):
            centres = np.concatenate([centres, stock.take(alone).natural])
            counts = np.concatenate([counts, np.ones(len(alone), dtype=np.intp)])
        of_part = [own[rows] for own, rows in zip(stock.by_part(labels), rest, strict=True)]
        lower = bound(Without(stock.parts, rest), centres, of_part, counts, found.penalty)
    return Solution(
        plan=labels,
        labels=labels,
        objective=trace[-1],
        lower_bound=min(lower, trace[-1]),
        trace=trace,
        penalty=found.penalty,
        status=Status.CONVERGED if converged else Status.MAX_ITER,
        path=found.path,
        left_out=aside.left_out if aside.left_out.any() else None,
    )
