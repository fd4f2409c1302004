"""`ByName`: components that have names are the same exactly if their names are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from klfusion.errors import IncompatibleSilosError
from klfusion.methods.method import Method, no_size
from klfusion.model_size.preparation import Prepared
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, Status, objective
from klfusion.posteriors.compatibility import component_names
from klfusion.posteriors.posterior import Posterior


@final
@dataclass(frozen=True, kw_only=True)
class ByName(Method):
    """Components of one name are one; nothing is searched.

    `klfusion.fuse` chooses it for models whose components have names, such as the classes of a
    naive Bayes model, and for regressions.

    Examples
    --------
    >>> import klfusion as kf
    >>> from klfusion.posteriors.structure import Structure
    >>> rates, silos = kf.families.Gamma(), []
    >>> for name, wards, shape in [("a", ["icu", "er"], [30, 90]), ("b", ["er"], [32])]:
    ...     named = Structure("named", info={"components": wards})
    ...     natural = rates.natural(shape, [10.0] * len(wards))
    ...     silos.append(kf.Posterior(rates, natural, name=name, structure=named))
    >>> kf.fuse(silos).labels  # rates of 30 and 32 are alike, but their wards are not
    (array([1, 0]), array([0]))
    """

    name: ClassVar[str] = "by-name"

    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Refuse: a problem holds no names."""
        raise IncompatibleSilosError("method 'by-name': expected silos with named components")

    def match_names(
        self, posteriors: Sequence[Posterior], prepared: Prepared, search: Search
    ) -> Matching:
        """Match the components of silos by their names."""
        no_size(self, search.n_components, "for names set the size")
        names = [name for p in posteriors for name in component_names(p) or _refuse(p)]
        number = {name: g for g, name in enumerate(dict.fromkeys(names))}
        labels = np.array([number[names[row]] for row in prepared.first], dtype=np.intp)
        value = objective(prepared.problem, labels, len(number), 0.0)
        return Matching(labels, value, value, [value], 0.0, Status.NAMED)


def _refuse(posterior: Posterior) -> list[str]:
    raise IncompatibleSilosError(
        f"silo {posterior.name!r}: expected named components as in other silos, got none"
    )
