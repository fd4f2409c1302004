"""A network whose weights are independent Normals, as a PyTorch module that predicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from klfusion._utils.arrays import FloatArray
from klfusion.errors import KLFusionError
from klfusion.networks import moments
from klfusion.networks.layer import (
    Head,
    Layer,
    as_mapping,
    check_inputs,
    check_samples,
    described,
)

How = Literal["monte-carlo", "moments"]
_BATCH = 2_000  # rows predicted at once
_TINY = 1e-30


class Entropy(NamedTuple):
    """Entropy of the prediction for each row, in nats, each (n,).

    ``total = aleatoric + epistemic``: what a network drawn from the posterior leaves open, and what
    not knowing the weights adds (the mutual information of label and weights).
    """

    total: FloatArray
    aleatoric: FloatArray
    epistemic: FloatArray


class Distribution(NamedTuple):
    """Prediction of a regression: ``variance = noise + epistemic``, each (n, n_out)."""

    mean: FloatArray
    variance: FloatArray
    epistemic: FloatArray


class BayesianLinear(nn.Module):  # type: ignore[misc]
    """A fully connected layer with independent Normal weights and biases."""

    def __init__(self, layer: Layer, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.name = layer.name
        self.weight_mean = nn.Parameter(torch.tensor(layer.weight_mean, dtype=dtype))
        self.weight_log_sd = nn.Parameter(_log_sd(layer.weight_variance, dtype))
        self.bias_mean = nn.Parameter(torch.tensor(layer.bias_mean, dtype=dtype))
        self.bias_log_sd = nn.Parameter(_log_sd(layer.bias_variance, dtype))

    def linear(self, mean: Tensor, variance: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and variance of the outputs for independent inputs with these moments."""
        weight_variance = torch.exp(2.0 * self.weight_log_sd)
        out = nn.functional.linear(mean, self.weight_mean, self.bias_mean)
        spread = mean**2 if variance is None else mean**2 + variance
        total = nn.functional.linear(spread, weight_variance, torch.exp(2.0 * self.bias_log_sd))
        if variance is not None:
            total = total + nn.functional.linear(variance, self.weight_mean**2)
        return out, total

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Outputs with weights drawn anew for every row (local reparametrisation)."""
        mean, variance = self.linear(x)
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return mean + torch.sqrt(variance + _TINY) * noise

    def drawn(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Outputs with one draw of the weights for all rows."""
        return nn.functional.linear(
            x,
            _draw(self.weight_mean, self.weight_log_sd, generator),
            _draw(self.bias_mean, self.bias_log_sd, generator),
        )

    def layer(self) -> Layer:
        """Its means and variances as arrays."""
        return Layer(
            self.name,
            _numpy(self.weight_mean),
            np.exp(2.0 * _numpy(self.weight_log_sd)),
            _numpy(self.bias_mean),
            np.exp(2.0 * _numpy(self.bias_log_sd)),
        )


