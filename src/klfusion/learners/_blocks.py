"""Blocks of frames that are processed in parallel.

The overhead of Python per time step is large, so sequences are cut into blocks that advance in
parallel. Frames are ordered by step: the first frames of all blocks, then the second ones, and so
on. Blocks are sorted by length. So each step is a contiguous slice without padding, and its
blocks are the first ones of the step before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from klfusion._utils.arrays import BoolArray, IntArray

_MIN_LENGTH = 32  # frames per block: in shorter ones, messages between blocks dominate the cost


@dataclass(frozen=True, eq=False)
class Blocks:
    """Frames in the order of steps."""

    order: IntArray  # (T,), original index of the frame at each position
    offsets: IntArray  # (steps + 1,), position where each step begins
    before: IntArray  # (B,), the block before each block; -1 at the start of a sequence

    @classmethod
    def of(cls, lengths: IntArray, longest: int | None = None) -> Blocks:
        """Cut sequences of these lengths into blocks of at most ``longest`` frames.

        The default balances the cost of steps against that of messages between blocks.
        """
        if longest is None:
            longest = max(_MIN_LENGTH, math.isqrt(2 * int(lengths.sum())))
        n_blocks = -(-lengths // longest)
        sequence = np.repeat(np.arange(len(lengths)), n_blocks)
        first = np.concatenate([[0], np.cumsum(n_blocks)[:-1]])
        nth = np.arange(len(sequence)) - first[sequence]
        # Block k of n covers [k L / n, (k + 1) L / n): lengths differ by at most one.
        start = nth * lengths[sequence] // n_blocks[sequence]
        stop = (nth + 1) * lengths[sequence] // n_blocks[sequence]
        start_of_sequence = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        start, size = start + start_of_sequence[sequence], stop - start
        by_size = np.argsort(-size, kind="stable")
        rank = np.empty_like(by_size)
        rank[by_size] = np.arange(len(by_size))
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
        position = np.empty_like(self.order)
        position[self.order] = np.arange(len(position))
        return position
