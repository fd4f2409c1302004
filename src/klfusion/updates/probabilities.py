"""Probability that two local components are the same, under the default's model."""

from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.checks import is_integer
from klfusion._utils.text import brief, few
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.methods import Auto, ByName, PathMethod
from klfusion.methods.matching import comparing
from klfusion.model_size.linked import at_labels
from klfusion.model_size.probabilities import same
from klfusion.model_size.typical_prior import under_one_prior
from klfusion.pooling.pool import matched
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.structure.structure import is_tied
from klfusion.updates.table import kept_silos

_MOST = 6_000  # local components: all pairs take 300 MB


def probability_same(fusion: Fusion, first: Any, second: Any) -> float:
    """See `Fusion.probability_same`."""
    a, b = (_row(fusion, one) for one in (first, second))
    return float(probabilities_same(fusion)[a, b])


def probabilities_same(fusion: Fusion) -> FloatArray:
    """See `Fusion.probabilities_same`."""
    silos = aligned_silos(kept_silos(fusion, "compare components"))
    if (n := sum(len(own) for own in fusion.labels)) > _MOST:
        raise KLFusionError(
            f"expected at most {_MOST:,} local components, for all pairs are compared, got {n:,}"
        )
    method = fusion.settings.method
    if isinstance(method, ByName):
        raise KLFusionError(
            "components were matched by their names: expected a fusion whose components have none"
        )
    topics = isinstance(method, PathMethod) and method.topics
    auto = method if isinstance(method, Auto) else Auto(topics=topics)
    with comparing(silos):
        units = matched(silos, fusion.labels, fusion.settings.weight_array())
        tied = np.array([is_tied(silo.structure) for silo in silos])[units.problem.silo]
        given = under_one_prior(replace(units.problem, prior=units.priors, tied=tied))
        problem = auto.compared_for_linkage(given)
        problem = problem.with_variation(fusion.settings.variation_array(problem.family))
        found = same(at_labels(problem, auto.linkage, units.labels))
    rows = _units(fusion, units.problem.silo, units.labels)
    out = np.where((rows >= 0)[:, None] & (rows >= 0), found[rows][:, rows], np.nan)
    return np.asarray(out)


def _units(fusion: Fusion, silo: IntArray, labels: IntArray) -> IntArray:
    """The unit behind each local component, those of a silo with one label being one; -1: none."""
    number = {pair: k for k, pair in enumerate(zip(silo.tolist(), labels.tolist(), strict=True))}
    own = [(j, g) for j, labels in enumerate(fusion.labels) for g in labels.tolist()]
    return np.array([number.get(pair, -1) for pair in own], dtype=np.intp)


def _row(fusion: Fusion, one: Any) -> int:
    """Row of a local component, given as (silo, component)."""
    if not (isinstance(one, tuple) and len(one) == 2):
        raise KLFusionError(f"expected a pair (silo, component), got {brief(one)}")
    name, component = one
    if name not in fusion.silo_names:
        raise KLFusionError(f"expected a silo of {few(fusion.silo_names)}, got {brief(name)}")
    j = fusion.silo_names.index(name)
    size = len(fusion.labels[j])
    if not (is_integer(component) and 0 <= component < size):
        raise KLFusionError(
            f"silo {name!r}: expected a component, an integer from 0 to {size - 1}, "
            f"got {brief(component)}"
        )
    return sum(len(own) for own in fusion.labels[:j]) + int(component)
