"""Distances of components and clusters: the symmetrised divergence, weighted by masses.

``<eta - eta', mu - mu'>`` is the divergence in both directions. Half of it, times the harmonic mass
``w w' / (w + w')``, is to second order the increase of the Jensen gap if both merged. Unlike that
increase it grows with the square of the distance also where components lie far apart.
"""

from collections.abc import Iterator

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, blocks, in_blocks
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem

_BLOCK_ENTRIES = 1 << 17  # numbers in a block of centres, whose matrices stay in the cache


def pair_distances(problem: FusionProblem) -> FloatArray:
    """Distances of all pairs of components, (n, n)."""
    return _matrix(problem.natural, problem.mean, problem.weights)


def within_each(problem: FusionProblem, rows: IntArray) -> Iterator[FloatArray]:
    """Distances of all pairs of each of some sets of rows (sets, n), in blocks, (some, n, n)."""
    wide = max(problem.family.size, rows.shape[1])
    for some in blocks((len(rows), rows.shape[1], wide)):
        own = rows[some]
        yield _matrix(problem.natural[own], problem.mean[own], problem.weights[own])


def centre_distances(clusters: Clusters) -> FloatArray:
    """Distances of all pairs of clusters, (G, G); none may be empty."""
    centres = clusters.centres
    return _matrix(centres, clusters.problem.family.mean(centres), clusters.mass)


def between_centres(clusters: Clusters, a: IntArray, b: IntArray) -> FloatArray:
    """Distances of pairs of clusters, (m,); none may be empty."""
    mass, difference = clusters.mass, clusters.means_of(b) - clusters.means_of(a)
    squares = np.einsum("mp,mp->m", clusters.centres_of(b) - clusters.centres_of(a), difference)
    return np.asarray(np.maximum(squares, 0.0) * harmonic(mass[a], mass[b]))


def to_clusters(
    problem: FusionProblem,
    rows: IntArray | slice,
    centres: FloatArray,
    mass: FloatArray,
    mean_of_centres: FloatArray | None = None,
) -> FloatArray:
    """Distances of some components to centres (G, p) of ``mass`` (G,), (rows, G)."""
    natural, mean, own = problem.natural[rows], problem.mean[rows], problem.weights[rows, None]
    of_centres = problem.family.mean(centres) if mean_of_centres is None else mean_of_centres
    if (own == own[:1]).all():
        own = own[:1]
    out, other = natural @ of_centres.T, mean @ centres.T
    out += other
    squares = np.einsum("lp,lp->l", natural, mean)[:, None]
    np.add(squares, np.einsum("gp,gp->g", centres, of_centres), out=other)
    np.subtract(other, out, out=out)
    np.maximum(out, 0.0, out=out)
    out *= harmonic(own, mass)
    return out


def to_others(
    problem: FusionProblem, rows: IntArray, group: IntArray, sums: FloatArray, mass: FloatArray
) -> FloatArray:
    """Distance of each of some components (m,) to the other members of its group, (m,).

    The groups have weighted ``sums`` (G, p) and ``mass`` (G,).
    """
    out = np.empty(len(rows))
    step = max(1, _BLOCK_ENTRIES // problem.family.size)
    for low in range(0, len(rows), step):
        i, g = rows[low : low + step], group[low : low + step]
        own = problem.weights[i]
        rest = mass[g] - own
        centres = (sums[g] - own[:, None] * problem.natural[i]) / rest[:, None]
        out[low : low + step] = harmonic(own, rest) * between(problem, i, centres)
    return out


def between(problem: FusionProblem, rows: IntArray, centres: FloatArray) -> FloatArray:
    """Symmetrised divergence of components (m,) and centres (m, p), pair by pair, (m,)."""
    difference = in_blocks(problem.family.mean, centres) - problem.mean[rows]
    squares = np.einsum("mp,mp->m", centres - problem.natural[rows], difference)
    return np.asarray(np.maximum(squares, 0.0))


def harmonic(one: FloatArray | float, other: FloatArray) -> FloatArray:
    """Half the harmonic mass of components or clusters of these masses."""
    return np.asarray(0.5 * one * other / (one + other))


def _matrix(natural: FloatArray, mean: FloatArray, mass: FloatArray) -> FloatArray:
    """Distances of the pairs of components (..., n, p), (..., n, n)."""
    products = natural @ mean.mT
    own = np.einsum("...nn->...n", products)
    squares = own[..., :, None] + own[..., None, :]
    squares -= products
    squares -= products.mT
    np.maximum(squares, 0.0, out=squares)
    squares *= harmonic(mass[..., :, None], mass[..., None, :])
    return np.asarray(squares)
