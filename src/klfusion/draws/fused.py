"""A fused posterior as one Normal over the coordinates of all variables, and draws of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag
from scipy.special import polygamma, psi

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import check_integer, generator
from klfusion._utils.text import few
from klfusion.draws.supports import Support
from klfusion.draws.variables import Variable, constrained, names_of, variables_of
from klfusion.errors import KLFusionError, MissingDependencyError
from klfusion.families import Normal
from klfusion.fusion.result import Fusion
from klfusion.pooling.meta_analysis import varying
from klfusion.pooling.regressions import VARYING
from klfusion.posteriors.coefficients import is_regression
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import components
from klfusion.posteriors.structure.regression import Information


@dataclass(frozen=True, eq=False)
class JointNormal:
    """Mean and covariance of unconstrained coordinates, and the variables they belong to."""

    mean: FloatArray
    covariance: FloatArray
    variables: tuple[Variable, ...]

    def sample(self, chains: int, draws: int, random_state: Any) -> dict[str, FloatArray]:
        """Independent draws ``(chains, draws, ...)`` of each variable, within its support."""
        noise = generator(random_state).normal(size=(chains, draws, len(self.mean)))
        table = self.mean + noise @ np.linalg.cholesky(self.covariance).T
        return constrained(self.variables, table)


def joint_normal(posterior: Posterior) -> JointNormal:
    """The Normal of a posterior that came from draws."""
    where = f"{posterior.name!r}"
    variables = variables_of(posterior.structure, where)
    assert posterior.structure is not None and isinstance(posterior.family, Normal)
    moments = posterior.params()
    if is_regression(posterior):
        names = posterior.structure.info["coordinates"]
        kept = _present(variables, names)
        rows = [names.index(key) for v in kept for key in v.coordinates]
        covariance = moments["covariance"][0][np.ix_(rows, rows)]
        return JointNormal(moments["mean"][0][rows], covariance, tuple(kept))
    return _of_components(posterior, variables, where)


def _present(variables: Sequence[Variable], names: Sequence[str]) -> list[Variable]:
    """Variables whose coordinates are all there; of others, each coordinate for itself."""
    found, there = [], {*names}
    for variable in variables:
        own = variable.coordinates
        if there.issuperset(own):
            found.append(variable)
        elif variable.support.event_dim == 0:
            whole = replace(variable, support=Support(), scale=None).coordinates
            pairs = zip(own, whole, strict=True)
            alone = Variable("", support=variable.support, scale=variable.scale)
            found += [replace(alone, name=v) for key, v in pairs if key in there]
    return found


def _of_components(posterior: Posterior, variables: Sequence[Variable], where: str) -> JointNormal:
    """Components are independent; a Dirichlet is Normal in the logits of its sticks."""
    structure = posterior.structure
    assert structure is not None
    moments, size, dims = posterior.params(), posterior.n_components, structure.info
    labels = tuple(map(str, range(size)))
    dim = dims["component_dims"][0]
    start = [sum(v.size for v in variables[:k]) for k in range(len(variables))]
    width = sum(v.size for v in variables)
    order = [g * width + low + k for v, low in zip(variables, start, strict=True)
             for g in range(size) for k in range(v.size)]  # fmt: skip
    mean = moments["mean"].ravel()[order]
    covariance = block_diag(*moments["covariance"])[np.ix_(order, order)]
    made = [replace(v, dims=(dim, *v.dims), labels=(labels, *v.labels)) for v in variables]
    blocks: list[FloatArray] = [covariance]
    means: list[FloatArray] = [mean]
    if dims.get("weights") is not None:
        found, variance = _sticks(structure.arrays["counts"] + structure.arrays["weight_prior"])
        made.append(Variable(dims["weights"], (dim,), (labels,), Support("simplex")))
        means.append(found)
        blocks.append(np.diag(variance))
    if dims.get("transition") is not None:
        alpha = structure.arrays["transition"] + structure.arrays["transition_prior"]
        found, variance = _sticks(alpha)
        both = (*dims["component_dims"], f"{dim}_to")[:2]
        made.append(Variable(dims["transition"], both, (labels, labels), Support("simplex")))
        means.append(found.ravel())
        blocks.append(np.diag(variance.ravel()))
    if dims.get("shared"):
        own = Information(*(structure.arrays[key] for key in components.SHARED[:2]))
        made += [Variable.of(v, where) for v in dims["shared"]]
        blocks.append(np.asarray(np.linalg.inv(own.precision), dtype=np.float64))
        means.append(blocks[-1] @ own.shift)
    kept = [k for k, block in enumerate(blocks) if len(block)]  # one component has no sticks
    return JointNormal(
        np.concatenate([means[k] for k in kept]),
        np.asarray(block_diag(*(blocks[k] for k in kept))),
        tuple(made),
    )


def _sticks(alpha: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the logits of a Dirichlet's sticks, which are independent Betas."""
    later = np.flip(np.cumsum(np.flip(alpha[..., 1:], -1), -1), -1)
    own, size = alpha[..., :-1], alpha.shape[-1] - 1
    mean = psi(own) - psi(later) + np.log(size - np.arange(size))
    return np.asarray(mean), np.asarray(polygamma(1, own) + polygamma(1, later))


def joint_of(fusion: Fusion, silo: str | None) -> JointNormal:
    """Of a fusion, or of one of its silos with what is local there."""
    regression = is_regression(fusion.posterior)
    if silo is not None and not regression:
        raise KLFusionError(f"silo {silo!r}: expected a fusion of draws without components")
    made = joint_normal(fusion.posterior if silo is None else fusion.site(silo))
    pooling = fusion.settings.pooling
    if regression and pooling not in VARYING:
        certain = f"pooling {pooling!r} is as certain as if they agreed"
        warn_varying(fusion, f"{certain}: pooling='hierarchical' lets them vary", 5)
    return made


def warn_varying(fusion: Fusion, so: str, stacklevel: int) -> None:
    """Say which coefficients differ between silos more than chance allows, and ``so``."""
    tests = fusion.heterogeneity() if fusion.silos is not None else {}
    if apart := varying(tests):
        names = few(names_of(fusion.posterior.structure, apart))
        least = min(tests[name].q_p_value for name in apart)
        warnings.warn(
            f"silos differ in {names} more than chance allows (p {least:.1g}), and {so}",
            stacklevel=stacklevel,
        )


def to_inference_data(
    fusion: Fusion, draws: int, chains: int, silo: str | None, random_state: Any
) -> Any:
    """See `Fusion.to_inference_data`."""
    check_integer("draws", draws)
    check_integer("chains", chains)
    return inference_data(joint_of(fusion, silo), draws, chains, random_state)


def inference_data(joint: JointNormal, draws: int, chains: int, random_state: Any) -> Any:
    """Draws of a Normal as an InferenceData, or as the DataTree of ArviZ 1."""
    try:
        import arviz  # noqa: PLC0415 (an extra)
    except ImportError as error:
        text = "draws need arviz, which is not installed: pip install 'klfusion[draws]'"
        raise MissingDependencyError(text) from error
    sampled = joint.sample(chains, draws, random_state)
    dims = {v.name: [*v.dims] for v in joint.variables}
    coords = {
        dim: [*labels]
        for v in joint.variables
        for dim, labels in zip(v.dims, v.labels, strict=True)
    }
    given: Any = {"posterior": sampled}
    if hasattr(arviz, "InferenceData"):  # before ArviZ 1
        return arviz.from_dict(**given, dims=dims, coords=coords)
    return arviz.from_dict(given, dims=dims, coords=coords)
