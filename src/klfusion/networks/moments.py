"""Means and variances through activations, and draws from the Normal they give."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

_NODES = 24  # of Gauss-Hermite quadrature, for activations without a closed form
_JITTER = 1e-6  # of a covariance's mean variance, so that rounding leaves it positive definite
_TINY = 1e-30


def activate(h: Tensor, activation: str) -> Tensor:
    """The activation, elementwise."""
    function = torch.nn.functional.silu if activation == "silu" else getattr(torch, activation)
    return function(h)


def activation_moments(mean: Tensor, variance: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """Mean and variance of the activation of Normals."""
    sd = torch.sqrt(variance + _TINY)
    if activation == "relu":
        z = mean / sd
        density = torch.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
        below = torch.special.ndtr(z)
        first = mean * below + sd * density
        second = (mean**2 + variance) * below + mean * sd * density
    else:
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        first, second = torch.zeros_like(mean), torch.zeros_like(mean)
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            value = activate(mean + float(node) * sd, activation)
            first += float(weight) * value
            second += float(weight) * value**2
    return first, (second - first**2).clamp_min(0.0)


def normal_draws(
    mean: Tensor, covariance: Tensor, n_samples: int, generator: torch.Generator
) -> Tensor:
    """Draws (n_samples, n, k) of Normals with means (n, k) and covariances (n, k, k).

    Antithetic: draws come in pairs around the mean, which halves what chance does to averages.
    """
    k = mean.shape[-1]
    scale = torch.diagonal(covariance, dim1=1, dim2=2).mean(-1)[:, None, None] + _TINY
    eye = torch.eye(k, dtype=mean.dtype, device=mean.device)
    root, _ = torch.linalg.cholesky_ex(covariance + _JITTER * scale * eye)
    half = torch.randn(
        ((n_samples + 1) // 2, k), generator=generator, dtype=mean.dtype, device=mean.device
    )
    noise = torch.cat([half, -half])[:n_samples]
    return mean + torch.einsum("nij,sj->sni", root, noise)
