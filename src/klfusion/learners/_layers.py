"""Trainable variational layers, each with its divergence from the prior in nats, and training."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from klfusion._utils.running import progress_bar
from klfusion.errors import KLFusionError
from klfusion.networks.bayesian import BayesianLinear, Stack, normal
from klfusion.networks.layer import Layer
from klfusion.posteriors.structure.convolution import Convolution

_NODES = 12  # of Gauss-Hermite quadrature over a log-scale
_LOG_2PI_E = math.log(2.0 * math.pi * math.e)
_INITIAL_LOG_SD = -3.0  # of a weight, relative to its scale
_LOG_SD_RATE = 5.0  # learning rate of log standard deviations, relative to that of means
_BETA_RATE = 10.0  # of non-centred weights, relative likewise: their scale is one
Shape = tuple[int, int]  # (n_out, n_in)
Pair = tuple[float, float]
Data = tuple[Tensor, Tensor]  # inputs (n, n_in) and targets
Loss = Callable[[Tensor, Tensor], Tensor]  # mean negative log-likelihood of outputs and targets


def _initial_sd(shape: Shape) -> float:
    """Standard deviation of initial weights that keeps the scale of ReLU units (He et al.)."""
    return math.sqrt(2.0 / shape[1])


class NormalLinear(BayesianLinear):
    """Weights and biases with independent ``N(0, prior_sd^2)`` priors."""

    def __init__(
        self, name: str, shape: Shape, prior_sd: float, rng: torch.Generator,
        convolution: Convolution | None = None,
    ) -> None:  # fmt: skip
        scale, n_out = _initial_sd(shape), shape[0]
        weight = scale * torch.randn(shape, generator=rng).double().numpy()
        variance = (scale * math.exp(_INITIAL_LOG_SD)) ** 2
        spread = np.full_like(weight, variance), np.full(n_out, variance)
        super().__init__(Layer(name, weight, spread[0], np.zeros(n_out), spread[1], convolution))
        self.prior_sd = prior_sd

    def divergence(self) -> Tensor:
        """``KL(q || prior)``."""
        weights = _from_normal(self.weight_mean, self.weight_log_sd, self.prior_sd)
        return weights + _from_normal(self.bias_mean, self.bias_log_sd, self.prior_sd)


class HorseshoeLinear(nn.Module):  # type: ignore[misc]
    """A hidden layer under the regularised horseshoe, non-centred (the paper's appendix D).

    Weights and bias of unit ``k`` are ``s_k beta_k`` with ``beta ~ N(0, I)``,
    ``s_k^2 = c^2 t_k^2 / (c^2 + t_k^2)`` and ``t_k = tau_k tau``. ``tau_k`` and ``tau`` are
    half-Cauchy with the two ``scales``; ``c^2`` is inverse Gamma. The variational posterior has
    independent Normal ``beta`` and log-Normal ``tau_k``, ``tau`` and ``c^2``.
    """

    def __init__(
        self, name: str, shape: Shape, scales: Pair, slab: Pair, rng: torch.Generator
    ) -> None:
        super().__init__()
        self.scales, self.slab, n_out = scales, slab, shape[0]
        # Initial weights are those of NormalLinear; their standard deviation moves to the scales.
        self.beta = NormalLinear(name, shape, 1.0, rng)
        start = math.log(_initial_sd(shape))
        with torch.no_grad():
            self.beta.weight_mean *= math.exp(-start)
            self.beta.weight_log_sd -= start
            self.beta.bias_log_sd -= start
        self.unit_mean = nn.Parameter(torch.zeros(n_out))
        self.unit_log_sd = nn.Parameter(torch.full((n_out,), _INITIAL_LOG_SD))
        self.layer_mean = nn.Parameter(torch.tensor(start))
        self.layer_log_sd = nn.Parameter(torch.tensor(_INITIAL_LOG_SD))
        self.slab_mean = nn.Parameter(torch.tensor(math.log(slab[1] / slab[0])))
        self.slab_log_sd = nn.Parameter(torch.tensor(_INITIAL_LOG_SD))

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Outputs with other weights and unit scales for every row."""
        out = self.beta(x, generator)
        log_t = normal(self.unit_mean, self.unit_log_sd, generator, out.shape)
        log_t = log_t + normal(self.layer_mean, self.layer_log_sd, generator)
        log_slab = normal(self.slab_mean, self.slab_log_sd, generator)
        return out * _shrunk(log_t, log_slab)

    def divergence(self) -> Tensor:
        """``KL(q || prior)``."""
        units = _from_half_cauchy(self.unit_mean, self.unit_log_sd, self.scales[0])
        layer = _from_half_cauchy(self.layer_mean, self.layer_log_sd, self.scales[1])
        total = self.beta.divergence() + units + layer
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


class Schedule(NamedTuple):
    """How long and how fast to train."""

    epochs: int
    batch_size: int
    learning_rate: float
    tempering: float
    annealed: float  # share of the training over which the prior's weight rises to ``tempering``
    progress: bool | None


class VariationalStack(Stack):
    """Variational layers, one activation in between."""

    def divergence(self) -> Tensor:
        """``KL(q || prior)`` of all layers."""
        return sum((linear.divergence() for linear in self.linears), torch.zeros(()))


def train(
    network: VariationalStack, data: Data, loss: Loss, schedule: Schedule, rng: torch.Generator
) -> list[float]:
    """Maximise the evidence lower bound by Adam; the bound per observation after each epoch."""
    optimizer = torch.optim.Adam(_groups(network, schedule.learning_rate), fused=True)
    x, y = data
    n, size = len(x), min(schedule.batch_size, len(x))
    steps = -(-n // size)
    total = schedule.epochs * steps
    # The learning rate falls like half a cosine to zero, which removes sampling noise.
    decay = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * (step / total))
    )
    bounds, done = [], 0
    with progress_bar(schedule.progress) as report:
        for epoch in range(schedule.epochs):
            order = torch.randperm(n, generator=rng, device=x.device)
            bound = 0.0
            for rows in order.split(size):
                weight = schedule.tempering * min(1.0, done / (schedule.annealed * total))
                fit = loss(network(x[rows], rng), y[rows])
                divergence = network.divergence() / n
                optimizer.zero_grad()
                (fit + weight * divergence).backward()
                optimizer.step()
                decay.step()
                bound -= float((fit + schedule.tempering * divergence).detach()) / steps
                done += 1
            if not math.isfinite(bound):
                raise KLFusionError(
                    f"training diverged in epoch {epoch + 1}: expected a finite bound, got {bound};"
                    " lower learning_rate or scale the inputs to a standard deviation near one"
                )
            bounds.append(bound)
            report("training", epoch + 1, schedule.epochs)
    return bounds


def _groups(network: nn.Module, rate: float) -> list[dict[str, Any]]:
    groups: dict[float, list[nn.Parameter]] = {1.0: [], _LOG_SD_RATE: [], _BETA_RATE: []}
    for name, parameter in network.named_parameters():
        mean_rate = _BETA_RATE if ".beta." in name else 1.0
        groups[_LOG_SD_RATE if name.endswith("log_sd") else mean_rate].append(parameter)
    return [{"params": params, "lr": factor * rate} for factor, params in groups.items() if params]
