"""Images of digits for the network experiment, and their split over silos."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn, idctn
from sklearn.datasets import load_digits

from experiments import data

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
_N_TEST = 600  # of the small digits


@dataclass(frozen=True, eq=False)
class Images:
    """Images (n, pixels) and digits; ``fonts`` are outside the training distribution.

    Values are pixels in [0, 1], or coefficients of cosines if ``basis`` is ``"cosines"``.
    """

    train: FloatArray
    train_digits: IntArray
    test: FloatArray
    test_digits: IntArray
    fonts: FloatArray | None = None
    font_digits: IntArray | None = None
    basis: str = "pixels"

    def in_cosines(self) -> Images:
        """Coefficients of cosines: an orthonormal transform that all silos share.

        Neighbouring pixels correlate, and so do the posteriors of their weights. Coefficients of
        cosines hardly do. The transform leaves Normal priors of equal variances unchanged.
        """
        fonts = None if self.fonts is None else _cosines(self.fonts)
        return replace(
            self, train=_cosines(self.train), test=_cosines(self.test), fonts=fonts, basis="cosines"
        )

    def pixels(self, x: FloatArray) -> FloatArray:
        """Images in pixels."""
        return x if self.basis == "pixels" else _cosines(x, back=True)


def load(name: str, data_dir: Path | None) -> Images:
    """``"mnist"`` with legible font digits, ``"fashion_mnist"``, or scikit-learn's ``"digits"``."""
    if name == "digits":
        x, y = load_digits(return_X_y=True)
        x, y = (x / 16.0).astype(np.float32), y.astype(np.int64)
        return Images(x[:-_N_TEST], y[:-_N_TEST], x[-_N_TEST:], y[-_N_TEST:])
    parts = [
        _idx(data.find(f"{name}/{part}-{kind}-ubyte.gz", data_dir))
        for part in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    ]
    images = Images(
        _pixels(parts[0]),
        parts[1].astype(np.int64),
        _pixels(parts[2]),
        parts[3].astype(np.int64),
    )
    if name != "mnist":
        return images
    with np.load(data.find("font_digits/font_digits_28x28.npz", data_dir)) as found:
        legible = ~found["is_aenigma"] & (found["ncm_correct"] >= 9)
        fonts = found["X"][legible]
    digits = np.tile(np.arange(10), len(fonts))
    return replace(images, fonts=_pixels(fonts.reshape(-1, 28, 28)), font_digits=digits)


def deal(
    digits: IntArray, seed: int, n_silos: int = 5, concentration: float = 0.8
) -> list[IntArray]:
    """Rows per silo; the shares of each class are symmetric Dirichlet (section 5.4)."""
    rng = np.random.default_rng(seed)
    silos: list[list[IntArray]] = [[] for _ in range(n_silos)]
    for k in np.unique(digits):
        rows = rng.permutation(np.flatnonzero(digits == k))
        shares = rng.dirichlet(np.full(n_silos, concentration))
        ends = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for silo, part in zip(silos, np.split(rows, ends), strict=True):
            silo.append(part)
    return [np.sort(np.concatenate(silo)) for silo in silos]


def _idx(path: Path) -> NDArray[np.uint8]:
    """Read an IDX file of bytes; the fourth byte is the number of dimensions."""
    content = gzip.decompress(path.read_bytes())
    n_dims = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=n_dims, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * n_dims).reshape(shape)


def _cosines(x: FloatArray, *, back: bool = False) -> FloatArray:
    side = int(np.sqrt(x.shape[1]))
    turned = (idctn if back else dctn)(x.reshape(-1, side, side), axes=(1, 2), norm="ortho")
    return np.asarray(turned.reshape(x.shape), dtype=np.float32)


def _pixels(images: NDArray[np.uint8]) -> FloatArray:
    return (images.reshape(len(images), -1) / 255.0).astype(np.float32)
