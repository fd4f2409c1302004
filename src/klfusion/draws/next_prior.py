"""A fused posterior as the prior of the next model: PyMC, NumPyro, or the code of Stan.

Samplers start near zero. So they move in standard Normal coordinates, where zero is the fused mean:
of ``1 / sigma``, zero would be a wall between two modes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from klfusion._utils.text import brief
from klfusion.draws.fused import JointNormal, joint_of
from klfusion.draws.variables import Variable, columns_of, constrained
from klfusion.errors import KLFusionError, MissingDependencyError
from klfusion.fusion.result import Fusion

LATENT = "fused"  # name of the vector of all unconstrained coordinates
STANDARD = f"{LATENT}_z"  # of the standard Normal vector that a sampler moves
Prior = Callable[[], dict[str, Any]]


def as_prior(fusion: Fusion, library: str, silo: str | None) -> Prior | str:
    """See `Fusion.as_prior`."""
    makers: dict[str, Callable[[JointNormal], Prior | str]] = {
        "pymc": _pymc,
        "numpyro": _numpyro,
        "stan": _stan,
    }
    if not isinstance(library, str) or library not in makers:
        raise KLFusionError(f"expected a library of {sorted(makers)}, got {brief(library)}")
    joint = joint_of(fusion, silo)
    try:
        return makers[library](joint)
    except ImportError as error:
        install = f"pip install 'klfusion[{library}]'"
        text = f"as_prior needs {error.name}, which is not installed: {install}"
        raise MissingDependencyError(text) from error


def _numpyro(joint: JointNormal) -> Prior:
    import numpyro  # noqa: PLC0415 (an extra)
    from jax import numpy  # noqa: PLC0415
    from numpyro.distributions import Normal  # noqa: PLC0415

    def prior() -> dict[str, Any]:
        """Sample all variables; call it within a model."""
        factor, size = np.linalg.cholesky(joint.covariance), len(joint.mean)
        z = numpyro.sample(STANDARD, Normal().expand([size]).to_event(1))
        x = numpyro.deterministic(LATENT, joint.mean + factor @ z)
        values = constrained(joint.variables, x, numpy)
        return {name: numpyro.deterministic(name, value) for name, value in values.items()}

    return prior


def _pymc(joint: JointNormal) -> Prior:
    import pymc  # noqa: PLC0415 (an extra)
    from pytensor import tensor  # noqa: PLC0415

    def prior() -> dict[str, Any]:
        """Random variables of the model in whose context it is called."""
        factor, size = np.linalg.cholesky(joint.covariance), len(joint.mean)
        z = pymc.Normal(STANDARD, shape=size)
        x = pymc.Deterministic(LATENT, joint.mean + tensor.dot(factor, z))
        values = constrained(joint.variables, tensor.specify_shape(x, (size,)), tensor)
        return {name: pymc.Deterministic(name, value) for name, value in values.items()}

    return prior


def _stan(joint: JointNormal) -> str:
    """Blocks of a Stan program; every element of every variable is assigned by itself."""
    size, factor = len(joint.mean), np.linalg.cholesky(joint.covariance)
    rows = ",\n    ".join(f"[{', '.join(map(repr, row))}]" for row in factor.tolist())
    lines = []
    ordered = sorted(columns_of(joint.variables), key=lambda pair: pair[0].scale is not None)
    for variable, own in ordered:  # scales come before what they scale
        unit = next((v for v in joint.variables if v.name == variable.scale), None)
        lines += [_declared(variable), *_assigned(variable, own.start + 1, unit)]
    body = "\n  ".join(lines)
    return f"""transformed data {{
  vector[{size}] {LATENT}_mean = [{", ".join(map(repr, joint.mean.tolist()))}]';
  matrix[{size}, {size}] {LATENT}_factor = [
    {rows}];
}}
parameters {{
  vector[{size}] {STANDARD};
}}
transformed parameters {{
  vector[{size}] {LATENT} = {LATENT}_mean + {LATENT}_factor * {STANDARD};
  {body}
}}
model {{
  {STANDARD} ~ std_normal();
}}
"""


def _name(variable: Variable) -> str:
    """A name that Stan accepts."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in variable.name).strip("_")


def _element_of(variable: Variable, at: Sequence[int]) -> str:
    index = ", ".join(map(str, at))
    return f"{_name(variable)}[{index}]" if index else _name(variable)


