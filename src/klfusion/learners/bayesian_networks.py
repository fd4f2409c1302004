"""Bayesian networks as estimators: Normal or horseshoe priors, a mean-field Gaussian posterior."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion._utils.checks import (
    check_flag,
    check_integer,
    column_names,
    is_integer,
    number,
    read_labels,
)
from klfusion.errors import KLFusionError
from klfusion.learners import _layers
from klfusion.learners._rows import numbered
from klfusion.networks.bayesian import BayesianNetwork, Distribution, Entropy
from klfusion.networks.densities import ClassDensities
from klfusion.networks.layer import Head, Layer, check_activation, check_inputs
from klfusion.posteriors.structure.convolution import Convolution, stacked
from klfusion.posteriors.structure.network import live_units, weights_by_unit


@dataclass(eq=False, repr=False)
class VariationalNetwork(BaseEstimator):  # type: ignore[misc]
    """A fully connected network with a mean-field Gaussian posterior of its weights.

    Its fields are the parameters that `MeanFieldBNN` documents.
    """

    hidden: Sequence[int] = (150,)
    _: KW_ONLY
    head: str = "classification"
    classes: Sequence[Any] | None = None
    activation: str = "relu"
    epochs: int = 25
    batch_size: int = 128
    learning_rate: float = 6e-3
    tempering: float = 1.0
    balanced: bool = True
    prior_sd: float = 1.0
    class_statistics: bool = False
    device: str = "cpu"
    random_state: int = 0
    progress: bool | None = None

    _annealed = 0.5  # share of the training over which the weight of the prior rises

    @abstractmethod
    def _hidden_layer(self, name: str, shape: _layers.Shape, rng: torch.Generator) -> Any:
        """A variational layer of hidden units."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on inputs (n, d) and labels (n,), or targets (n,) or (n, k) for regression."""
        self._check_settings()
        x = check_inputs(X, name="X")
        targets = self._read_targets(y, len(x))
        rng = torch.Generator(self.device).manual_seed(int(self.random_state))
        layers = self._new_layers(x.shape[1], rng)
        network = _layers.VariationalStack(layers, self.activation).to(self.device)
        log_noise = nn.Parameter(torch.zeros(targets.shape[1:], device=self.device))
        if self.head == "regression":
            network.log_noise = log_noise  # trained with the weights
        how = self.epochs, self.batch_size, self.learning_rate, self.tempering
        schedule = _layers.Schedule(*how, self._annealed, self.progress)
        data, loss = (self._tensor(x), targets), self._loss(log_noise)
        self.bounds_ = _layers.train(network, data, loss, schedule, rng)
        self.n_features_in_ = x.shape[1]
        self.network_ = self._finished([linear.layer() for linear in layers], log_noise)
        self.network_.columns = column_names(X)
        if self.class_statistics:
            weight, index = self.network_.layers[0].weight_mean, targets.cpu().numpy()
            self.network_.densities = ClassDensities.of_site(
                weight, x.astype(np.float64), index, len(self.class_counts_)
            )
        return self

    def predict_proba(self, X: Any, **how: Any) -> FloatArray:
        """Class probabilities (n, k); options are those of `BayesianNetwork.outputs`."""
        return np.asarray(self._network().predict_proba(X, **how))

    def predict(self, X: Any, **how: Any) -> Any:
        """The most probable label of each row, or the mean of its target."""
        predicted = self._network().predict(X, **how)
        one_target = self.head == "regression" and predicted.shape[1] == 1
        return predicted[:, 0] if one_target else predicted

    def predict_distribution(self, X: Any, **how: Any) -> Distribution:
        """Mean and variance of the targets (regression)."""
        return self._network().predict_distribution(X, **how)

    def entropy(self, X: Any, **how: Any) -> Entropy:
        """Entropy of the predicted label and its two parts, in nats."""
        return Entropy(*self._network().entropy(X, **how))

    def score(self, X: Any, y: ArrayLike) -> float:
        """Accuracy, or the coefficient of determination for regression."""
        given, predicted = np.asarray(y), self.predict(X)
        regression = self.head == "regression"
        return float(r2_score(given, predicted) if regression else np.mean(predicted == given))

    @property
    def live_units_(self) -> tuple[BoolArray, ...]:
        """Per hidden layer, which units pass on a signal."""
        before, *layers = self._network().layers
        found = []
        for after in layers:
            size = after.shape[1] // before.shape[0]
            weights = after.weight_mean, after.weight_variance
            found.append(live_units(*(weights_by_unit(values, size) for values in weights)))
            before = after
        return tuple(found)

    def _network(self) -> BayesianNetwork:
        check_is_fitted(self, "network_")
        return self.network_

    def _check_settings(self) -> None:
        sizes = list(self.hidden) if isinstance(self.hidden, Sequence) else []
        if not sizes or any(not isinstance(k, int | np.integer) or k < 1 for k in sizes):
            raise KLFusionError(f"expected hidden to be sizes >= 1 of layers, got {self.hidden!r}")
        check_activation(self.activation)
        Head(self.head)  # refuses an unknown kind
        for name in ("epochs", "batch_size"):
            check_integer(name, getattr(self, name))
        check_integer("random_state", self.random_state, least=0)
        for name in ("learning_rate", "tempering", "prior_sd"):
            number(getattr(self, name), name, above=0.0)
        for name in ("balanced", "class_statistics"):
            check_flag(name, getattr(self, name))
        if self.class_statistics and self.head == "regression":
            raise KLFusionError("expected class_statistics=False for a regression")

    def _read_targets(self, y: ArrayLike, n: int) -> Tensor:
        """Class indices, or standardised targets (n, k); sets ``class_counts_``."""
        regression = self.head == "regression"
        given = np.asarray(y) if regression else read_labels(y)
        if given.shape[:1] != (n,) or not (regression or given.ndim == 1):
            raise KLFusionError(f"expected {n} values of y, one per row of X, got {given.shape}")
        if regression:
            targets = check_inputs(given.reshape(n, -1), name="y")
            self._centre, self._scale = targets.mean(axis=0), targets.std(axis=0)
            self._scale[self._scale == 0] = 1.0
            self.class_counts_ = np.full(targets.shape[1], float(n))
            return self._tensor((targets - self._centre) / self._scale)
        self.classes_, index = numbered(given, self.classes)
        self.class_counts_ = np.bincount(index, minlength=len(self.classes_)).astype(np.float64)
        return torch.as_tensor(index, device=self.device)

    def _loss(self, log_noise: nn.Parameter) -> Any:
        if self.head == "regression":
            return lambda out, y: (
                (0.5 * (out - y) ** 2 * torch.exp(-2.0 * log_noise) + log_noise).sum(-1).mean()
            )
        with np.errstate(divide="ignore"):
            log_prior = np.log(self.class_counts_ / self.class_counts_.sum())
        if not self.balanced:  # classes without observations are excluded all the same
            log_prior = np.where(self.class_counts_ > 0, 0.0, -np.inf)
        offset = self._tensor(log_prior)
        return lambda out, y: nn.functional.cross_entropy(out + offset, y)

    def _new_layers(self, n_in: int, rng: torch.Generator) -> list[Any]:
        sizes = [n_in, *map(int, self.hidden), len(self.class_counts_)]
        *hidden, output = ((n_out, n_in) for n_in, n_out in pairwise(sizes))
        layers = [self._hidden_layer(f"hidden{i}", s, rng) for i, s in enumerate(hidden, start=1)]
        return [*layers, _layers.NormalLinear("output", output, self.prior_sd, rng)]

    def _finished(self, layers: list[Layer], log_noise: Tensor) -> BayesianNetwork:
        """The trained network with outputs in the units of the targets."""
        if self.head == "classification":
            head = Head(classes=tuple(self.classes_.tolist()))
        else:
            noise = np.exp(2.0 * log_noise.detach().cpu().double().numpy())
            head = Head("regression", noise_variance=noise * self._scale**2)
            last = layers[-1].scaled(self._scale)
            layers[-1] = replace(last, bias_mean=last.bias_mean + self._centre)
        network: BayesianNetwork = BayesianNetwork(layers, self.activation, head).to(self.device)
        return network

    def _tensor(self, values: FloatArray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=self.device)


