"""Variational inference for the sticky HDP-HMM."""

from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.families import NormalWishart
from klfusion.families.numerics.symmetric import outer, pack
from klfusion.learners._messages import LOG_FLOOR, Blocks, Workspace
from klfusion.learners._transitions import Sticks, TransitionPrior, Transitions

_LOG_2PI = float(np.log(2.0 * np.pi))


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
        return cls(blocks, np.concatenate([x, one, pack(outer(x)), one], axis=1))

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
