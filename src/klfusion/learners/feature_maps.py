"""Feature maps that need no data: sites agree on the settings and the seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.ndimage import gaussian_filter
from sklearn.base import BaseEstimator, TransformerMixin

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import check_integer, is_integer, number
from klfusion._utils.text import brief
from klfusion.errors import KLFusionError

_BATCH = 250  # images per batch: the windows of one fit into the cache
_MARGIN = 4  # standard deviations of smoothing, from whose inside filters are cut
_MIDDLE = 5  # sides of filters differ from this by padding, so that all have the same positions
# Sides of a filter per standard deviation of its smoothing. From 5 to 10 heads predict about as
# well: `python -m experiments head_choices`, which has other sizes of filters, too.
_SMOOTHNESS = 7.0


class _AgreedFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer without a state."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Nothing is learned."""
        del X, y
        return self


def _agreed(seed: Any) -> np.random.Generator:
    """Random numbers that are the same in every call and at every site."""
    check_integer("random_state", seed, least=0)
    return np.random.default_rng(seed)


def _numbers(X: Any, dtype: Any) -> Any:
    """An array of numbers."""
    try:
        return np.asarray(X, dtype=dtype)
    except (TypeError, ValueError):
        raise KLFusionError(f"expected rows of numbers, got {brief(X)}") from None


@dataclass(eq=False, repr=False)
class FourierFeatures(_AgreedFeatures):
    """Random Fourier features of a Gaussian kernel ``exp(-|a - b|^2 / (2 length_scale^2))``.

    Parameters
    ----------
    n_features : int
    length_scale : float
        In the units of the inputs.
    random_state : int
        Sites agree on it.

    Examples
    --------
    >>> import numpy as np
    >>> from klfusion.learners import FourierFeatures
    >>> FourierFeatures(100, length_scale=2.0).transform(np.zeros((3, 5))).shape
    (3, 100)
    """

    n_features: int = 1000
    _: KW_ONLY
    length_scale: float = 1.0
    random_state: int = 0

    def transform(self, X: Any) -> FloatArray:
        """Features (n, n_features) of rows (n, d)."""
        check_integer("n_features", self.n_features)
        scale = number(self.length_scale, "length_scale", above=0.0)
        x, rng = _numbers(X, np.float64), _agreed(self.random_state)
        if x.ndim != 2:
            raise KLFusionError(f"expected rows (n, d), got shape {x.shape}")
        frequencies = rng.normal(size=(x.shape[1], self.n_features)) / scale
        phase = rng.uniform(0.0, 2.0 * np.pi, size=self.n_features)
        return np.asarray(np.sqrt(2.0 / self.n_features) * np.cos(x @ frequencies + phase))


@dataclass(eq=False, repr=False)
class ConvolutionalFeatures(_AgreedFeatures):
    """Responses of random smooth filters of several sizes, rectified and averaged over cells.

    The filters are Normal noise, smoothed in proportion to their size, with mean zero and norm one.
    There are ``len(sides) * n_filters * cells**2`` features.

    Parameters
    ----------
    n_filters : int
        Of each size.
    sides : sequence of odd int
        Sizes of the filters, in pixels.
    stride : int
        Pixels between positions.
    cells : int
        Responses are averaged over a grid of ``cells`` by ``cells``.
    random_state : int
        Sites agree on it.

    Examples
    --------
    >>> import numpy as np
    >>> from klfusion.learners import ConvolutionalFeatures
    >>> images = np.random.default_rng(0).uniform(size=(3, 28 * 28))
    >>> ConvolutionalFeatures(10).transform(images).shape
    (3, 960)
    """

    n_filters: int = 22
    _: KW_ONLY
    sides: Sequence[int] = (5, 7, 9, 11, 13, 15)
    stride: int = 2
    cells: int = 4
    random_state: int = 0

    def transform(self, X: Any) -> FloatArray:
        """Features of square images (n, side * side), or images (n, height, width)."""
        images, banks = self._images(X), self._banks()
        batches = range(0, len(images), _BATCH)
        found = [self._batch(images[low : low + _BATCH], banks) for low in batches]
        return np.concatenate(found).astype(np.float64)

    def _images(self, X: Any) -> Any:
        for name in ("n_filters", "stride", "cells"):
            check_integer(name, getattr(self, name))
        sides = list(self.sides) if isinstance(self.sides, Sequence) else []
        if not sides or any(not is_integer(s) or s < 3 or s % 2 == 0 for s in sides):
            raise KLFusionError(f"expected sides to be odd numbers >= 3, got {self.sides!r}")
        x = _numbers(X, np.float32)
        side = round(x.shape[1] ** 0.5) if x.ndim == 2 else 0
        if x.ndim == 2 and side * side == x.shape[1]:
            x = x.reshape(-1, side, side)
        least = (self.cells - 1) * self.stride + _MIDDLE
        if x.ndim != 3 or min(x.shape[1:]) < least:
            raise KLFusionError(
                f"expected images (n, height, width) or square ones in rows, of {least} pixels at "
                f"least for these cells, got shape {np.shape(X)}"
            )
        return x

    def _banks(self) -> list[Any]:
        """Filters (n_filters, side, side) of each size."""
        rng, banks = _agreed(self.random_state), []
        for side in self.sides:
            width = side / _SMOOTHNESS
            edge = int(np.ceil(_MARGIN * width))
            noise = rng.normal(size=(self.n_filters, side + 2 * edge, side + 2 * edge))
            smooth = gaussian_filter(noise, (0.0, width, width))[:, edge:-edge, edge:-edge]
            taper = np.sqrt(np.hanning(side + 2)[1:-1])
            smooth = smooth * np.outer(taper, taper)
            smooth -= smooth.mean(axis=(1, 2), keepdims=True)
            smooth /= np.linalg.norm(smooth, axis=(1, 2), keepdims=True)
            banks.append(smooth.astype(np.float32))
        return banks

    def _batch(self, images: Any, banks: list[Any]) -> Any:
        out = []
        for bank in banks:
            n_filters, side, _ = bank.shape
            pad = (side - _MIDDLE) // 2
            inside = slice(max(-pad, 0), -max(-pad, 0) or None)
            grown = np.pad(images[:, inside, inside], [(0, 0), *[(max(pad, 0),) * 2] * 2])
            windows = sliding_window_view(grown, (side, side), axis=(1, 2))
            windows = windows[:, :: self.stride, :: self.stride]
            shape = windows.shape[:3]
            response = windows.reshape(-1, side * side) @ bank.reshape(n_filters, -1).T
            np.maximum(response, 0.0, out=response)
            pooled = response.reshape(*shape, n_filters)
            for axis in (1, 2):
                pooled = self._averaged(pooled, axis)
            out.append(pooled.reshape(len(images), -1))
        return np.concatenate(out, axis=1)

    def _averaged(self, values: Any, axis: int) -> Any:
        """Averages over nearly equal parts of an axis."""
        edges = np.linspace(0, values.shape[axis], self.cells + 1).round().astype(np.intp)
        shape = [1] * values.ndim
        shape[axis] = self.cells
        sums = np.add.reduceat(values, edges[:-1], axis=axis)
        return sums / np.diff(edges).astype(np.float32).reshape(shape)


MAPS = {kind.__name__: kind for kind in (ConvolutionalFeatures, FourierFeatures)}
