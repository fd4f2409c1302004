"""Forward-backward and Viterbi for hidden Markov chains, over many blocks of frames in parallel.

Blocks of a sequence run in parallel from a guess, then again from the last message of the block
before, until messages agree to a relative 1e-10 per entry. Chains forget, so few passes suffice.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray

_MIN_LENGTH = 32  # frames per block: in shorter ones, messages between blocks dominate the cost
# Smallest log-probability of a step, in nats. It keeps sums of products above zero without
# logarithms: float64 holds exp(-600) and its product with a message.
LOG_FLOOR = -600.0
_RTOL, _ATOL = 1e-10, 1e-290  # relative and absolute tolerance of repeated messages
_CHECK_EVERY = 8  # steps between comparisons of a repeated message with the previous one


@dataclass(frozen=True, eq=False)
class Blocks:
    """Frames ordered by step: the first ones of all blocks, the second ones, and so on.

    Blocks are sorted by length, so a step is a contiguous slice without padding.
    """

    order: IntArray  # (T,), original index of the frame at each position
    offsets: IntArray  # (steps + 1,), position where each step begins
    before: IntArray  # (B,), the block before each block; -1 at the start of a sequence

    @classmethod
    def of(cls, lengths: IntArray, longest: int | None = None) -> Self:
        """Cut sequences of these lengths into blocks of at most ``longest`` frames."""
        if longest is None:  # balances the cost of steps and of messages between blocks
            longest = max(_MIN_LENGTH, math.isqrt(2 * int(lengths.sum())))
        n_blocks = -(-lengths // longest)
        sequence = np.repeat(np.arange(len(lengths)), n_blocks)
        nth = np.arange(len(sequence)) - (np.cumsum(n_blocks) - n_blocks)[sequence]
        # Block k of n covers [k L / n, (k + 1) L / n): lengths differ by at most one.
        start = nth * lengths[sequence] // n_blocks[sequence]
        stop = (nth + 1) * lengths[sequence] // n_blocks[sequence]
        start, size = start + (np.cumsum(lengths) - lengths)[sequence], stop - start
        by_size = np.argsort(-size, kind="stable")
        rank = np.argsort(by_size)
        before = np.where(nth > 0, rank[np.maximum(np.arange(len(nth)) - 1, 0)], -1)[by_size]
        start, size = start[by_size], size[by_size]
        active = (size[None] > np.arange(size[0])[:, None]).sum(axis=1)  # (steps,)
        offsets = np.concatenate([[0], np.cumsum(active)])
        order = np.concatenate([start[:n] + s for s, n in enumerate(active)])
        return cls(order.astype(np.intp), offsets.astype(np.intp), before.astype(np.intp))

    @cached_property
    def steps(self) -> list[slice]:
        """The positions of each step."""
        return [slice(a, b) for a, b in pairwise(self.offsets.tolist())]

    @cached_property
    def last(self) -> IntArray:
        """The position of the last frame of each block, (B,)."""
        active = np.diff(self.offsets)
        size = (active[:, None] > np.arange(len(self.before))[None]).sum(axis=0)
        return np.asarray(self.offsets[size - 1] + np.arange(len(size)))

    @cached_property
    def is_first(self) -> BoolArray:
        """Which positions hold the first frame of a sequence, (T,)."""
        first = np.zeros(len(self.order), dtype=bool)
        first[: len(self.before)] = self.before < 0
        return first

    @cached_property
    def previous(self) -> IntArray:
        """The position of each frame's predecessor, (T - sequences,); first frames are skipped."""
        active = np.diff(self.offsets)
        earlier = [self.last[self.before[self.before >= 0]]]
        earlier += [self.offsets[s - 1] + np.arange(active[s]) for s in range(1, len(active))]
        return np.concatenate(earlier)

    @cached_property
    def back(self) -> IntArray:
        """The position of each frame, by original index, (T,)."""
        return np.argsort(self.order)


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
        forward = (self.predicted, self.emission, self.filtered, self.scale)
        self._forward = [tuple(array[s] for array in forward) for s in blocks.steps]
        self._backward = [(self.emission[s], self.ahead[s]) for s in blocks.steps]
        sizes = np.diff(blocks.offsets).tolist()
        pairs = zip(blocks.offsets[:-2].tolist(), sizes[1:], strict=True)
        self._carried = [self.filtered[start : start + n] for start, n in pairs]
        self._sizes = [*sizes, 0]

    def smooth(
        self, log_emission: FloatArray, log_start: FloatArray, log_step: FloatArray
    ) -> Smoothed:
        """Emissions (T, K) in the order of the blocks; starts (K,) and steps (K, K) of any sum."""
        best = log_emission.max(axis=1, keepdims=True)
        np.exp(log_emission - best, out=self.emission)
        start = np.exp(np.maximum(log_start, LOG_FLOOR))
        transition = np.exp(np.maximum(log_step, LOG_FLOOR))
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
    blocks: Blocks, log_emission: FloatArray, log_start: FloatArray, log_step: FloatArray
) -> tuple[float, IntArray]:
    """Log-probability and states of the most probable path; one block per sequence."""
    steps = blocks.steps
    came_from = np.empty(log_emission.shape, dtype=np.intp)
    best = log_start + log_emission[steps[0]]
    ends = [best]
    into = np.ascontiguousarray(log_step.T)
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
            state = came_from[steps[number + 1]][np.arange(continuing), state]
        ending = ends[number][continuing:]
        total += float(ending.max(axis=1).sum())
        state = np.concatenate([state, ending.argmax(axis=1)])
        path[step] = state
    return total, path