def _declared(variable: Variable) -> str:
    shape = variable.shape
    if not shape:
        kind = "real"
    elif len(shape) == 1:
        kind = f"vector[{shape[0]}]"
    else:
        lead = f"array[{', '.join(map(str, shape[:-2]))}] " if len(shape) > 2 else ""
        kind = f"{lead}matrix[{shape[-2]}, {shape[-1]}]"
    return f"{kind} {_name(variable)};"


def _assigned(variable: Variable, first: int, unit: Variable | None) -> list[str]:
    """Statements that set a variable from the coordinates that begin at ``first``."""
    support, lines = variable.support, []
    batch = variable.shape[: len(variable.shape) - support.event_dim]
    free = variable.support.transform.free_shape(variable.shape[len(batch) :])
    step = int(np.prod(free, dtype=int))
    for number, at in enumerate(product(*(range(1, n + 1) for n in batch))):
        x = [f"{LATENT}[{first + number * step + k}]" for k in range(step)]

        def place(*event: int, at: tuple[int, ...] = at) -> str:
            return _element_of(variable, (*at, *event))

        if unit is not None:
            pairs = zip(variable.dims, at, strict=True)
            one = _element_of(unit, [k for dim, k in pairs if dim in unit.dims])
            x = [f"{own} * {one}" for own in x]
        lines += _EVENTS[support.kind](x, place, support)
    return lines


def _element(formula: str) -> Any:
    def statements(x: list[str], place: Any, support: Any) -> list[str]:
        low = support.lower or 0.0
        width = (1.0 if support.upper is None else support.upper) - low
        own = formula.format(x=x[0], low=low, high=support.upper or 0.0, width=width)
        return [f"{place()} = {own};"]

    return statements


def _simplex(x: list[str], place: Any, support: Any) -> list[str]:
    del support
    size, left, lines = len(x), "1", []
    for k, own in enumerate(x):
        lines.append(f"{place(k + 1)} = ({left}) * inv_logit({own} - log({size - k}));")
        left += f" - {place(k + 1)}"
    return [*lines, f"{place(size + 1)} = {left};"]


def _ordered(x: list[str], place: Any, support: Any) -> list[str]:
    first = x[0] if support.lower is None else f"{support.lower} + exp({x[0]})"
    steps = [f"{place(k + 1)} = {place(k)} + exp({own});" for k, own in enumerate(x[1:], 1)]
    return [f"{place(1)} = {first};", *steps]


def _cholesky(x: list[str], place: Any, support: Any) -> list[str]:
    n = round((np.sqrt(1 + 8 * len(x)) - 1) / 2)
    lower = zip(*np.tril_indices(n, -1), strict=True)
    lines = [f"{place(k + 1, k + 1)} = exp({x[k]});" for k in range(n)]
    lines += [f"{place(i + 1, j + 1)} = {own};" for (i, j), own in zip(lower, x[n:], strict=True)]
    return [*lines, *_zeros(n, place)]


def _cholesky_corr(x: list[str], place: Any, support: Any) -> list[str]:
    n, start = round((np.sqrt(1 + 8 * len(x)) + 1) / 2), 0
    lines = [f"{place(1, 1)} = 1;"]
    for i in range(2, n + 1):
        left = "1"
        for j in range(1, i):
            lines.append(f"{place(i, j)} = tanh({x[start]}) * sqrt({left});")
            left += f" - square({place(i, j)})"
            start += 1
        lines.append(f"{place(i, i)} = sqrt({left});")
    return [*lines, *_zeros(n, place)]


def _zeros(n: int, place: Any) -> list[str]:
    pairs = zip(*np.triu_indices(n, 1), strict=True)
    return [f"{place(i + 1, j + 1)} = 0;" for i, j in pairs]


_EVENTS: dict[str, Any] = {
    "real": _element("{x}"),
    "above": _element("{low} + exp({x})"),
    "below": _element("{high} - exp({x})"),
    "between": _element("{low} + {width} * inv_logit({x})"),
    "inverse": _element("inv(abs({x}))"),
    "softplus": _element("log1p_exp({x})"),
    "simplex": _simplex,
    "ordered": _ordered,
    "cholesky": _cholesky,
    "cholesky_corr": _cholesky_corr,
}
