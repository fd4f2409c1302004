"""Which method a model gets: the one place where the kind of model decides."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet
from klfusion.methods.auto import Auto
from klfusion.methods.binary import Binary
from klfusion.methods.by_name import ByName
from klfusion.methods.homogeneous import Homogeneous
from klfusion.methods.max_loss import MaxLoss
from klfusion.methods.method import Method
from klfusion.methods.networks import Networks
from klfusion.methods.path_method import PathMethod
from klfusion.methods.penalised import Penalised
from klfusion.methods.relaxed import Relaxed
from klfusion.posteriors.compatibility import Silo
from klfusion.posteriors.names import component_names
from klfusion.posteriors.structure import network, topics

METHODS: dict[str, type[Method]] = {m.name: m for m in (Auto, Binary, Relaxed, Homogeneous)}


def method_for(method: str | Method, silos: Sequence[Silo]) -> Method:
    """The configuration for these silos: `ByName` for names, `Networks` for networks, and so on."""
    if not isinstance(method, str | Method) or (isinstance(method, str) and method not in METHODS):
        raise KLFusionError(
            f"expected method to be one of {sorted(METHODS)} or a Method such as "
            f"kf.Auto(n_init=3), got {method!r}"
        )
    chosen = METHODS[method]() if isinstance(method, str) else method
    if all(component_names(silo) is not None for silo in silos):
        return _by_name(chosen)
    first = silos[0].structure
    if first is not None and first.kind == network.KIND:
        if isinstance(chosen, MaxLoss):
            raise KLFusionError(
                "networks are fused without max_loss, for their units stay apart: "
                "n_components or a penalty sets the size"
            )
        if isinstance(chosen, Auto | Penalised):
            chosen = Networks(penalty=chosen.given_penalty or "auto", **_given(chosen))
        if isinstance(chosen, Networks) and network.n_layers(first) == 2:
            return replace(chosen, outgoing=len(network.layer_arrays(first, 1)[0]))
        return chosen
    if isinstance(chosen, PathMethod):
        of_topics = first is None or first.kind == topics.KIND
        return replace(chosen, topics=of_topics and isinstance(silos[0].family, Dirichlet))
    return chosen


def _by_name(chosen: Method) -> Method:
    """Names leave nothing to choose: `ByName`, unless another method was asked for."""
    if chosen == Auto(divergence=chosen.divergence):
        return ByName(divergence=chosen.divergence)
    if not isinstance(chosen, ByName):
        raise KLFusionError(
            f"components have names and are matched by them: expected method 'auto' or "
            f"kf.ByName(), got {chosen!r}"
        )
    return chosen


def _given(method: PathMethod) -> dict[str, Any]:
    """The shared settings that differ from their defaults."""
    shared = {field.name: field.default for field in fields(PathMethod) if field.name != "topics"}
    return {name: getattr(method, name) for name in shared if getattr(method, name) != shared[name]}
