"""Classifiers on agreed features: statistics that all classes share.

``info`` has the names of the classes and the feature map. Arrays: ``rows``, how many there are;
``mean``, of their features; ``scatter``, the packed sum of outer products of differences from it;
``probe``, the features of one agreed row. A calibrated head has ``calibration``, the coefficients
of its softmax. Sums of squares about zero would lose the digits of columns whose mean is large for
their deviation.
"""

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.families.triangles import pack
from klfusion.posteriors.structure.structure import Structure, agreed_info

KIND = "head"
ROWS, MEAN, SCATTER = "rows", "mean", "scatter"
PROBE, CALIBRATION = "probe", "calibration"
_ROUNDING = 1e-3  # relative; features in float32 differ between processors by less


def fuse(
    silos: Sequence[Structure], labels: Sequence[IntArray | FloatArray], n_components: int
) -> Structure:
    """Merge the scatters of silos of one feature map."""
    del labels, n_components  # classes share these statistics
    info = agreed_info(silos, "class", "features")
    probe = silos[0].arrays[PROBE]
    rows = np.array([float(silo.arrays[ROWS][0]) for silo in silos])
    mean = rows @ np.array([silo.arrays[MEAN] for silo in silos]) / rows.sum()
    scatter = np.zeros_like(silos[0].arrays[SCATTER])
    for n, silo in zip(rows, silos, strict=True):
        away = silo.arrays[MEAN] - mean
        scatter += silo.arrays[SCATTER]
        scatter += pack(n * np.outer(away, away))
    found = {ROWS: np.array([rows.sum()]), MEAN: mean, SCATTER: scatter, PROBE: probe}
    return Structure(KIND, found, info)


def same_probe(expected: FloatArray, found: FloatArray) -> bool:
    """Whether features of the agreed row are equal up to rounding."""
    least = _ROUNDING * np.abs(expected).max(initial=0.0)
    return found.shape == expected.shape and np.allclose(found, expected, _ROUNDING, least)
