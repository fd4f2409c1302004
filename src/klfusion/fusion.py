"""`Fusion`: the global posterior, and how it came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from klfusion._typing import FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.posterior import Posterior


class Status(Enum):
    """How a fusion ended; the value is the message people read."""

    CONVERGED = "converged: no move lowers the objective"
    MAX_ITER = "stopped at max_iter before converging: raise max_iter or tol"
    SINGLE_SILO = "only one silo: it was returned as it is"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class PenaltyPath:
    """Every size from all components apart (step 0) to no merge left.

    Parameters
    ----------
    merges : int array of shape (m, 2)
        Step ``t`` merges the clusters of rows ``merges[t, 0]`` and ``merges[t, 1]`` (each named
        by one of its components).
    ratios : array of shape (m,)
        The penalty at which each merge pays by itself.
    divergences : array of shape (m + 1,)
        Total Jensen gap before each step, and at the end.
    n_components : int array of shape (m + 1,)
        Number of clusters before each step, and at the end.
    losses : array of shape (m + 1,), optional
        What prediction loses by so many merges, in nats an observation, as estimated from the
        posteriors alone; None where it is not known how many observations are behind them.
    """

    merges: IntArray
    ratios: FloatArray
    divergences: FloatArray
    n_components: IntArray
    losses: FloatArray | None = None

    @property
    def penalties(self) -> FloatArray:
        """The penalty that reaches each step: the running maximum of the ratios, (m,)."""
        return np.maximum.accumulate(self.ratios)

    def steps_at(self, penalty: float) -> int:
        """How many merges a penalty pays for."""
        return int(np.searchsorted(self.penalties, penalty, side="right"))

    def steps_within(self, max_loss: float) -> int:
        """How many merges lose at most so much, in nats an observation."""
        if self.losses is None:
            raise KLFusionError(
                "expected posteriors that tell how many observations they are worth, which "
                "losses are counted in; got a family that does not: give n_components or penalty"
            )
        return int(np.searchsorted(self.losses, max_loss, side="right")) - 1

    def labels(self, steps: int) -> IntArray:
        """Cluster of each component after so many merges, (n,)."""
        labels = np.arange(self.n_components[0], dtype=np.intp)
        for a, b in self.merges[:steps]:
            labels[labels == labels[b]] = labels[a]
        return np.unique(labels, return_inverse=True)[1].astype(np.intp)


@dataclass(frozen=True, eq=False)
class Fusion:
    """The result of `klfusion.fuse`.

    Parameters
    ----------
    posterior : Posterior
        The global model.
    silo_names : tuple of str
    labels : tuple of int arrays
        For each silo, the global component of each local one; -1 for one that was left out
        because next to no data stands behind it.
    divergences : tuple of arrays
        For each silo, ``KL(global || local)`` of each match; NaN for one left out.
    penalty : float
        Weight of ``sum_g sqrt(n_g)`` in the objective, in nats; 0 where the size was given.
    objective : float
        Total divergence plus penalty, of the components as they were matched.
    lower_bound : float
        No plan whatsoever has a lower objective at the final components' divergences.
    trace : array
        The objective after each sweep; it never rises.
    status : Status
    method : str
        Which algorithm, with its settings.
    path : PenaltyPath, optional
        Size against penalty, where the method computed it.
    provenance : mapping
        Plain facts for the record.
    """

    posterior: Posterior
    silo_names: tuple[str, ...]
    labels: tuple[IntArray, ...]
    divergences: tuple[FloatArray, ...]
    penalty: float
    objective: float
    lower_bound: float
    trace: FloatArray
    status: Status
    method: str
    path: PenaltyPath | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_components(self) -> int:
        """Number of global components."""
        return self.posterior.n_components

    @property
    def n_silos(self) -> int:
        """Number of silos that were fused."""
        return len(self.silo_names)

    @property
    def n_left_out(self) -> int:
        """Number of local components matched to none: next to no data, or two blended into one."""
        return int(sum((labels < 0).sum() for labels in self.labels))

    @property
    def gap(self) -> float:
        """Relative gap between the objective and its lower bound; 0 means proven optimal."""
        if self.objective <= self.lower_bound:
            return 0.0
        return (self.objective - self.lower_bound) / abs(self.objective)

    @property
    def contributions(self) -> IntArray:
        """(silos, global components): how many local components each silo gave to each."""
        table = np.zeros((self.n_silos, self.n_components), dtype=np.intp)
        for row, labels in zip(table, self.labels, strict=True):
            np.add.at(row, labels[labels >= 0], 1)
        return table

    def sources(self, component: int) -> list[tuple[str, int]]:
        """The (silo, local component) pairs a global component was made of."""
        return [
            (name, int(local))
            for name, labels in zip(self.silo_names, self.labels, strict=True)
            for local in np.flatnonzero(labels == component)
        ]

    def model(self) -> Any:
        """A fitted model of the library the silos used, ready to predict."""
        from klfusion.adapters import rebuild  # noqa: PLC0415 (adapters build on this module)

        return rebuild(self.posterior)

    def report(self, path: str) -> str:
        """Write a self-contained HTML report and return its path."""
        from klfusion.report import write_report  # noqa: PLC0415 (reports build on this module)

        return str(write_report(self, path))

    def __repr__(self) -> str:
        left_out = self.n_left_out
        return (
            f"Fusion({_counted(self.n_silos, 'silo')} -> "
            f"{_counted(self.n_components, 'component')}, "
            f"{f'{left_out} local left out, ' if left_out else ''}"
            f"objective {self.objective:.6g}, gap {self.gap:.2%}, {self.status.name.lower()})"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
