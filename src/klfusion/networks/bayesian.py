"""A network with independent Normal weights, as a PyTorch module that predicts."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor, nn

from klfusion._utils.arrays import FloatArray
from klfusion.errors import KLFusionError
from klfusion.networks.densities import ClassDensities
from klfusion.networks.layer import (
    NODES,
    Head,
    Layer,
    LayeredNetwork,
    check_inputs,
    check_samples,
)
from klfusion.posteriors.structure.convolution import Convolution

_BATCH = 2_000  # rows per batch of predictions; bounds the memory
_TINY = 1e-30  # smallest variance under a root and smallest probability under a logarithm
_JITTER = 1e-6  # share of the mean variance added to keep a covariance positive definite

How = Literal["monte-carlo", "moments"]
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
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
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


class Entropy(NamedTuple):
    """Entropy of the predicted class of each row, in nats, each (n,)."""

    total: FloatArray  # the sum of the other two
    aleatoric: FloatArray  # expected entropy given the weights
    epistemic: FloatArray  # mutual information of class and weights


class Distribution(NamedTuple):
    """Prediction of a regression, each (n, n_out); ``variance = noise + epistemic``."""

    mean: FloatArray
    variance: FloatArray
    epistemic: FloatArray


class BayesianLinear(nn.Module):  # type: ignore[misc]
    """A fully connected or convolutional layer with independent Normal weights and biases."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.name, self.convolution = layer.name, layer.convolution
        self.weight_mean = _parameter(layer.weight_mean)
        self.weight_log_sd = _parameter(0.5 * np.log(layer.weight_variance))
        self.bias_mean = _parameter(layer.bias_mean)
        self.bias_log_sd = _parameter(0.5 * np.log(layer.bias_variance))

    def linear(self, mean: Tensor, variance: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and variance of the outputs for independent inputs with these moments."""
        weight_variance = torch.exp(2.0 * self.weight_log_sd)
        out = self._apply_weights(mean, self.weight_mean, self.bias_mean)
        spread = mean**2 if variance is None else mean**2 + variance
        total = self._apply_weights(spread, weight_variance, torch.exp(2.0 * self.bias_log_sd))
        if variance is not None:
            total = total + self._apply_weights(variance, self.weight_mean**2)
        return out, total

    def _apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.convolution is None:
            return nn.functional.linear(x.flatten(1), weight, bias)
        channels, height, width, kernel, _ = self.convolution
        kernels = weight.view(len(weight), channels, kernel, kernel)
        return nn.functional.conv2d(x.view(-1, channels, height, width), kernels, bias)

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Outputs with other weights for every row (local reparametrisation)."""
        mean, variance = self.linear(x)
        return mean + torch.sqrt(variance + _TINY) * noise_like(mean, generator)

    def sampled(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Outputs with one sample of the weights for all rows."""
        weight = normal(self.weight_mean, self.weight_log_sd, generator)
        bias = normal(self.bias_mean, self.bias_log_sd, generator)
        return self._apply_weights(x, weight, bias)

    def layer(self) -> Layer:
        """Means and variances as arrays."""
        mean, bias_mean = _numpy(self.weight_mean), _numpy(self.bias_mean)
        log_sds = _numpy(self.weight_log_sd), _numpy(self.bias_log_sd)
        variance, bias_variance = (np.exp(2.0 * log_sd) for log_sd in log_sds)
        return Layer(self.name, mean, variance, bias_mean, bias_variance, self.convolution)


def pooled(layer: nn.Module, mean: Tensor, *variance: Tensor) -> tuple[Tensor, ...]:
    """The largest of each square of activations of a layer, and the variances at these places."""
    convolution: Convolution | None = getattr(layer, "convolution", None)
    if convolution is None or convolution.pool == 1:
        return mean, *variance
    largest, place = nn.functional.max_pool2d(mean, convolution.pool, return_indices=True)
    found = (v.flatten(2).gather(2, place.flatten(2)).view_as(largest) for v in variance)
    return largest, *found


class Stack(nn.Module):  # type: ignore[misc]
    """Linear layers with random weights, one activation in between."""

    def __init__(self, linears: Iterable[nn.Module], activation: str) -> None:
        super().__init__()
        self.linears = nn.ModuleList(linears)
        self.activation = activation

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One sample of the outputs, with other weights for every row, as in training."""
        for linear in self.linears[:-1]:
            x = pooled(linear, activate(linear(x, generator), self.activation))[0]
        return self.linears[-1](x, generator)


class BayesianNetwork(LayeredNetwork, Stack):
    """Layers with independent Normal weights, one activation in between; the last is connected.

    Every fused network is one, for any library that trained the silos' networks. Layers go from
    input to output. The default of ``head``, the meaning of the outputs, is logits of classes.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> rng = np.random.default_rng(0)
    >>> shapes = {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (3, 8), "fc2.bias": (3,)}
    >>> net = {key: (rng.normal(size=s), np.full(s, 0.1)) for key, s in shapes.items()}
    >>> network = kf.fuse({"a": net}).model()
    >>> network
    BayesianNetwork(4 -> 8 -> 3, relu)
    >>> x = rng.normal(size=(5, 4))
    >>> network.predict_proba(x).shape, network.predict_proba(x, how="monte-carlo").shape
    ((5, 3), (5, 3))
    >>> entropy = network.entropy(x)
    >>> bool(np.allclose(entropy.total, entropy.aleatoric + entropy.epistemic))
    True
    """

    def __init__(
        self, layers: Sequence[Layer], activation: str = "relu", head: Head | None = None
    ) -> None:
        super().__init__(map(BayesianLinear, layers), activation)
        self.head = head or Head()
        self.densities: ClassDensities | None = None  # of classes at sites, if they sent them

    @property
    def layers(self) -> tuple[Layer, ...]:  # type: ignore[override]
        """Means and variances of all layers, as arrays."""
        return tuple(linear.layer() for linear in self.linears)

    @property
    def n_in(self) -> int:
        """Number of inputs."""
        layer = self.linears[0]
        known = layer.convolution
        return int(layer.weight_mean.shape[1] if known is None else known.n_inputs)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def outputs(
        self, x: Any, n_samples: int = 100, random_state: int = 0, *, how: How = "moments"
    ) -> FloatArray:
        """Samples of the outputs (logits, or regression means), (n_samples, n, n_out).

        Inputs ``x`` are (n, n_in); equal random states give equal samples. ``"monte-carlo"``
        samples whole networks. ``"moments"``, which is much faster, propagates means and variances
        through the layers once, and samples the outputs from a Normal with these moments.
        """
        batches = self._batches(x, how, n_samples, random_state)
        return np.concatenate([_numpy(samples) for samples in batches], axis=1)

    def _batches(self, x: Any, how: str, n_samples: int, random_state: int) -> Iterator[Tensor]:
        """`outputs`, one batch of rows at a time."""
        if how not in get_args(How):
            raise KLFusionError(f"expected how to be one of {get_args(How)}, got {how!r}")
        x = check_inputs(x, self.n_in, columns=self.columns)
        check_samples(n_samples)
        like = self.linears[0].weight_mean
        for low in range(0, max(len(x), 1), _BATCH):
            rows = torch.as_tensor(x[low : low + _BATCH], dtype=like.dtype, device=like.device)
            # The same seed in every batch, so that a sample is one network for all rows.
            generator = torch.Generator(like.device).manual_seed(int(random_state))
            if how == "moments":
                samples = normal_samples(*self._output_moments(rows), n_samples, generator)
            else:
                samples = torch.stack([self._sampled(rows, generator) for _ in range(n_samples)])
            if self.densities is not None:
                own = x[low : low + _BATCH].astype(np.float64)
                samples = torch.as_tensor(self.densities.combined(own, _numpy(samples)))
            yield samples

    def _sampled(self, x: Tensor, generator: torch.Generator) -> Tensor:
        for linear in self.linears[:-1]:
            x = pooled(linear, activate(linear.sampled(x, generator), self.activation))[0]
        return self.linears[-1].sampled(x, generator)

    def _output_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (n, n_out) and covariance (n, n_out, n_out) of outputs; hidden units independent.

        This is exact for the first layer. Outputs share the last one, which makes them covary.
        """
        mean, variance = x, None
        for linear in self.linears[:-1]:
            before, spread = linear.linear(mean, variance)
            moments = activation_moments(before, spread, self.activation)
            mean, variance = (values.flatten(1) for values in pooled(linear, *moments))
        last = self.linears[-1]
        out, own = last.linear(mean, variance)
        shared = torch.einsum("nh,ah,bh->nab", variance, last.weight_mean, last.weight_mean)
        rest = own - torch.diagonal(shared, dim1=1, dim2=2)
        return out, shared + torch.diag_embed(rest.clamp_min(0.0))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def predict_proba(
        self, x: Any, n_samples: int = 100, random_state: int = 0, *, how: How = "moments"
    ) -> FloatArray:
        """Class probabilities (n, n_out): the softmax averaged over samples; see `outputs`."""
        self.head.require("classification", "predict_proba")
        batches = self._batches(x, how, n_samples, random_state)
        return np.concatenate([_numpy(d.double().softmax(-1).mean(0)) for d in batches])

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def entropy(
        self, x: Any, n_samples: int = 100, random_state: int = 0, *, how: How = "moments"
    ) -> Entropy:
        """Entropy of the predicted class of each row, and its two parts; see `outputs`."""
        self.head.require("classification", "entropy")
        batches = self._batches(x, how, n_samples, random_state)
        ps, entr = (samples.double().softmax(-1) for samples in batches), torch.special.entr
        parts = [(_numpy(entr(p.mean(0)).sum(-1)), _numpy(entr(p).sum(-1).mean(0))) for p in ps]
        total, aleatoric = map(np.concatenate, zip(*parts, strict=True))
        return Entropy(total, aleatoric, total - aleatoric)

    def predict(
        self, x: Any, n_samples: int = 100, random_state: int = 0, *, how: How = "moments"
    ) -> Any:
        """The most probable class of each row, (n,); the mean (n, n_out) for regression."""
        if self.head.kind == "regression":
            return self.predict_distribution(x, n_samples, random_state, how=how).mean
        p = self.predict_proba(x, n_samples, random_state, how=how)
        return self.head.labels(p.argmax(axis=1))

    def predict_distribution(
        self, x: Any, n_samples: int = 100, random_state: int = 0, *, how: How = "moments"
    ) -> Distribution:
        """Mean and variance of the target of each row (regression); see `outputs`."""
        self.head.require("regression", "predict_distribution")
        samples = self.outputs(x, n_samples, random_state, how=how)
        epistemic = samples.var(axis=0)
        return Distribution(samples.mean(axis=0), epistemic + self._noise(), epistemic)

    def log_likelihood(
        self, x: Any, y: Any, n_samples: int = 100, random_state: int = 0, *, how: How = "moments"
    ) -> FloatArray:
        """Log predictive probability of each row's label, or density of its target, (n,)."""
        if self.head.kind == "classification":
            p = self.predict_proba(x, n_samples, random_state, how=how)
            number = np.asarray(y)
            if self.head.classes is not None:
                position = {label: k for k, label in enumerate(self.head.classes)}
                number = np.array([position[label] for label in number.tolist()], dtype=np.intp)
            return np.asarray(np.log(np.maximum(p[np.arange(len(p)), number], _TINY)))
        samples, noise = self.outputs(x, n_samples, random_state, how=how), self._noise()
        if not (noise > 0).all():
            raise KLFusionError("expected a head with noise_variance > 0 for a log-likelihood")
        target = np.asarray(y, dtype=np.float64).reshape(samples.shape[1:])
        each = -0.5 * ((target - samples) ** 2 / noise + np.log(2.0 * np.pi * noise)).sum(axis=-1)
        return np.asarray(np.logaddexp.reduce(each, axis=0) - np.log(n_samples))

    def _noise(self) -> FloatArray:
        noise = self.head.noise_variance
        return np.zeros(1) if noise is None else np.asarray(noise)


def _parameter(values: FloatArray) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float32))


def _numpy(tensor: Tensor) -> FloatArray:
    return np.asarray(tensor.detach().cpu().double().numpy())