@dataclass(eq=False, repr=False)
class MeanFieldBNN(VariationalNetwork):
    """A mean-field Gaussian network, by variational inference with PyTorch.

    Parameters
    ----------
    hidden : sequence of int
        Units of each fully connected hidden layer.
    head : {"classification", "regression"}
    classes : sequence, optional
        Labels of all outputs, for silos without observations of some; default: those in ``y``.
    activation : {"relu", "tanh", "sigmoid", "silu"}
    epochs, batch_size, learning_rate : optional
        Settings of Adam. The learning rate falls to zero like half a cosine. It is five times
        larger for log standard deviations than for means.
    tempering : float
        Weight of the prior. 1 gives the evidence lower bound; less gives a cold posterior, which
        fits better and has smaller variances.
    balanced : bool
        Learn logits for equally frequent classes, which suits fusion: in training, the log
        frequencies of the silo's classes are added to the logits.
    prior_sd : float
        Standard deviation of the Normal prior of weights and biases.
    class_statistics : bool
        Keep and send where the inputs of each class lie, for silos that have few classes: moments
        by class of the first hidden layer's inputs to units, and the covariance of all inputs.
        Classes need many more rows at a site than the layer has units.
    filters : sequence of int
        Filters of convolutional layers before the fully connected ones; default: none.
    kernel, pool : int
        Sides of kernels, and of the squares whose maximum is passed on, in these layers.
    image : (channels, height, width), optional
        Of the rows of ``X``; default: squares with one channel.
    device : str
        ``"cpu"``, ``"cuda"``, ...
    random_state : int
        Equal states give equal networks.
    progress : bool, optional
        Show a progress bar; default: only on a terminal.

    Attributes
    ----------
    network_ : BayesianNetwork
        The posterior as a PyTorch module.
    classes_, class_counts_ : arrays
        Label of each output, and its number of observations (regression: all).
    live_units_ : tuple of bool arrays
        Per hidden layer, which units pass on a signal.
    bounds_ : list of float
        The tempered evidence lower bound, in nats per observation, after each epoch.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from klfusion.learners import MeanFieldBNN
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = (x[:, 0] > x[:, 1]).astype(int)
    >>> net = MeanFieldBNN(hidden=(10,), epochs=30, batch_size=30, random_state=0).fit(x, y)
    >>> net.score(x, y) > 0.9
    True
    >>> kf.fuse({"a": net}).model().predict_proba(x).shape
    (300, 2)
    """

    filters: Sequence[int] = ()
    kernel: int = 5
    pool: int = 2
    image: Sequence[int] | None = None

    def _new_layers(self, n_in: int, rng: torch.Generator) -> list[Any]:
        layers: list[_layers.NormalLinear] = []
        for geometry, filters in zip(self._geometry(n_in), self.filters, strict=True):
            name, shape = f"filters{len(layers) + 1}", (filters, geometry.channels * self.kernel**2)
            layers.append(_layers.NormalLinear(name, shape, self.prior_sd, rng, geometry))
            n_in = filters * math.prod(geometry.size)
        return [*layers, *super()._new_layers(n_in, rng)]

    def _geometry(self, n_in: int) -> list[Convolution]:
        """The convolutional layers; images are square by default, with one channel."""
        if not isinstance(self.filters, Sequence):
            raise KLFusionError(f"expected filters to be a sequence, got {self.filters!r}")
        if not self.filters:
            return []
        side = math.isqrt(n_in)
        image = tuple(self.image or (1, side, side))
        if not (len(image) == 3 and all(map(is_integer, image)) and math.prod(image) == n_in):
            expected = f"expected image= (channels, height, width) of {n_in} inputs"
            raise KLFusionError(f"{expected}, got {self.image}")
        if self.class_statistics:
            raise KLFusionError("expected class_statistics=False for convolutional networks")
        for name, values in (("filters", self.filters), ("kernel", [self.kernel])):
            for value in values:
                check_integer(name, value)
        check_integer("pool", self.pool)
        n = len(self.filters)
        return stacked(image, self.filters, [self.kernel] * n, [self.pool] * n)

    def _hidden_layer(self, name: str, shape: _layers.Shape, rng: torch.Generator) -> Any:
        return _layers.NormalLinear(name, shape, self.prior_sd, rng)


