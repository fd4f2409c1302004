"""The training loop of variational networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from klfusion._utils.progress import progress_bar
from klfusion.errors import KLFusionError
from klfusion.networks.bayesian import Stack

_LOG_SD_RATE = 5.0  # learning rate of log standard deviations, relative to that of means
_BETA_RATE = 10.0  # of non-centred weights, relative likewise: their scale is one


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train."""

    epochs: int
    batch_size: int
    learning_rate: float
    tempering: float
    annealed: float  # share of the training over which the prior's weight rises to ``tempering``


class VariationalStack(Stack):
    """Variational layers, one activation in between."""

    def divergence(self) -> Tensor:
        """``KL(q || prior)`` of all layers."""
        return sum((linear.divergence() for linear in self.linears), torch.zeros(()))


def train(
    network: VariationalStack,
    x: Tensor,
    y: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    extra: list[nn.Parameter],
    schedule: Schedule,
    generator: torch.Generator,
    progress: bool | None,
) -> list[float]:
    """Maximise the evidence lower bound by Adam; the bound per observation after each epoch.

    ``loss(outputs, y)`` is the mean negative log-likelihood; ``extra`` are its parameters.
    """
    optimizer = torch.optim.Adam(_groups(network, extra, schedule.learning_rate), fused=True)
    n, size = len(x), min(schedule.batch_size, len(x))
    steps = -(-n // size)
    total = schedule.epochs * steps
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step / total))
    bounds, done = [], 0
    with progress_bar(progress) as report:
        for epoch in range(schedule.epochs):
            order = torch.randperm(n, generator=generator, device=x.device)
            bound = 0.0
            for rows in order.split(size):
                weight = schedule.tempering * min(1.0, done / (schedule.annealed * total))
                fit = loss(network(x[rows], generator), y[rows])
                divergence = network.divergence() / n
                optimizer.zero_grad()
                (fit + weight * divergence).backward()
                optimizer.step()
                decay.step()
                bound -= float((fit + schedule.tempering * divergence).detach()) / steps
                done += 1
            if not torch.isfinite(torch.tensor(bound)):
                raise KLFusionError(
                    f"training diverged in epoch {epoch + 1}: expected a finite bound, got {bound};"
                    " lower learning_rate or scale the inputs to a standard deviation near one"
                )
            bounds.append(bound)
            report("training", epoch + 1, schedule.epochs)
    return bounds


def _rate(progress: float) -> float:
    """Relative learning rate, half a cosine: it ends at zero, which removes sampling noise."""
    return 0.5 + 0.5 * math.cos(math.pi * progress)


def _groups(network: nn.Module, extra: list[nn.Parameter], rate: float) -> list[dict[str, Any]]:
    groups: dict[float, list[nn.Parameter]] = {1.0: [*extra], _LOG_SD_RATE: [], _BETA_RATE: []}
    for name, parameter in network.named_parameters():
        mean_rate = _BETA_RATE if ".beta." in name else 1.0
        groups[_LOG_SD_RATE if name.endswith("log_sd") else mean_rate].append(parameter)
    return [{"params": params, "lr": factor * rate} for factor, params in groups.items() if params]
