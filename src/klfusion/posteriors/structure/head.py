"""Classifiers on agreed features: statistics that all classes share.

``info`` has the names of the classes and the feature map. Arrays: ``gram``, the packed sum of outer
products of the features of all rows; ``probe``, the features of one agreed row; and of a calibrated
head ``calibration``, the coefficients of its softmax.
"""

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import IncompatibleSilosError
from klfusion.posteriors.structure.structure import Structure, agreed_info

KIND = "head"
GRAM, PROBE, CALIBRATION = "gram", "probe", "calibration"
_ROUNDING = 1e-3  # relative; features in float32 differ between processors by less


def fuse(
    silos: Sequence[Structure], labels: Sequence[IntArray | FloatArray], n_components: int
) -> Structure:
    """Add the sums of outer products; refuse silos whose features differ on the agreed row."""
    del labels, n_components  # classes share these statistics
    info = agreed_info(silos, "class", "features", "map", "n_inputs", "type")
    probe = silos[0].arrays[PROBE]
    for other in silos[1:]:
        check_probe(probe, other.arrays[PROBE])
    gram = silos[0].arrays[GRAM].copy()
    for other in silos[1:]:
        gram += other.arrays[GRAM]
    return Structure(KIND, {GRAM: gram, PROBE: probe}, info)


def check_probe(expected: FloatArray, found: FloatArray) -> None:
    """Refuse another feature map: one whose features of the agreed row differ."""
    least = _ROUNDING * np.abs(expected).max(initial=0.0)
    if found.shape != expected.shape or not np.allclose(found, expected, _ROUNDING, least):
        raise IncompatibleSilosError(
            "expected the same feature map, got different features of one agreed row"
        )
