"""Which variables belong to components: their own, their weights, transitions between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.text import few
from klfusion.draws.supports import Support
from klfusion.draws.variables import Draws, Variable
from klfusion.errors import KLFusionError


@dataclass(frozen=True, eq=False)
class Layout:
    """Draws of ``K`` components by what their variables are.

    Parameters
    ----------
    draws : Draws
    dims : tuple of str
        The dim of components and its other names.
    own : list of Variable
        Variables of one component, without its dim.
    shared : list of Variable
        Variables without a dim of components.
    weights, transition : Variable, optional
        A simplex over components; one from each component.
    """

    draws: Draws
    dims: tuple[str, ...]
    labels: tuple[str, ...]
    own: list[Variable]
    shared: list[Variable]
    weights: Variable | None
    transition: Variable | None

    @classmethod
    def of(cls, draws: Draws, components: str | Sequence[str], where: str) -> Layout:
        """Sort variables by their dims."""
        dims = (components,) if isinstance(components, str) else tuple(components)
        have = {v.name: [dim in dims for dim in v.dims] for v in draws.variables}
        if not any(any(own) for own in have.values()):
            known = few(sorted({dim for v in draws.variables for dim in v.dims}))
            raise KLFusionError(f"{where}: components: expected a dim of {known}, got {dims[0]!r}")
        weights, transition, own, shared = None, None, [], []
        labels: tuple[str, ...] = ()
        for variable in draws.variables:
            flags = have[variable.name]
            if not any(flags):
                shared.append(variable)
                continue
            along = variable.labels[flags.index(True)]
            labels = labels or along
            if len(along) != len(labels):
                raise KLFusionError(
                    f"{where}: {variable.name!r}: expected {len(labels)} components, "
                    f"got {len(along)}"
                )
            if variable.support.kind == "simplex" and all(flags) and len(flags) == 1:
                weights = variable
            elif variable.support.kind == "simplex" and all(flags) and len(flags) == 2:
                transition = variable
            elif sum(flags) == 1:
                own.append(_alone(variable, flags.index(True), where))
            else:
                expected = "expected one dim of components, or a simplex from each component"
                raise KLFusionError(f"{where}: {variable.name!r}: {expected}")
        if not own:
            raise KLFusionError(f"{where}: expected a variable per component beside the weights")
        return cls(draws, dims, labels, own, shared, weights, transition)

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.labels)

    def axis(self, name: str) -> int:
        """Axis of components in the draws of a variable."""
        variable = next(v for v in self.draws.variables if v.name == name)
        return 2 + next(k for k, dim in enumerate(variable.dims) if dim in self.dims)

    def values(self, variable: Variable) -> FloatArray:
        """Draws of a component's own variable, ``(chains, draws, K, ...)``."""
        return np.moveaxis(self.draws.values[variable.name], self.axis(variable.name), 2)

    def table(self) -> FloatArray:
        """Unconstrained coordinates of each component, ``(chains, draws, K, d)``."""
        return np.concatenate([v.unconstrain(self.values(v)) for v in self.own], axis=-1)

    def features(self) -> FloatArray:
        """What components differ by, ``(chains, draws, K, f)``: coordinates, weights, stays."""
        parts = [self.table()]
        if self.weights is not None:
            parts.append(np.log(self.draws.values[self.weights.name])[..., None])
        if self.transition is not None:
            stays = np.einsum("cdkk->cdk", self.draws.values[self.transition.name])
            parts.append(np.log(stays)[..., None])
        return np.concatenate(parts, axis=-1)

    def permuted(self, order: IntArray) -> Layout:
        """The draws with component ``order[c, d, k]`` in place ``k``."""
        values = dict(self.draws.values)
        for name in [v.name for v in self.draws.variables if {*v.dims} & {*self.dims}]:
            variable = next(v for v in self.draws.variables if v.name == name)
            for axis, dim in enumerate(variable.dims, 2):
                if dim in self.dims:
                    own = values[name]
                    shape = [1] * own.ndim
                    shape[:2], shape[axis] = order.shape[:2], self.size
                    index = np.broadcast_to(order.reshape(shape), own.shape)
                    values[name] = np.take_along_axis(own, index, axis)
        return replace(self, draws=replace(self.draws, values=values))


def _alone(variable: Variable, axis: int, where: str) -> Variable:
    """The variable of one component; an order of components has no meaning for one."""
    support, batch = variable.support, len(variable.dims) - variable.support.event_dim
    if axis >= batch:
        if support.kind != "ordered":
            raise KLFusionError(
                f"{where}: {variable.name!r}: expected components beside the axes of a "
                f"{support.kind}, got them along it"
            )
        support = Support() if support.lower is None else Support("above", support.lower)
    return replace(variable.without(variable.dims[axis]), support=support)
