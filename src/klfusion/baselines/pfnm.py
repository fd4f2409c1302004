"""PFNM: a silo's units are noisy copies of global units (Yurochkin et al., ICML 2019).

Natural parameters are a shift ``w p`` and a precision ``p`` per weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.baselines.baseline import Atoms, BetaProcessMatching
from klfusion.objective.problem import FusionProblem


@final
@dataclass(frozen=True, kw_only=True)
class Pfnm(BetaProcessMatching):
    """Settings of PFNM; ``prior_variance`` is that of the global units' weights."""

    name: ClassVar[str] = "pfnm"
    prior_variance: float = 1.0
    n_passes: int = 3

    def atoms(self, problem: FusionProblem) -> _Units:
        """Global units, none in use."""
        return _Units(problem, self.gamma, 1.0 / self.prior_variance)


class _Units(Atoms):
    def __init__(self, problem: FusionProblem, gamma: float, prior: float) -> None:
        super().__init__(problem.natural, problem, gamma)
        self.prior = prior

    def gain_of_match(self, rows: slice, used: IntArray) -> FloatArray:
        own = zip(*np.split(self.values[rows], 2, axis=1), strict=True)
        shift, precision = np.split(self.total[used], 2, axis=1)
        precision = precision + self.prior
        gain = np.stack([((s + shift) ** 2 / (p + precision)).sum(axis=1) for s, p in own])
        return np.asarray(gain - (shift**2 / precision).sum(axis=1) + self.log_popularity(used))

    def gain_of_new(self, rows: slice) -> FloatArray:
        shift, precision = np.split(self.values[rows], 2, axis=1)
        return np.asarray((shift**2 / (self.prior + precision)).sum(axis=1))

    def location(self) -> FloatArray:
        total = np.zeros_like(self.total)  # a fresh sum, without rounding errors of updates
        np.add.at(total, self.labels, self.values)
        shift, precision = np.split(total, 2, axis=1)
        return np.asarray(shift / (precision + self.prior))
