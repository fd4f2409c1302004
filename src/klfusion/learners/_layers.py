"""Trainable variational layers, each with its divergence from the prior in nats."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from klfusion.networks import moments
from klfusion.networks.bayesian import BayesianLinear
from klfusion.networks.layer import Layer

_NODES = 12  # of Gauss-Hermite quadrature over a log-scale
_LOG_2PI_E = math.log(2.0 * math.pi * math.e)
_INITIAL_LOG_SD = -3.0  # of a weight, relative to its scale


def _initial_sd(n_in: int) -> float:
    """Standard deviation of initial weights that keeps the scale of ReLU units (He et al.)."""
    return math.sqrt(2.0 / n_in)


class NormalLinear(BayesianLinear):
    """Weights and biases with independent ``N(0, prior_sd^2)`` priors."""

    def __init__(
        self, name: str, n_in: int, n_out: int, prior_sd: float, generator: torch.Generator
    ) -> None:
        scale = _initial_sd(n_in)
        weight = scale * torch.randn((n_out, n_in), generator=generator).double().numpy()
        variance = (scale * math.exp(_INITIAL_LOG_SD)) ** 2
        bias_variance = np.full(n_out, variance)
        super().__init__(
            Layer(name, weight, np.full_like(weight, variance), np.zeros(n_out), bias_variance)
        )
        self.prior_sd = prior_sd

    def divergence(self) -> Tensor:
        """``KL(q || prior)``."""
        return _from_normal(self.weight_mean, self.weight_log_sd, self.prior_sd) + _from_normal(
            self.bias_mean, self.bias_log_sd, self.prior_sd
        )


class HorseshoeLinear(nn.Module):  # type: ignore[misc]
    """A hidden layer under the regularised horseshoe, non-centred (the paper's appendix D).

    Weights and bias of unit ``k`` are ``s_k beta_k`` with ``beta ~ N(0, I)``,
    ``s_k^2 = c^2 t_k^2 / (c^2 + t_k^2)`` and ``t_k = tau_k tau``. ``tau_k`` and ``tau`` are
    half-Cauchy with the two ``scales``; ``c^2`` is inverse Gamma. The variational posterior has
    independent Normal ``beta`` and log-Normal ``tau_k``, ``tau`` and ``c^2``.
    """

    def __init__(
        self,
        name: str,
        n_in: int,
        n_out: int,
        scales: tuple[float, float],
        slab: tuple[float, float],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.scales, self.slab = scales, slab
        # Initial weights are those of NormalLinear; their standard deviation moves to the scales.
        self.beta = NormalLinear(name, n_in, n_out, 1.0, generator)
        start = math.log(_initial_sd(n_in))
        with torch.no_grad():
            self.beta.weight_mean *= math.exp(-start)
            self.beta.weight_log_sd -= start
            self.beta.bias_log_sd -= start
        self.unit_mean = nn.Parameter(torch.zeros(n_out))
        self.unit_log_sd = nn.Parameter(torch.full((n_out,), _INITIAL_LOG_SD))
        self.layer_mean = nn.Parameter(torch.tensor(start))
        self.layer_log_sd = nn.Parameter(torch.tensor(_INITIAL_LOG_SD))
        shape, rate = slab
        self.slab_mean = nn.Parameter(torch.tensor(math.log(rate / shape)))
        self.slab_log_sd = nn.Parameter(torch.tensor(_INITIAL_LOG_SD))

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Outputs with other weights and unit scales for every row."""
        out = self.beta(x, generator)
        log_t = moments.normal(self.unit_mean, self.unit_log_sd, generator, out.shape)
        log_t = log_t + moments.normal(self.layer_mean, self.layer_log_sd, generator)
        log_slab = moments.normal(self.slab_mean, self.slab_log_sd, generator)
        return out * _shrunk(log_t, log_slab)

    def divergence(self) -> Tensor:
        """``KL(q || prior)``."""
        unit_scale, layer_scale = self.scales
        total = self.beta.divergence()
        total = total + _from_half_cauchy(self.unit_mean, self.unit_log_sd, unit_scale)
        total = total + _from_half_cauchy(self.layer_mean, self.layer_log_sd, layer_scale)
        return total + _from_inverse_gamma(self.slab_mean, self.slab_log_sd, *self.slab)

    def layer(self) -> Layer:
        """The Normal posterior of the weights, scales at their expected values (appendix D)."""
        unit = _log_mean(self.unit_mean, self.unit_log_sd)
        log_slab = 2.0 * _log_mean(0.5 * self.slab_mean, self.slab_log_sd - math.log(2.0))
        scale = _shrunk(unit + _log_mean(self.layer_mean, self.layer_log_sd), log_slab)
        return self.beta.layer().scaled(scale.detach().cpu().double().numpy())


def _shrunk(log_t: Tensor, log_slab: Tensor) -> Tensor:
    """``sqrt(c^2 t^2 / (c^2 + t^2))`` from ``log t`` and ``log c^2``, without overflow."""
    return torch.exp(-0.5 * torch.logaddexp(-log_slab, -2.0 * log_t))


def _log_mean(mean: Tensor, log_sd: Tensor) -> Tensor:
    """``log E[exp(t)]`` of a Normal ``t``."""
    return mean + 0.5 * torch.exp(2.0 * log_sd)


def _from_normal(mean: Tensor, log_sd: Tensor, prior_sd: float) -> Tensor:
    """``KL(N(mean, sd^2) || N(0, prior_sd^2))``, summed."""
    log_ratio = log_sd - math.log(prior_sd)
    squares = (torch.exp(2.0 * log_ratio) + (mean / prior_sd) ** 2).sum()
    return 0.5 * (squares - mean.numel()) - log_ratio.sum()


def _from_half_cauchy(mean: Tensor, log_sd: Tensor, scale: float) -> Tensor:
    """``KL(log-Normal || half-Cauchy)``, summed; one integral is by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    z = torch.as_tensor(nodes, dtype=mean.dtype, device=mean.device)
    w = torch.as_tensor(weights / weights.sum(), dtype=mean.dtype, device=mean.device)
    t = mean[..., None] + torch.exp(log_sd)[..., None] * z - math.log(scale)
    log_prior = math.log(2.0 / math.pi) + (w * (t - nn.functional.softplus(2.0 * t))).sum(-1)
    return -(log_prior + log_sd + 0.5 * _LOG_2PI_E).sum()


def _from_inverse_gamma(mean: Tensor, log_sd: Tensor, shape: float, rate: float) -> Tensor:
    """``KL(log-Normal || inverse Gamma)``."""
    inverse = torch.exp(-mean + 0.5 * torch.exp(2.0 * log_sd))
    log_prior = shape * math.log(rate) - math.lgamma(shape) - shape * mean - rate * inverse
    return -(log_prior + log_sd + 0.5 * _LOG_2PI_E).sum()
