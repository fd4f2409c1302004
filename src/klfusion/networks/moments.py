"""Random Normals, and moments of activations of Normals."""

import math
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

_NODES = 24  # of Gauss-Hermite quadrature, for activations without a closed form
_JITTER = 1e-6  # share of the mean variance added to keep a covariance positive definite
_TINY = 1e-30  # added to variances, so that no standard deviation is zero


Shape = tuple[int, ...]
Rng: TypeAlias = torch.Generator | None


def noise_like(like: Tensor, rng: Rng, shape: Shape | None = None) -> Tensor:
    """Standard Normal noise with the type, device and, by default, shape of a tensor."""
    size = like.shape if shape is None else shape
    return torch.randn(size, generator=rng, dtype=like.dtype, device=like.device)


def normal(mean: Tensor, log_sd: Tensor, rng: Rng, shape: Shape | None = None) -> Tensor:
    """A sample of independent Normals."""
    return mean + torch.exp(log_sd) * noise_like(mean, rng, shape)


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
        above_zero = torch.special.ndtr(z)
        first = mean * above_zero + sd * density
        second = (mean**2 + variance) * above_zero + mean * sd * density
    else:
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        first, second = torch.zeros_like(mean), torch.zeros_like(mean)
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            value = activate(mean + float(node) * sd, activation)
            first += float(weight) * value
            second += float(weight) * value**2
    return first, (second - first**2).clamp_min(0.0)


def normal_samples(mean: Tensor, covariance: Tensor, n_samples: int, rng: Rng) -> Tensor:
    """Samples (n_samples, n, k) of Normals with means (n, k) and covariances (n, k, k)."""
    k = mean.shape[-1]
    scale = torch.diagonal(covariance, dim1=1, dim2=2).mean(-1)[:, None, None] + _TINY
    eye = torch.eye(k, dtype=mean.dtype, device=mean.device)
    root, _ = torch.linalg.cholesky_ex(covariance + _JITTER * scale * eye)
    # Antithetic pairs around the mean reduce the variance of averages.
    half = noise_like(mean, rng, ((n_samples + 1) // 2, k))
    noise = torch.cat([half, -half])[:n_samples]
    return mean + torch.einsum("nij,sj->sni", root, noise)
