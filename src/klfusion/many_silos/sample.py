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

from klfusion._utils.arrays import BoolArray, IntArray
from klfusion._utils.penalty import total_penalty
from klfusion._utils.progress import Report
from klfusion.many_silos.centres import Globals, merged
from klfusion.many_silos.sweep import Tally, bound, descend
from klfusion.merging.penalty_path import penalty_path
from klfusion.model_size.revision import Usual, find_blends, part_doubles
from klfusion.objective.clusters import Clusters
from klfusion.objective.parts import Stock, Without
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Limits, Solution, Status

_ROUNDS = 8  # of finding what the sketch had not seen
_LOOK = 4  # times the sketch: what is looked at a second time
_TOL = 1e-7  # relative fall of the objective in a sweep that is not worth another
_BURST = 5  # sweeps between looks for global components that are one
_MOST_ALONE = 5_000  # that get a column each in the bound


def fuse_many(
    stock: Stock,
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
    stock : Stock
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
    parts = stock.parts
    sketch = stock.take(stock.first_silos(rng.permutation(stock.n_silos), most))
    found = on_sketch(sketch)
    penalty = found.penalty
    state = Globals.of_labels(sketch, found.labels, len(sketch.silos) / stock.n_silos)
    if not grows:
        return _settled(stock, state, _Aside.none(stock), found, grows, None, limits, report)
    tally = _grown(stock, state, penalty, most, rng, report)
    state, _ = merged(tally, parts.family, penalty, stock.n_silos)
    if second_look:
        look = _second_look(stock, state, penalty, most, rng)
    else:
        look = _Look(state, np.zeros(len(state.counts), dtype=bool), penalty)
    labels = look.state.sweep(parts, penalty, look.alone).all_labels
    return _settled(
        stock, look.state, look.aside(stock, labels), found, grows, look.usual, limits, report
    )


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
        problem = stock.take(np.sort(rng.permutation(alone)[: most // 2]))
        if problem.n < 2:
            break
        path, _ = penalty_path(problem, report, penalty)
        labels = path.labels(len(path.merges))
        new = Globals.of_labels(problem, labels, problem.n / len(alone))
        several = np.bincount(labels) > 1
        if not several.any():
            break
        state = Globals.of(tally).joined(new.some(several))
    return tally


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
    usual : Usual, optional
        What members usually add to their global component.
    """

    state: Globals
    blended: BoolArray
    alone: float
    usual: Usual | None = None

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
        usual=usual,
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
    usual: Usual | None,
    limits: Limits,
    report: Report,
) -> Solution:
    """Descend, with what is set aside where it is, and certify."""
    kept = ~(aside.alone | aside.left_out)
    parts = Without(stock.parts, [np.flatnonzero(own) for own in stock.by_part(kept)])
    penalty, trace, sweeps = found.penalty, list[float](), 0
    while True:
        tally, more, converged = descend(
            parts, state.centres, state.counts, penalty,
            max_iter=_BURST, tol=max(limits.tol, _TOL), report=report,
        )  # fmt: skip
        trace, sweeps = trace + more, sweeps + len(more)
        state = Globals.of(tally)
        if grows:  # halves of one component would take many sweeps to find a balance
            state, raised = merged(tally, parts.family, found.penalty, stock.n_silos, usual)
        if len(state.counts) < len(tally.counts):
            penalty, trace = max(penalty, raised), []
        elif converged or sweeps >= limits.max_iter:
            break
    size, alone = len(tally.counts), np.flatnonzero(aside.alone)
    labels = np.zeros(stock.n, dtype=np.intp)
    labels[kept] = tally.all_labels
    labels[alone] = size + np.arange(len(alone))
    trace = [value + penalty * len(alone) for value in trace]
    lower = total_penalty(np.array([stock.n]), penalty)  # all sharing one column's norm
    if len(alone) <= _MOST_ALONE:
        rest = [np.flatnonzero(~own) for own in stock.by_part(aside.left_out)]
        centres, counts = tally.centres, tally.counts
        if len(alone):
            centres = np.concatenate([centres, stock.take(alone).natural])
            counts = np.concatenate([counts, np.ones(len(alone), dtype=np.intp)])
        of_part = [own[rows] for own, rows in zip(stock.by_part(labels), rest, strict=True)]
        lower = bound(Without(stock.parts, rest), centres, of_part, counts, penalty)
    return Solution(
        plan=labels,
        labels=labels,
        objective=trace[-1],
        lower_bound=min(lower, trace[-1]),
        trace=trace,
        penalty=penalty,
        status=Status.CONVERGED if converged else Status.MAX_ITER,
        path=found.path,
        left_out=aside.left_out if aside.left_out.any() else None,
    )
