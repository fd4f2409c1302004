"""The geometry of convolutional layers: image, kernel and pooling of each, from input on."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from klfusion._utils.checks import is_integer
from klfusion.errors import KLFusionError

# Key in `info`: height, width, kernel and pool per layer. Channels are those of the weights.
CONVOLUTIONS = "convolutions"


class Convolution(NamedTuple):
    """A layer of square kernels without padding, then maxima of squares; both as in PyTorch.

    A filter is a unit: a row of the weights (filters, channels * kernel * kernel).
    """

    channels: int  # of the image that enters the layer
    height: int
    width: int
    kernel: int
    pool: int = 1  # side of the squares whose maximum is passed on

    @property
    def n_inputs(self) -> int:
        """Numbers that enter the layer."""
        return self.channels * self.height * self.width

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of what leaves the layer."""
        height, width = (side - self.kernel + 1 for side in (self.height, self.width))
        return height // self.pool, width // self.pool


def stacked(
    image: Sequence[int], filters: Sequence[int], kernels: Sequence[int], pools: Sequence[int]
) -> list[Convolution]:
    """Layers of so many filters each, for images (channels, height, width)."""
    out: list[Convolution] = []
    channels, height, width = image
    for n, kernel, pool in zip((channels, *filters), kernels, pools, strict=False):
        one = Convolution(n, height, width, kernel, pool)
        if one.kernel < 1 or one.pool < 1 or min(one.size) < 1:
            expected = "expected kernels and pools >= 1 that fit into images"
            raise KLFusionError(f"{expected} of {one.height} x {one.width}, got {kernel}, {pool}")
        out.append(one)
        height, width = one.size
    return out


def blocks(info: Mapping[str, Any], n_layers: int) -> list[int]:
    """Per layer, how many weights each unit of the layer before has to a unit.

    A filter has ``kernel * kernel`` weights to a filter of the next layer. To a unit of a fully
    connected layer it has one for each of its outputs.
    """
    layers = [Convolution(1, *one) for one in info.get(CONVOLUTIONS) or ()]
    out = [one.kernel**2 for one in layers]
    if layers:
        height, width = layers[-1].size
        out.append(height * width)
    return out + [1] * (n_layers - len(out))


def is_geometry(value: Any, n_layers: int) -> bool:
    """Whether an entry of ``info`` is None or describes layers before a fully connected one."""
    if value is None:
        return True
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= n_layers - 2:
        return False
    for one in value:
        if not isinstance(one, list | tuple) or len(one) != 4:
            return False
        if not all(is_integer(v) and v >= 1 for v in one) or min(Convolution(1, *one).size) < 1:
            return False
    return True
