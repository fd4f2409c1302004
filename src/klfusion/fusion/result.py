"""`Fusion`: the global posterior, and how it came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.checks import is_integer
from klfusion._utils.providers import provided
from klfusion.errors import KLFusionError
from klfusion.objective.merge_path import MergePath
from klfusion.objective.solution import Status
from klfusion.posteriors.posterior import Posterior

_ROUNDING = 1e-9  # nats; copies of a model have an objective that is nothing else


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
        For each silo, ``KL(global || local)``, or the divergence chosen, of each match; NaN for one
        left out.
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
    path : MergePath, optional
        Size against penalty, where the method computed it.
    provenance : mapping
        Plain facts for the record: versions, weights, pooling, and the ``history`` of silos that
        were added or removed.
    silos : tuple of Posterior, optional
        What each silo sent. `add`, `remove` and `at` need it; None with ``keep_silos=False``.
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
    path: MergePath | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    silos: tuple[Posterior, ...] | None = None

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
    def n_put_together(self) -> int:
        """Number of local components that went to the same global one as another of their silo."""
        matched = sum(int((labels >= 0).sum()) for labels in self.labels)
        return matched - sum(len(np.unique(labels[labels >= 0])) for labels in self.labels)

    @property
    def gap(self) -> float:
        """Relative gap between the objective and its lower bound; 0 means proven optimal."""
        if self.objective - self.lower_bound <= _ROUNDING:
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
        if not (is_integer(component) and 0 <= component < self.n_components):
            raise KLFusionError(
                f"expected a global component, an integer from 0 to {self.n_components - 1}, "
                f"got {component!r}"
            )
        return [
            (name, int(local))
            for name, labels in zip(self.silo_names, self.labels, strict=True)
            for local in np.flatnonzero(labels == component)
        ]

    def add(
        self, model: Any, *, name: str | None = None, weight: float = 1.0, rematch: bool = False
    ) -> Fusion:
        """A fusion with one more silo, at the cost of one assignment.

        The newcomer's components join global ones, or open new ones where that is cheaper; the
        other silos' matching stays.

        Parameters
        ----------
        model : Posterior, fitted model or path
            As `klfusion.fuse` takes it.
        name : str, optional
            Of the silo; default: the posterior's own, or the next number.
        weight : float
            How much the silo counts.
        rematch : bool
            Match all silos anew, as `klfusion.fuse` would.

        Examples
        --------
        >>> import klfusion as kf
        >>> rates = kf.families.Gamma()
        >>> a, b, c = (
        ...     kf.Posterior(rates, rates.natural(shapes, [10, 10]), name=name)
        ...     for name, shapes in {"a": [30, 900], "b": [910, 32], "c": [31, 5000]}.items()
        ... )
        >>> fusion = kf.fuse([a, b]).add(c)
        >>> fusion.silo_names, fusion.labels[2]
        (('a', 'b', 'c'), array([0, 2]))
        """
        result: Fusion = provided("add")(self, model, name=name, weight=weight, rematch=rematch)
        return result

    def remove(self, name: str, *, rematch: bool = False) -> Fusion:
        """The fusion as if a silo had never been there.

        The other silos' matching stays, and all else is computed from them alone: exactly what a
        fusion that never saw the silo gives with this matching. Global components that only this
        silo had are gone.

        Parameters
        ----------
        name : str
            Of the silo.
        rematch : bool
            Match the other silos anew, as `klfusion.fuse` would.

        Examples
        --------
        >>> import klfusion as kf
        >>> rates = kf.families.Gamma()
        >>> a, b, c = (
        ...     kf.Posterior(rates, rates.natural(shapes, [10, 10]), name=name)
        ...     for name, shapes in {"a": [30, 900], "b": [910, 32], "c": [31, 5000]}.items()
        ... )
        >>> fusion = kf.fuse([a, b, c]).remove("c")
        >>> fusion.posterior.params()["shape"].ravel()
        array([ 31., 905.])
        >>> fusion.provenance["history"][-1]["action"]
        'remove'
        """
        result: Fusion = provided("remove")(self, name, rematch=rematch)
        return result

    def at(self, *, n_components: int | None = None, penalty: float | None = None) -> Fusion:
        """Another size, or penalty, of the same silos, read off the path: nothing is searched.

        Parameters
        ----------
        n_components : int, optional
        penalty : float, optional
            In nats; one of the two.

        Examples
        --------
        >>> import klfusion as kf
        >>> rates = kf.families.Gamma()
        >>> shapes = {"a": [30, 900], "b": [910, 32], "c": [31, 250]}
        >>> fusion = kf.fuse(
        ...     [kf.Posterior(rates, rates.natural(s, [10, 10]), name=n) for n, s in shapes.items()]
        ... )
        >>> fusion.n_components, fusion.at(n_components=2).posterior.params()["shape"].ravel()
        (3, array([ 31.        , 686.66666667]))
        """
        result: Fusion = provided("at")(self, n_components=n_components, penalty=penalty)
        return result

    def model(self) -> Any:
        """A fitted model of the library the silos used, ready to predict."""
        return provided("model")(self.posterior)

    def report(self, path: str, silos: Sequence[Posterior] | None = None) -> str:
        """Write a self-contained HTML report and return its path.

        Given the posteriors that were fused, its map of local components is computed from them.
        """
        return str(provided("report")(self, path, silos))

    def plot(self, silos: Sequence[Posterior] | None = None) -> Any:
        """Draw size against penalty, who contributed to what, and the map, with matplotlib.

        Returns the figure. Needs ``pip install 'klfusion[plot]'``.
        """
        return provided("plot")(self, silos)

    def _repr_html_(self) -> str:
        return str(provided("fragment")(self))

    def __repr__(self) -> str:
        left_out, together = self.n_left_out, self.n_put_together
        gap = f"{self.gap:.2%}" + " to a rough bound" * (self.status is Status.KEPT)
        return (
            f"Fusion({_counted(self.n_silos, 'silo')} -> "
            f"{_counted(self.n_components, 'component')}, "
            f"{f'{left_out} local left out, ' if left_out else ''}"
            f"{f'{together} put together, ' if together else ''}"
            f"objective {self.objective:.6g}, gap {gap}, {self.status.name.lower()})"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
