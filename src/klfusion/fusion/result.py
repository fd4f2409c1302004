"""`Fusion`: the global posterior, which local components it was made of, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.checks import is_integer
from klfusion._utils.package import provided
from klfusion.errors import KLFusionError
from klfusion.fusion.by_silo import BySilo
from klfusion.fusion.explanation import decisions
from klfusion.fusion.of_draws import OfDraws
from klfusion.fusion.of_matching import OfMatching
from klfusion.fusion.of_regressions import OfRegressions
from klfusion.fusion.predicting import Predicting
from klfusion.fusion.settings import FuseSettings
from klfusion.objective.solution import MergePath, Status
from klfusion.posteriors.posterior import Posterior

_ROUNDING = 1e-9  # nats; copies of a model have an objective that is nothing else


@dataclass(frozen=True, eq=False)
class Fusion(OfMatching, OfRegressions, OfDraws, Predicting):
    """The result of `klfusion.fuse`.

    Parameters
    ----------
    posterior : Posterior
        The global model.
    silo_names : tuple of str
    labels : sequence of int arrays, one per silo
        Global component of each local one, by position or name of the silo; -1 for none.
    divergences : sequence of arrays, one per silo
        ``KL(global || local)``, or the divergence chosen, of each match; NaN where there is none.
        With pooling ``"auto"``, from the average of the matched components.
    penalty : float
        Weight of ``sum_g sqrt(n_g)`` in the objective, in nats; 0 where the size was given.
    objective : float
        Total divergence plus penalty, of the components as they were compared.
    lower_bound : float
        No assignment to the final components has a lower objective.
    trace : array
        The objective after each sweep; it never rises.
    status : Status
    settings : FuseSettings
        Method, weights, pooling and the rest of what was asked for.
    path : MergePath, optional
        Every size and its penalty, where the method computed them.
    provenance : mapping
        Library versions, and the ``history`` of silos that were added or removed.
    silos : tuple of Posterior, optional
        What each silo sent. `add`, `remove` and `at` need it; None with ``keep_silos=False``.
    unmatched : mapping of silo to mapping of component to str
        Why a local component is matched to no global one.
    probability : sequence of arrays, one per silo, optional
        Probability that each local component is of its global one, given the other matches; NaN
        where there is none. None unless the default chose the matching: after `add`, `remove` and
        `at` the matching was not judged anew; `add` and `remove` do so with ``rematch=True``.
    """

    posterior: Posterior
    silo_names: tuple[str, ...]
    labels: BySilo[IntArray]
    divergences: BySilo[FloatArray]
    penalty: float
    objective: float
    lower_bound: float
    trace: FloatArray
    status: Status
    settings: FuseSettings = field(default_factory=FuseSettings)
    path: MergePath | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    silos: tuple[Posterior, ...] | None = None
    unmatched: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    probability: BySilo[FloatArray] | None = None

    def __post_init__(self) -> None:
        for name in ("labels", "divergences"):
            object.__setattr__(self, name, BySilo(getattr(self, name), self.silo_names))

    @property
    def n_components(self) -> int:
        """Number of global components."""
        return self.posterior.n_components

    @property
    def n_silos(self) -> int:
        """Number of silos that were fused."""
        return len(self.silo_names)

    @property
    def method(self) -> str:
        """The method with its settings, as text."""
        return repr(self.settings.method)

    @property
    def n_unmatched(self) -> int:
        """Number of local components that are matched to no global one."""
        return int(sum((labels < 0).sum() for labels in self.labels))

    @property
    def n_merged_within_silos(self) -> int:
        """Number of local components that share a global one with another of their silo."""
        matched = sum(int((labels >= 0).sum()) for labels in self.labels)
        return matched - sum(len(np.unique(labels[labels >= 0])) for labels in self.labels)

    @property
    def expected_false_matches(self) -> float:
        """Expected number of matches that are wrong; NaN where probabilities are unknown."""
        if self.probability is None:
            return float("nan")
        return float(sum(1.0 - one.probability for one in decisions(self) if one.matched))

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
        labels = zip(self.silo_names, self.labels, strict=True)
        return [(name, int(k)) for name, own in labels for k in np.flatnonzero(own == component)]

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
        >>> shapes = {"a": [30, 900], "b": [910, 32], "c": [31, 5000]}
        >>> a, b, c = (kf.Posterior(rates, rates.natural(s, [10, 10])) for s in shapes.values())
        >>> fusion = kf.fuse({"a": a, "b": b}).add(c, name="c")
        >>> fusion.silo_names, fusion.labels[2]
        (('a', 'b', 'c'), array([0, 2]))
        """
        result: Fusion = provided("add")(self, model, name=name, weight=weight, rematch=rematch)
        return result

    def remove(self, name: str, *, rematch: bool = False) -> Fusion:
        """The fusion as if a silo had never been there.

        The other silos' matching stays, and all else is computed from them alone. Global components
        that only this silo had are gone.

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
        >>> shapes = {"a": [30, 900], "b": [910, 32], "c": [31, 5000]}
        >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10])) for n, s in shapes.items()}
        >>> fusion = kf.fuse(silos).remove("c")
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
        >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10])) for n, s in shapes.items()}
        >>> fusion = kf.fuse(silos)
        >>> fusion.n_components, fusion.at(n_components=2).posterior.params()["shape"].ravel()
        (3, array([ 31.        , 686.66666667]))
        """
        result: Fusion = provided("at")(self, n_components=n_components, penalty=penalty)
        return result

    def with_min_support(self, min_support: int) -> Fusion:
        """The fusion without global components that fewer silos have.

        Their local components become unmatched, label -1; everything else is computed anew.

        Parameters
        ----------
        min_support : int
            Fewest silos of a global component.

        Examples
        --------
        >>> import klfusion as kf
        >>> rates = kf.families.Gamma()
        >>> shapes = {"a": [30, 900], "b": [910, 32], "c": [31, 250]}
        >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10])) for n, s in shapes.items()}
        >>> fusion = kf.fuse(silos)
        >>> fusion.n_components, fusion.with_min_support(2).labels["c"]
        (3, array([ 0, -1]))
        """
        result: Fusion = provided("with_min_support")(self, min_support)
        return result

    def to_frame(self) -> Any:
        """A pandas data frame with one row per local component.

        Columns: ``silo``, ``component``, ``global_component`` (-1 for none), ``divergence`` from
        it, ``probability`` of the match, ``observations`` where the silo sent them, and the reason
        if it is ``unmatched``. Needs ``pip install 'klfusion[pandas]'``.

        Examples
        --------
        >>> import klfusion as kf
        >>> rates = kf.families.Gamma()
        >>> shapes = {"a": [30, 900], "b": [910, 32]}
        >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10])) for n, s in shapes.items()}
        >>> print(kf.fuse(silos).to_frame()[["silo", "component", "global_component"]])
          silo  component  global_component
        0    a          0                 0
        1    a          1                 1
        2    b          0                 1
        3    b          1                 0
        """
        return provided("to_frame")(self)

    def without_silos(self) -> Fusion:
        """The fusion without what its silos sent, to be shared: `docs/privacy.md` has what is left.

        Silos cannot be added or removed then.
        """
        return replace(self, silos=None)

    def report(
        self, path: str, silos: Sequence[Posterior] | None = None, **settings: bool | int
    ) -> str:
        """Write an HTML report and return its path; settings are those of `write_report`."""
        return str(provided("report")(self, path, silos, **settings))

    def plot(self, silos: Sequence[Posterior] | None = None) -> Any:
        """A matplotlib figure of sizes, contributions and the map; see `klfusion.report.plot`."""
        return provided("plot")(self, silos)

    def _repr_html_(self) -> str:
        return str(provided("fragment")(self))

    def __repr__(self) -> str:
        unmatched, merged = self.n_unmatched, self.n_merged_within_silos
        gap = f"{self.gap:.2%}" + " to a rough bound" * (self.status is Status.KEPT)
        n, size = self.n_silos, self.n_components
        return (
            f"Fusion({n} silo{'s' * (n != 1)} -> {size} component{'s' * (size != 1)}, "
            f"{f'{unmatched} local unmatched, ' if unmatched else ''}"
            f"{f'{merged} merged within silos, ' if merged else ''}"
            f"objective {self.objective:.6g}, gap {gap}, {self.status.name.lower()})"
        )