@dataclass(eq=False, repr=False)
class HorseshoeBNN(VariationalNetwork):
    """A Bayesian network whose hidden units have regularised horseshoe priors (appendix D).

    The prior switches off units that the data do not need: all their incoming weights and the
    bias shrink to zero. Inference is variational in the non-centred parametrisation. The scales
    are then set to their expected values, which leaves independent Normal weights.

    Parameters
    ----------
    hidden, head, classes, activation, epochs, batch_size, learning_rate, tempering, balanced
    class_statistics
        As for `MeanFieldBNN`.
    unit_scale, layer_scale : float
        Scales of the half-Cauchy priors of the scales of units and layers.
    slab : (float, float)
        Shape and rate of the inverse Gamma prior of the slab's variance, which bounds the weights
        of live units.
    prior_sd : float
        Standard deviation of the Normal prior of the output layer.
    device, random_state, progress
        As for `MeanFieldBNN`, and so are the attributes.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from klfusion.learners import HorseshoeBNN
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = (x[:, 0] > x[:, 1]).astype(int)
    >>> net = HorseshoeBNN(hidden=(10,), epochs=30, batch_size=30, random_state=0).fit(x, y)
    >>> net.score(x, y) > 0.9
    True
    >>> int(net.live_units_[0].sum()) < 10
    True
    >>> kf.fuse({"a": net}).model().predict_proba(x).shape
    (300, 2)
    """

    learning_rate: float = 2e-2
    unit_scale: float = 1.0
    layer_scale: float = 0.1
    slab: tuple[float, float] = (2.0, 6.0)

    _annealed = 0.9  # slow, because a unit that is switched off early stays off

    def _hidden_layer(self, name: str, shape: _layers.Shape, rng: torch.Generator) -> Any:
        scales = (self.unit_scale, self.layer_scale)
        return _layers.HorseshoeLinear(name, shape, scales, self.slab, rng)
