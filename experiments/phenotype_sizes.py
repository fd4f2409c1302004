"""What decides the number of phenotypes: heart disease with patients dealt to sites at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

import klfusion as kf
from experiments.phenotypes_data import Frame
from klfusion.learners import MixedMixture
from klfusion.learners._mixture import DirichletWeights, Fit, Problem, iterate, start
from klfusion.learners.mixed_mixture import _features

SHARES = (0.95, 0.9, 0.75, 0.5, 0.25)  # of the patients
GROUP = 2  # patients of a small group, on average
OTHER_STARTS = 1000  # added to the seed
_OF_COMPONENTS = ("natural_", "counts_")


def fitted(schema: kf.Schema, frame: Frame, seed: int) -> MixedMixture:
    """One site's model, or that of all data."""
    return MixedMixture(schema, random_state=seed).fit(frame)


def dealt_at_random(
    schema: kf.Schema,
    every: Frame,
    test: Frame,
    pooled: MixedMixture,
    sites: list[Frame],
    seed: int,
) -> dict[str, float]:
    """Sizes of the fused model, of the pooled one of fewer patients, and what bounds say."""
    own = [fitted(schema, frame, seed) for frame in sites]
    fusion = kf.fuse(own)
    of_pooled = kf.fuse([in_groups(schema, frame, pooled.predict(frame)) for frame in sites])
    out = {
        "dealt": fusion.model().score(test),
        "dealt size": fusion.n_components,
        "dealt, of sites": np.mean([model.n_components_ for model in own]),
        "dealt, groups of the pooled model, size": of_pooled.n_components,
        "dealt, groups of two patients, size": size_of_groups(schema, every, sites, seed),
        "dealt, nats by which a site's own model is better than the pooled groups": np.mean(
            [model.lower_bound_ for model in own]
        )
        - np.mean([bound_from(schema, own, pooled.predict_proba(own)) for own in sites]),
        "dealt, nats lost by sites' own assignments": pooled.lower_bound_
        - bound_of_sites(schema, every, own, fusion.labels),
        "pooled, nats above the next size": margin(pooled),
        "pooled size, other starts": fitted(schema, every, seed + OTHER_STARTS).n_components_,
    }
    rng, n = np.random.default_rng([seed, 1]), len(next(iter(every.values())))
    for share in SHARES:
        rows = rng.permutation(n)[: round(share * n)]
        some = {name: values[rows] for name, values in every.items()}
        size = fitted(schema, some, seed).n_components_
        out[f"pooled size, {share:.0%} of patients"] = size
    return {name: float(value) for name, value in out.items()}


def margin(model: MixedMixture) -> float:
    """Nats by which the bound of the size found is above that of the next best."""
    best, others = model.lower_bound_, dict(model.bounds_by_size_)
    del others[model.n_components_]
    return float(best - max(others.values()))


def in_groups(schema: kf.Schema, frame: Frame, labels: NDArray[np.intp]) -> MixedMixture:
    """A site's model with one component for each group of its patients."""
    groups = [
        MixedMixture(schema, n_components=1).fit({k: v[labels == g] for k, v in frame.items()})
        for g in np.unique(labels)
    ]
    model, some = MixedMixture(schema), groups[0]
    model.set_schema(schema)
    model.weight_prior_ = 1.0 / model.n_components
    natural, counts = (np.concatenate([getattr(m, k) for m in groups]) for k in _OF_COMPONENTS)
    model.set_components(natural, some.prior_, counts)
    model.measured_ = np.concatenate([m.measured_ for m in groups])
    return model


def _problem(schema: kf.Schema, frame: Frame) -> tuple[Problem, NDArray[np.float64]]:
    """What is fitted, and what k-means begins with."""
    model = MixedMixture(schema)
    model.set_schema(schema)
    problem, standard = model._problem(frame)
    return problem, _features(model._parts, standard)


def bound_from(schema: kf.Schema, frame: Frame, share: NDArray[np.float64]) -> float:
    """The bound of a site's model that begins with responsibilities, without merges."""
    problem, _ = _problem(schema, frame)
    first = Fit(share.sum(axis=0), problem.design.sums(share))
    return iterate(problem, first, MixedMixture.max_iter).bound


def bound_of_sites(
    schema: kf.Schema, every: Frame, sites: list[MixedMixture], labels: Sequence[NDArray[np.intp]]
) -> float:
    """The bound of the model of all patients with each site's assignments, matched as given.

    It is that of the summed statistics, and the entropy of assignments. The latter is what a site's
    bound has beyond that of its statistics.
    """
    problem, _ = _problem(schema, every)
    n = max(int(own.max()) for own in labels) + 1
    places, rest = [], 0.0
    for own in labels:
        alone = own < 0  # joined to no other
        places.append(np.where(alone, n + np.cumsum(alone) - 1, own))
        n += int(alone.sum())
    counts, sums = np.zeros(n), np.zeros((n, len(problem.model.prior)))
    for model, place in zip(sites, places, strict=True):
        statistics = model._standardised(model.natural_) - problem.model.prior
        # Constants of densities are in the bounds of sites.
        rest += model.lower_bound_ - problem.collapsed(model.counts_, statistics) + problem.base
        np.add.at(counts, place, model.counts_)
        np.add.at(sums, place, statistics)
    return problem.collapsed(counts, sums) - problem.base + rest


def size_of_groups(schema: kf.Schema, every: Frame, sites: list[Frame], seed: int) -> int:
    """Size of the highest bound over the sums of small groups of each site's patients."""
    rng, groups = np.random.default_rng([seed, 2]), []
    for frame in sites:
        problem, features = _problem(schema, frame)
        groups.append(start(problem.design, features, len(features) // GROUP, rng))
    problem, _ = _problem(schema, every)
    counts = np.concatenate([fit.counts for fit in groups])
    sums = np.concatenate([fit.sums for fit in groups])
    bounds = {}
    while True:
        bounds[len(counts)] = problem.collapsed(counts, sums)
        if len(counts) == 1:
            return max(bounds, key=bounds.__getitem__)
        a, b = _best_pair(problem, counts, sums)
        counts[a] += counts[b]
        sums[a] += sums[b]
        counts, sums = np.delete(counts, b), np.delete(sums, b, axis=0)


def _best_pair(
    problem: Problem, counts: NDArray[np.float64], sums: NDArray[np.float64]
) -> tuple[int, int]:
    """The two groups whose merge gains most, or loses least."""
    model, weights = problem.model, problem.weights
    assert isinstance(weights, DirichletWeights)
    a, b = np.triu_indices(len(counts), k=1)
    alone = model.log_partition(model.prior + sums) + gammaln(weights.concentration + counts)
    both = model.log_partition(model.prior + sums[a] + sums[b])
    both += gammaln(weights.concentration + counts[a] + counts[b])
    best = int((both - alone[a] - alone[b]).argmax())
    return int(a[best]), int(b[best])
