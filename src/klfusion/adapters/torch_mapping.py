"""Means and variances of a network's weights in a mapping of arrays or tensors."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from klfusion.adapters import _networks
from klfusion.adapters._networks import Moments, numbers
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior

rebuild = _networks.network


def extract(
    model: Any, name: str, activation: str = "relu", class_counts: ArrayLike | None = None
) -> Posterior:
    """Read ``{"fc1.weight": (mean, variance), "fc1.bias": ...}`` or ``{"fc1": (mean, variance)}``.

    Weights are ``(n_out, n_in)`` as in PyTorch. The second form has one pair per layer,
    ``(n_out, n_in + 1)``, with the bias in the last column. Layers are in the mapping's order.
    """
    moments = {str(key): _pair(value, str(key)) for key, value in model.items()}
    kinds = {key.rpartition(".")[2] in ("weight", "bias") for key in moments}
    if kinds == {False}:
        moments = _with_bias_columns(moments)
    elif kinds != {True}:
        raise KLFusionError(
            "expected a mapping of 'layer.weight' and 'layer.bias', or of 'layer', to "
            f"(mean, variance), got {', '.join(moments) or 'an empty one'}"
        )
    network = _networks.Network(moments, activation, class_counts)
    return _networks.posterior_of(network, name, "builtins", "dict")


def _pair(value: Any, key: str) -> Moments:
    if not isinstance(value, tuple | list) or len(value) != 2:
        got = f"got {type(value).__name__}; kf.from_draws takes draws by name"
        raise KLFusionError(f"{key}: expected a pair (mean, variance), {got}")
    try:
        return numbers(value[0]), numbers(value[1])
    except (TypeError, ValueError) as error:
        raise KLFusionError(f"{key}: expected arrays of numbers ({error})") from error


def _with_bias_columns(moments: Mapping[str, Moments]) -> dict[str, Moments]:
    out = {}
    for key, (mean, variance) in moments.items():
        if mean.ndim != 2 or mean.shape != variance.shape or mean.shape[1] < 2:
            raise KLFusionError(
                f"{key}: expected means and variances (n_out, n_in + 1), the bias in the last "
                f"column, got shapes {mean.shape} and {variance.shape}"
            )
        out[f"{key}.weight"] = mean[:, :-1], variance[:, :-1]
        out[f"{key}.bias"] = mean[:, -1], variance[:, -1]
    return out
