"""Forward-backward and Viterbi for hidden Markov chains, over many blocks of frames in parallel.

Blocks of one sequence depend on each other through the messages at their ends. All blocks first
run in parallel from a guess. Each then runs again from the last message of the block before it,
until messages agree to a relative tolerance of 1e-10 per entry. Chains forget quickly, so few
repetitions are needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.learners._blocks import Blocks

# Smallest log-probability of a step, in nats. It keeps sums of products above zero without
# logarithms: float64 holds exp(-600) and its product with a message.
LOG_FLOOR = -600.0
_RTOL, _ATOL = 1e-10, 1e-290  # relative and absolute tolerance of repeated messages
_CHECK_EVERY = 8  # steps between comparisons of a repeated message with the previous one


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Result of forward-backward."""

    log_evidence: float  # log of the sum over all paths, in nats
    posterior: FloatArray  # (T, K), probability of each state, in the order of the blocks
    start: FloatArray  # (K,), expected number of sequences that begin in each state
    transition: FloatArray  # (K, K), expected number of steps from row to column


class Workspace:
    """Reusable memory for the passes over one set of sequences with ``n_states`` states."""

    def __init__(self, blocks: Blocks, n_states: int) -> None:
        self.blocks, shape = blocks, (len(blocks.order), n_states)
        self.emission = np.empty(shape)
        self.predicted, self.filtered, self.ahead = (np.empty(shape) for _ in range(3))
        self.scale = np.empty((shape[0], 1))
        # Slices are made once, because making one costs as much as its arithmetic.
        self._forward = [
            (self.predicted[s], self.emission[s], self.filtered[s], self.scale[s])
            for s in blocks.steps
        ]
        self._backward = [(self.emission[s], self.ahead[s]) for s in blocks.steps]
        sizes = np.diff(blocks.offsets).tolist()
        self._carried = [
            self.filtered[s.start : s.start + n]
            for s, n in zip(blocks.steps[:-1], sizes[1:], strict=True)
        ]
        self._sizes = [*sizes, 0]

    def smooth(
        self, log_emission: FloatArray, log_start: FloatArray, log_transition: FloatArray
    ) -> Smoothed:
        """Forward-backward.

        ``log_emission`` (T, K) is in the order of the blocks. ``log_start`` (K,) and
        ``log_transition`` (K, K) need not be normalised.
        """
        best = log_emission.max(axis=1, keepdims=True)
        np.exp(log_emission - best, out=self.emission)
        start = np.exp(np.maximum(log_start, LOG_FLOOR))
        transition = np.exp(np.maximum(log_transition, LOG_FLOOR))
        self._filter(start, transition)
        self._look_back(transition)
        posterior = self.predicted * self.ahead
        total = posterior.sum(axis=1, keepdims=True)
        posterior /= total
        first = self.blocks.is_first
        to = (self.ahead / total)[~first]
        steps = transition * (self.filtered[self.blocks.previous].T @ to)
        log_evidence = float(np.log(self.scale).sum() + best.sum())
        return Smoothed(log_evidence, posterior, posterior[first].sum(axis=0), steps)

    def _filter(self, start: FloatArray, transition: FloatArray) -> None:
        """Fill ``predicted``, ``filtered`` and ``scale``."""
        before, last = self.blocks.before, self.blocks.last
        inner = np.flatnonzero(before >= 0)
        entering = np.empty((len(before), len(start)))
        entering[before < 0] = start
        entering[inner] = transition.mean(axis=0)  # a guess
        self._filter_from(entering, transition, repeat=False)
        while len(inner):
            entering[inner] = self.filtered[last[before[inner]]] @ transition
            if _agree(entering, self._forward[0][0]):
                break
            self._filter_from(entering, transition, repeat=True)

    def _filter_from(self, entering: FloatArray, transition: FloatArray, *, repeat: bool) -> None:
        """One pass; a repeated one stops where messages agree with the previous pass."""
        for step, (predicted, emission, filtered, scale) in enumerate(self._forward):
            check = repeat and step % _CHECK_EVERY == 0
            old = filtered.copy() if check else filtered
            if step == 0:
                predicted[:] = entering
            else:
                np.matmul(self._carried[step - 1], transition, out=predicted)
            np.multiply(predicted, emission, out=filtered)
            np.add.reduce(filtered, axis=1, keepdims=True, out=scale)
            np.divide(filtered, scale, out=filtered)
            if check and _agree(filtered, old):
                return

    def _look_back(self, transition: FloatArray) -> None:
        """Fill ``ahead``: emission times backward message, up to a factor per frame."""
        before = self.blocks.before
        inner = np.flatnonzero(before >= 0)
        leaving = np.ones((len(before), len(transition)))
        backwards = np.ascontiguousarray(transition.T)
        leaving[before[inner]] = backwards.mean(axis=0)  # a guess
        self._look_back_from(leaving, backwards, repeat=False)
        while len(inner):
            new = leaving.copy()
            new[before[inner]] = self._backward[0][1][inner] @ backwards
            new[before[inner]] /= new[before[inner]].sum(axis=1, keepdims=True)
            if _agree(new, leaving):
                break
            leaving = new
            self._look_back_from(leaving, backwards, repeat=True)

    def _look_back_from(self, leaving: FloatArray, backwards: FloatArray, *, repeat: bool) -> None:
        shortest = self._sizes.count(self._sizes[0])  # before this step every block continues
        for step in range(len(self._backward) - 1, -1, -1):
            emission, ahead = self._backward[step]
            check = repeat and step % _CHECK_EVERY == 0 and step < shortest - 1
            old = ahead.copy() if check else ahead
            continuing, active = self._sizes[step + 1], self._sizes[step]
            if continuing < active:
                ahead[continuing:] = leaving[continuing:active]
            if continuing:
                np.matmul(self._backward[step + 1][1], backwards, out=ahead[:continuing])
            np.multiply(ahead, emission, out=ahead)
            np.divide(ahead, np.add.reduce(ahead, axis=1, keepdims=True), out=ahead)
            if check and _agree(ahead, old):
                return


def _agree(new: FloatArray, old: FloatArray) -> bool:
    """Compare per entry, because an unlikely state may be the only possible one later."""
    return bool((np.abs(new - old) <= _RTOL * old + _ATOL).all())


def viterbi(
    blocks: Blocks, log_emission: FloatArray, log_start: FloatArray, log_transition: FloatArray
) -> tuple[float, IntArray]:
    """The log-probability of the most probable path, and the path, in the order of the blocks.

    There is one block per sequence; arrays are as in `Workspace.smooth`.
    """
    steps = blocks.steps
    came_from = np.empty(log_emission.shape, dtype=np.intp)
    best = log_start + log_emission[steps[0]]
    ends = [best]
    into = np.ascontiguousarray(log_transition.T)
    for step in steps[1:]:
        score = best[: step.stop - step.start, None, :] + into
        np.argmax(score, axis=2, out=came_from[step])
        best = np.max(score, axis=2) + log_emission[step]
        ends.append(best)
    path = np.empty(len(log_emission), dtype=np.intp)
    total, state = 0.0, np.empty(0, dtype=np.intp)
    for number in range(len(steps) - 1, -1, -1):
        step, continuing = steps[number], len(state)
        if continuing:
            after = steps[number + 1]
            state = came_from[after][np.arange(continuing), state]
        ending = ends[number][continuing:]
        total += float(ending.max(axis=1).sum())
        state = np.concatenate([state, ending.argmax(axis=1)])
        path[step] = state
    return total, path
