"""ArviZ's InferenceData, or the DataTree of ArviZ 1, as arrays by name, and relabelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from klfusion.draws.layout import Layout
from klfusion.draws.relabelling import Relabelled, relabelled
from klfusion.draws.variables import read_draws
from klfusion.errors import KLFusionError


def group(idata: Any, name: str) -> Any:
    """A group as a data set; None if there is none."""
    known = idata.groups() if callable(getattr(idata, "groups", None)) else [*idata.children]
    if name not in known:
        return None
    found = idata[name]
    return found.to_dataset() if hasattr(found, "to_dataset") else found


def is_inference_data(given: Any) -> bool:
    """Whether an object is an InferenceData, or a DataTree with a posterior."""
    return type(given).__name__ in ("InferenceData", "DataTree")


def arrays(idata: Any, where: str, variables: Sequence[str] | None = None) -> dict[str, Any]:
    """Draws, dims and coords of the posterior, divergent transitions and draws of the prior."""
    posterior = group(idata, "posterior")
    if posterior is None:
        raise KLFusionError(f"{where}: expected an InferenceData with a posterior, got none")
    names = [str(name) for name in posterior.data_vars]
    kept = names if variables is None else [name for name in variables if name in names]
    ordered = {name: posterior[name].transpose("chain", "draw", ...) for name in kept}
    dims = {name: [*map(str, own.dims[2:])] for name, own in ordered.items()}
    used = {dim for own in dims.values() for dim in own}
    found: dict[str, Any] = {
        "draws": {name: np.asarray(own.values) for name, own in ordered.items()},
        "dims": dims,
        "coords": {dim: [*posterior[dim].values] for dim in used if dim in posterior.coords},
    }
    stats, prior = group(idata, "sample_stats"), group(idata, "prior")
    if stats is not None and "diverging" in stats:
        found["diverging"] = np.asarray(stats["diverging"].values)
    if prior is not None:
        known = [name for name in kept if name in prior.data_vars]
        moved = {name: prior[name].transpose("chain", "draw", ...) for name in known}
        found["prior"] = {name: np.asarray(own.values) for name, own in moved.items()}
    return found


def relabel(
    draws: Any,
    *,
    components: str | Sequence[str],
    supports: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    random_state: int = 0,
) -> Any:
    """Undo label switching within and between chains: every draw gets the same components.

    Each draw is matched to the others as a silo of point components. All variables along the dim
    of components are permuted.

    Parameters
    ----------
    draws : InferenceData, DataTree, or mapping of name to array (chain, draw, ...)
    components : str or sequence of str
        The dim of the components, and its other names, as of the columns of a transition matrix.
    supports : mapping of name to support, optional
        As for `from_draws`. Components are compared by unconstrained coordinates.
    dims : mapping of name to names of axes
        Of a mapping; an InferenceData has its own.
    random_state : int

    Returns
    -------
    InferenceData or Relabelled
        An InferenceData has the permuted draws, ``relabel_probability`` and
        ``relabel_permutation`` in ``sample_stats``, and what is doubtful in
        ``posterior.attrs["relabel_findings"]``. A mapping gives a `Relabelled` with ``draws``,
        ``permutation``, ``probability`` and ``findings``.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> rng = np.random.default_rng(0)
    >>> mu = rng.permuted(rng.normal([-2.0, 2.0], 0.2, (4, 250, 2)), axis=2)
    >>> found = kf.relabel({"mu": mu}, components="component", dims={"mu": ["component"]})
    >>> np.sort(found.draws["mu"].mean(axis=(0, 1)).round(1))
    array([-2.,  2.])
    >>> found.probability.min() > 0.999, found.findings
    (np.True_, ())
    """
    if not is_inference_data(draws):
        given = read_draws(draws, "relabel", supports=supports, dims=dims)
        return relabelled(Layout.of(given, components, "relabel"), random_state)[1]
    own = arrays(draws, "relabel")
    along = {components} if isinstance(components, str) else {*components}
    used = [name for name, names in own["dims"].items() if {*names} & along]
    values = {name: own["draws"][name] for name in used} or own["draws"]
    wanted = {key: s for key, s in (supports or {}).items() if key in values}
    given = read_draws(
        values, "relabel", supports=wanted, dims={name: own["dims"][name] for name in values}
    )
    found = relabelled(Layout.of(given, components, "relabel"), random_state)[1]
    return _with_draws(draws, found)


def _with_draws(idata: Any, found: Relabelled) -> Any:
    """A copy of the InferenceData with relabelled draws."""
    out = idata.copy()
    posterior = group(out, "posterior")
    order = {name: ("chain", "draw", *_rest(posterior[name].dims)) for name in found.draws}
    posterior = posterior.assign(
        {name: (order[name], values) for name, values in found.draws.items()}
    ).assign_attrs(relabel_findings="; ".join(found.findings))
    stats = group(out, "sample_stats")
    stats = posterior.drop_vars([*posterior.data_vars]) if stats is None else stats
    stats = stats.assign(
        relabel_probability=(("chain", "draw"), found.probability),
        relabel_permutation=(("chain", "draw", "relabel_place"), found.permutation),
    )
    if hasattr(out, "add_groups"):  # an InferenceData
        for name, data in {"posterior": posterior, "sample_stats": stats}.items():
            if name in out.groups():
                del out[name]
            out.add_groups({name: data})
        return out
    made = {name: data for name, data in out.to_dict().items() if name != "/"}
    return type(out).from_dict({**made, "/posterior": posterior, "/sample_stats": stats})


def _rest(dims: Sequence[Any]) -> list[Any]:
    return [dim for dim in dims if dim not in ("chain", "draw")]
