"""Variational inference for the sticky HDP-HMM, its starts, and moves that merge or drop states."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, relabel
from klfusion.families import NormalWishart
from klfusion.families.triangles import pack
from klfusion.learners._messages import LOG_FLOOR, Blocks, Workspace
from klfusion.learners._transitions import Sticks, TransitionPrior, Transitions, log_normaliser

_LOG_2PI = float(np.log(2.0 * np.pi))
_TRIALS = 6  # merges tried per round
_TRIAL_ITERATIONS = 8  # iterations within which a move must raise the bound
_SETTLING = 10  # iterations between an accepted move and the next trial


@dataclass(frozen=True, eq=False)
class Statistics:
    """Expected statistics of the states, on which the global parameters depend."""

    moments: FloatArray  # (K, p), sums of `features` over the frames of each state
    counts: FloatArray  # (K + 1, K), steps from row to column; starts in the last row
    sticks: Sticks | None = None  # where the update of the sticks starts; None: even ones

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.moments)

    @property
    def frames(self) -> FloatArray:
        """Expected frames in each state, (K,)."""
        return np.asarray(self.counts.sum(axis=0))

    def merged(self, labels: IntArray) -> Self:
        """Sum the states with the same label; drop those with label -1."""
        onto = np.eye(int(labels.max()) + 1)[:, labels] * (labels >= 0)
        rows = np.block([[onto, np.zeros((len(onto), 1))], [np.zeros(len(labels)), 1.0]])
        return type(self)(onto @ self.moments, rows @ self.counts @ onto.T)

    def largest_first(self) -> Self:
        """States sorted by size, the best order for stick-breaking."""
        return self.merged(np.argsort(np.argsort(-self.frames, kind="stable")))


@dataclass(frozen=True, eq=False)
class Estimate:
    """Variational posteriors of all global parameters."""

    natural: FloatArray  # (K, p), of the emissions
    transitions: Transitions


@dataclass(frozen=True, eq=False)
class Frames:
    """Statistics of the frames of all sequences, in the order of their blocks."""

    blocks: Blocks
    features: FloatArray  # (T, p)
    _workspaces: dict[int, Workspace] = field(default_factory=dict)

    @classmethod
    def of(cls, x: FloatArray, lengths: IntArray) -> Self:
        """Sufficient statistics of the frames (T, d) of concatenated sequences."""
        blocks = Blocks.of(lengths)
        x, one = x[blocks.order], np.ones((len(x), 1))
        return cls(
            blocks, np.concatenate([x, one, pack(x[:, :, None] * x[:, None, :]), one], axis=1)
        )

    def workspace(self, n_states: int) -> Workspace:
        """Memory for a number of states; only the latest one is kept."""
        if n_states not in self._workspaces:
            self._workspaces.clear()
            self._workspaces[n_states] = Workspace(self.blocks, n_states)
        return self._workspaces[n_states]


@dataclass(frozen=True, eq=False)
class Model:
    """The priors, and the M-step and E-step."""

    family: NormalWishart
    prior: FloatArray  # (p,), natural parameters of the emissions
    transitions: TransitionPrior

    def maximise(self, statistics: Statistics) -> Estimate:
        """M-step: posteriors given the statistics."""
        sticks = statistics.sticks
        if sticks is None:
            sticks = Sticks.even(statistics.n_states, self.transitions.gamma)
        transitions = self.transitions.posterior(statistics.counts, sticks)
        return Estimate(self.prior + statistics.moments, transitions)

    def expect(self, frames: Frames, estimate: Estimate) -> tuple[Statistics, float]:
        """E-step: expected statistics, and the lower bound."""
        mean = self.family.mean(estimate.natural)
        log_emission = frames.features @ mean.T
        log_emission -= 0.5 * self.family.dim * _LOG_2PI
        expected_log, n = estimate.transitions.expected_log, len(mean)
        start, steps = expected_log[n, :n], expected_log[:n, :n]
        smoothed = frames.workspace(n).smooth(log_emission, start, steps)
        counts = np.concatenate([smoothed.transition, smoothed.start[None]])
        # Messages use floored probabilities; this corrects the bound to the true ones.
        floored = np.minimum(expected_log[:, :n] - LOG_FLOOR, 0.0)
        log_partition = self.family.log_partition(np.vstack([estimate.natural, self.prior]))
        divergence = np.einsum("kp,kp->k", mean, estimate.natural - self.prior)
        divergence -= log_partition[:-1] - log_partition[-1]
        bound = smoothed.log_evidence + float((counts * floored).sum()) - float(divergence.sum())
        bound += self.transitions.bound(estimate.transitions)
        moments = smoothed.posterior.T @ frames.features
        return Statistics(moments, counts, estimate.transitions.sticks), bound


@dataclass(frozen=True, eq=False)
class Fit:
    """State of the iteration: posteriors, their statistics, and the bound per iteration."""

    estimate: Estimate
    statistics: Statistics
    trace: list[float]
    converged: bool

    @property
    def bound(self) -> float:
        """The latest lower bound of the evidence."""
        return self.trace[-1]


class Problem(NamedTuple):
    """A model, the data to fit, and the smallest gain of an iteration, in nats."""

    model: Model
    frames: Frames
    tol: float


def iterate(problem: Problem, statistics: Statistics, max_iter: int, enough: float = np.inf) -> Fit:
    """Alternate until the bound gains less than the smallest gain, or exceeds ``enough``."""
    trace: list[float] = []
    converged = False
    while len(trace) < max_iter and not converged:
        estimate = problem.model.maximise(statistics)
        statistics, bound = problem.model.expect(problem.frames, estimate)
        trace.append(bound)
        if bound > enough:
            break
        converged = len(trace) > 1 and trace[-1] - trace[-2] < problem.tol
    return Fit(estimate, statistics, trace, converged)


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
    natural = model.prior + fit.statistics.moments
    log_partition = model.family.log_partition(natural)
    merged = model.family.log_partition(natural[a] + natural[b] - model.prior)
    gain = merged - log_partition[a] - log_partition[b]
    counts = np.pad(fit.statistics.counts, [(0, 0), (0, 1)])
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


_MAX_CORRELATION = 0.99  # keeps the effective sample size above zero


def by_place(x: FloatArray, n_states: int, rng: np.random.Generator) -> IntArray:
    """Clusters of k-means, (T,)."""
    from sklearn.cluster import KMeans  # noqa: PLC0415 (slow to import)
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

    with warnings.catch_warnings():  # with fewer distinct frames than states, some stay empty
        warnings.simplefilter("ignore", ConvergenceWarning)
        k_means = KMeans(n_states, n_init=1, random_state=int(rng.integers(2**31)))
        return np.asarray(k_means.fit_predict(x), dtype=np.intp)


def by_time(n_frames: int, n_states: int, rng: np.random.Generator) -> IntArray:
    """One contiguous segment of frames per state, cut at random, (T,)."""
    cuts = np.sort(rng.choice(np.arange(1, n_frames), n_states - 1, replace=False))
    return np.searchsorted(cuts, np.arange(n_frames), side="right")


def statistics_of(frames: Frames, labels: IntArray, lengths: IntArray) -> Statistics:
    """Statistics given the state of each frame; the largest state first."""
    labels = relabel(labels)
    n = int(labels.max()) + 1
    first = np.cumsum(lengths) - lengths
    later = np.ones(len(labels), dtype=bool)
    later[first] = False
    counts = np.zeros((n + 1, n))
    np.add.at(counts, (labels[:-1][later[1:]], labels[1:][later[1:]]), 1.0)
    np.add.at(counts[n], labels[first], 1.0)
    member = np.eye(n)[labels[frames.blocks.order]]
    return Statistics(member.T @ frames.features, counts).largest_first()


def effective_share(model: Model, frames: Frames, x: FloatArray, estimate: Estimate) -> float:
    """Effective sample size per frame for estimating a state's moments, at most 1.

    Consecutive frames of a state are correlated. Let ``rho`` be the correlation of consecutive
    whitened deviations from the state's mean, with geometric decay. For second moments, which are
    most of the parameters, N frames equal ``N (1 - rho^2) / (1 + rho^2)`` independent ones.
    """
    state = (frames.features @ model.family.mean(estimate.natural).T).argmax(axis=1)
    p = model.family.params(estimate.natural)
    whitener = np.linalg.inv(np.linalg.cholesky(p["scale_inv"] / p["dof"][:, None, None]))
    deviation = x[frames.blocks.order] - p["mean"][state]
    for k, matrix in enumerate(whitener):
        deviation[state == k] = deviation[state == k] @ matrix.T
    later, earlier = np.flatnonzero(~frames.blocks.is_first), frames.blocks.previous
    stays = state[later] == state[earlier]
    one, next_ = deviation[earlier[stays]], deviation[later[stays]]
    size = float(np.sqrt((one**2).sum() * (next_**2).sum()))
    rho = float(np.clip((one * next_).sum() / size, 0.0, _MAX_CORRELATION)) if size > 0 else 0.0
    return (1.0 - rho**2) / (1.0 + rho**2)
