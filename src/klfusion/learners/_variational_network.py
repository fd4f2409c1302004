"""The part of Bayesian networks that does not depend on the prior, as an estimator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion._utils.checks import check_integer
from klfusion.errors import KLFusionError
from klfusion.learners._input import number
from klfusion.learners._layers import NormalLinear
from klfusion.learners._training import Schedule, VariationalStack, train
from klfusion.networks.bayesian import BayesianNetwork, Distribution, Entropy
from klfusion.networks.layer import Head, Layer, check_activation, check_inputs
from klfusion.posteriors.structure.network import live_units


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
    device: str = "cpu"
    random_state: int = 0
    progress: bool | None = None

    _annealed = 0.5  # share of the training over which the weight of the prior rises

    @abstractmethod
    def _hidden_layer(self, name: str, n_in: int, n_out: int, generator: torch.Generator) -> Any:
        """A variational layer of ``n_out`` hidden units."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on inputs (n, d) and labels (n,), or targets (n,) or (n, k) for regression."""
        self._check_settings()
        x = check_inputs(X, name="X")
        targets = self._read_targets(y, len(x))
        generator = torch.Generator(self.device).manual_seed(int(self.random_state))
        layers = self._new_layers(x.shape[1], generator)
        network = VariationalStack(layers, self.activation).to(self.device)
        log_noise = nn.Parameter(torch.zeros(targets.shape[1:], device=self.device))
        schedule = Schedule(
            self.epochs, self.batch_size, self.learning_rate, self.tempering, self._annealed
        )
        extra = [log_noise] if self.head == "regression" else []
        loss, inputs = self._loss(log_noise), self._tensor(x)
        self.bounds_ = train(
            network, inputs, targets, loss, extra, schedule, generator, self.progress
        )
        self.n_features_in_ = x.shape[1]
        self.network_ = self._finished([linear.layer() for linear in layers], log_noise)
        return self

    # Predicting -------------------------------------------------------------------------------

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
        entropy: Entropy = self._network().entropy(X, **how)
        return entropy

    def score(self, X: Any, y: ArrayLike) -> float:
        """Accuracy, or the coefficient of determination for regression."""
        predicted = self.predict(X)
        if self.head == "regression":
            return float(r2_score(np.asarray(y), predicted))
        return float(np.mean(predicted == np.asarray(y)))

    @property
    def live_units_(self) -> tuple[BoolArray, ...]:
        """Per hidden layer, which units pass on a signal."""
        layers = self._network().layers
        return tuple(live_units(after.weight_mean, after.weight_variance) for after in layers[1:])

    def _network(self) -> BayesianNetwork:
        check_is_fitted(self, "network_")
        return self.network_

    # Training ---------------------------------------------------------------------------------

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

    def _read_targets(self, y: ArrayLike, n: int) -> Tensor:
        """Class indices, or standardised targets (n, k); sets ``class_counts_``."""
        given = np.asarray(y)
        if len(given) != n:
            raise KLFusionError(f"expected {n} values of y, one per row of X, got {len(given)}")
        if self.head == "regression":
            targets = check_inputs(given.reshape(n, -1), name="y")
            self._centre, self._scale = targets.mean(axis=0), targets.std(axis=0)
            self._scale[self._scale == 0] = 1.0
            self.class_counts_ = np.full(targets.shape[1], float(n))
            return self._tensor((targets - self._centre) / self._scale)
        seen = np.unique(given)
        self.classes_ = seen if self.classes is None else np.asarray(self.classes)
        unknown = np.setdiff1d(seen, self.classes_)
        if len(unknown):
            raise KLFusionError(
                f"expected labels among the classes {self.classes_.tolist()}, "
                f"got {unknown.tolist()} as well"
            )
        if len(seen) < 2:
            raise KLFusionError(
                f"expected observations of at least two classes, got class {seen.tolist()[0]!r} "
                "alone, from which nothing can be learned"
            )
        position = {label: k for k, label in enumerate(self.classes_.tolist())}
        index = np.array([position[label] for label in given.tolist()])
        self.class_counts_ = np.bincount(index, minlength=len(position)).astype(np.float64)
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

    def _new_layers(self, n_in: int, generator: torch.Generator) -> list[Any]:
        sizes = [n_in, *(int(k) for k in self.hidden)]
        layers = [
            self._hidden_layer(f"hidden{i + 1}", sizes[i], sizes[i + 1], generator)
            for i in range(len(self.hidden))
        ]
        n_out = len(self.class_counts_)
        return [*layers, NormalLinear("output", sizes[-1], n_out, self.prior_sd, generator)]

    def _finished(self, layers: list[Layer], log_noise: Tensor) -> BayesianNetwork:
        """The trained network with outputs in the units of the targets."""
        if self.head == "classification":
            head = Head(classes=tuple(self.classes_.tolist()))
        else:
            noise = np.exp(2.0 * log_noise.detach().cpu().double().numpy())
            head = Head("regression", noise_variance=noise * self._scale**2)
            last = layers[-1].scaled(self._scale)
            layers[-1] = replace(last, bias_mean=last.bias_mean + self._centre)
        network = BayesianNetwork(layers, self.activation, head)
        network.to(self.device)
        return network

    def _tensor(self, values: FloatArray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=self.device)