class BayesianNetwork(nn.Module):  # type: ignore[misc]
    """Fully connected layers with independent Normal weights, one activation in between.

    Every fused network, whatever its silos were trained with, is one of these.

    Parameters
    ----------
    layers : sequence of Layer
        From input to output.
    activation : {"relu", "tanh", "sigmoid", "silu"}
        After every layer but the last.
    head : Head
        What the outputs mean: logits of classes, or means of Normal targets.
    dtype : torch.dtype

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
        self,
        layers: list[Layer] | tuple[Layer, ...],
        activation: str = "relu",
        head: Head | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.linears = nn.ModuleList(BayesianLinear(layer, dtype) for layer in layers)
        self.activation = activation
        self.head = head or Head()

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Means and variances of all layers, as arrays."""
        return tuple(linear.layer() for linear in self.linears)

    @property
    def n_in(self) -> int:
        """Number of inputs."""
        return int(self.linears[0].weight_mean.shape[1])

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Outputs of one draw, the weights drawn anew for every row: what training needs."""
        for linear in self.linears[:-1]:
            x = moments.activate(linear(x, generator), self.activation)
        return self.linears[-1](x, generator)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def outputs(
        self, x: Any, n_samples: int = 100, random_state: int = 0, *, how: How = "moments"
    ) -> FloatArray:
        """Draws of the outputs (logits, or regression means), (n_samples, n, n_out).

        Parameters
        ----------
        x : array or tensor of shape (n, n_in)
        n_samples : int
        random_state : int
            Equal states give equal draws.
        how : {"moments", "monte-carlo"}
            ``"monte-carlo"`` draws whole networks. ``"moments"`` carries means and variances
            through the layers once, and draws from the Normal this gives for the outputs: much
            faster.
        """
        return np.concatenate(
            [_numpy(draws) for draws in self._batches(x, how, n_samples, random_state)], axis=1
        )

    def _batches(self, x: Any, how: str, n_samples: int, random_state: int) -> Iterator[Tensor]:
        """`outputs` of some rows after others."""
        if how not in get_args(How):
            raise KLFusionError(f"expected how to be one of {get_args(How)}, got {how!r}")
        x = check_inputs(x, self.n_in)
        check_samples(n_samples)
        like = self.linears[0].weight_mean
        for low in range(0, max(len(x), 1), _BATCH):
            rows = torch.as_tensor(x[low : low + _BATCH], dtype=like.dtype, device=like.device)
            # Seeded anew, so that a draw is the same network for every batch of rows.
            generator = torch.Generator(like.device).manual_seed(int(random_state))
            if how == "moments":
                yield moments.normal_draws(*self._output_moments(rows), n_samples, generator)
            else:
                yield torch.stack([self._drawn(rows, generator) for _ in range(n_samples)])

    def _drawn(self, x: Tensor, generator: torch.Generator) -> Tensor:
        for linear in self.linears[:-1]:
            x = moments.activate(linear.drawn(x, generator), self.activation)
        return self.linears[-1].drawn(x, generator)

    def _output_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (n, n_out) and covariance (n, n_out, n_out) of the outputs.

        Units of one layer are taken to be independent, which they are after the first; the outputs
        are not, for they share the last hidden layer.
        """
        mean, variance = x, None
        for linear in self.linears[:-1]:
            before, spread = linear.linear(mean, variance)
            mean, variance = moments.activation_moments(before, spread, self.activation)
        last = self.linears[-1]
        out, own = last.linear(mean, variance)
        shared = torch.einsum("nh,ah,bh->nab", variance, last.weight_mean, last.weight_mean)
        alone = own - torch.diagonal(shared, dim1=1, dim2=2)
        return out, shared + torch.diag_embed(alone.clamp_min(0.0))

    # Classification -----------------------------------------------------------------------

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def predict_proba(
        self, x: Any, n_samples: int = 100, random_state: int = 0, *, how: How = "moments"
    ) -> FloatArray:
        """Class probabilities (n, n_out): the softmax averaged over draws; see `outputs`."""
        self.head.require("classification", "predict_proba")
        batches = self._batches(x, how, n_samples, random_state)
        return np.concatenate([_numpy(d.double().softmax(-1).mean(0)) for d in batches])

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def entropy(
        self, x: Any, n_samples: int = 100, random_state: int = 0, *, how: How = "moments"
    ) -> Entropy:
        """Entropy of the predicted class of each row, and its two parts; see `outputs`."""
        self.head.require("classification", "entropy")
        total, aleatoric = [], []
        for draws in self._batches(x, how, n_samples, random_state):
            p = draws.double().softmax(-1)
            total.append(_numpy(torch.special.entr(p.mean(0)).sum(-1)))
            aleatoric.append(_numpy(torch.special.entr(p).sum(-1).mean(0)))
        whole, part = np.concatenate(total), np.concatenate(aleatoric)
        return Entropy(whole, part, whole - part)

    # Either head --------------------------------------------------------------------------

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
        draws = self.outputs(x, n_samples, random_state, how=how)
        epistemic = draws.var(axis=0)
        return Distribution(draws.mean(axis=0), epistemic + self._noise(), epistemic)

    def log_likelihood(
        self,
        x: Any,
        y: ArrayLike,
        n_samples: int = 100,
        random_state: int = 0,
        *,
        how: How = "moments",
    ) -> FloatArray:
        """Log of the predictive probability (or density) of each row's label (or target), (n,)."""
        if self.head.kind == "classification":
            p = self.predict_proba(x, n_samples, random_state, how=how)
            number = np.asarray(y)
            if self.head.classes is not None:
                position = {label: k for k, label in enumerate(self.head.classes)}
                number = np.array([position[label] for label in number.tolist()], dtype=np.intp)
            return np.asarray(np.log(np.maximum(p[np.arange(len(p)), number], _TINY)))
        draws, noise = self.outputs(x, n_samples, random_state, how=how), self._noise()
        if not (noise > 0).all():
            raise KLFusionError("expected a head with noise_variance > 0 for a log-likelihood")
        target = np.asarray(y, dtype=np.float64).reshape(draws.shape[1:])
        each = -0.5 * ((target - draws) ** 2 / noise + np.log(2.0 * np.pi * noise)).sum(axis=-1)
        return np.asarray(np.logaddexp.reduce(each, axis=0) - np.log(n_samples))

    def _noise(self) -> FloatArray:
        noise = self.head.noise_variance
        return np.zeros(1) if noise is None else np.asarray(noise)

    def mapping(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Means and variances by name, as a state dict has them: ``kf.extract`` reads it again."""
        return as_mapping(self.layers)

    def __repr__(self) -> str:
        return described("BayesianNetwork", self.layers, self.activation)


def _draw(mean: Tensor, log_sd: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
    return mean + torch.exp(log_sd) * noise


def _log_sd(variance: FloatArray, dtype: torch.dtype) -> Tensor:
    return torch.tensor(0.5 * np.log(variance), dtype=dtype)


def _numpy(tensor: Tensor) -> FloatArray:
    return np.asarray(tensor.detach().cpu().double().numpy())
