"""Class statistics of networks: where the inputs of each class lie, as each site's network sees it.

Site ``s`` has ``site.s.basis`` (r, n_in), orthonormal rows that span the incoming weights of its
first hidden layer. In these coordinates it has the moments of its rows by class: ``site.s.counts``
(K,), ``site.s.mean`` (K, r) and ``site.s.covariance`` (K, r, r). ``site.s.dispersion`` () is the
variance of squared distances relative to that of Normals. All sites have ``inputs.mean`` (n_in,)
and ``inputs.covariance`` (n_in, n_in). A fused network has the sites of all silos.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray

_Arrays = Mapping[str, FloatArray]
INPUT_MEAN, INPUT_COVARIANCE = "inputs.mean", "inputs.covariance"
BY_CLASS = ("counts", "mean", "covariance")
PARTS = ("basis", *BY_CLASS, "dispersion")  # of each site


def key(site: int, part: str) -> str:
    """The key of an array of a site."""
    return f"site.{site}.{part}"


def n_sites(arrays: _Arrays) -> int:
    """Number of sites with class statistics."""
    return sum(name.startswith("site.") and name.endswith(".basis") for name in arrays)


def fuse(silos: Sequence[_Arrays]) -> dict[str, FloatArray]:
    """The sites of all silos, and the moments of all inputs; nothing if a silo has none."""
    if not all(n_sites(own) for own in silos):
        return {}
    out: dict[str, FloatArray] = {}
    sites = [(own, site) for own in silos for site in range(n_sites(own))]
    for number, (own, site) in enumerate(sites):
        for part in PARTS:
            out[key(number, part)] = own[key(site, part)]
    rows = [sum(own[key(s, "counts")].sum() for s in range(n_sites(own))) for own in silos]
    shares = np.array(rows) / max(sum(rows), 1.0)
    mean = np.sum([a * own[INPUT_MEAN] for a, own in zip(shares, silos, strict=True)], axis=0)
    total = np.zeros((len(mean), len(mean)))
    for share, own in zip(shares, silos, strict=True):
        apart = own[INPUT_MEAN] - mean
        total += share * (own[INPUT_COVARIANCE] + np.outer(apart, apart))
    return {**out, INPUT_MEAN: mean, INPUT_COVARIANCE: total}


def extended(arrays: _Arrays, where: IntArray, size: int) -> dict[str, FloatArray]:
    """The statistics by class in their rows of ``size`` classes; zeros elsewhere."""
    out: dict[str, FloatArray] = {}
    for site in range(n_sites(arrays)):
        for part in BY_CLASS:
            values = arrays[key(site, part)]
            out[key(site, part)] = np.zeros((size, *values.shape[1:]))
            out[key(site, part)][where] = values
    return out
