"""Heads on agreed features: sums of outer products of features and labels with noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from klfusion.adapters.bayesian_head import extract
from klfusion.errors import KLFusionError
from klfusion.learners import BayesianHead
from klfusion.learners._head import Statistics
from klfusion.posteriors.posterior import Posterior
from klfusion.privacy.bounds import shortened
from klfusion.privacy.mechanism import Noised, Statistic
from klfusion.privacy.plan import Plan, Request

_OUTER = "outer"


def head(model: Any, request: Request) -> Plan:
    """A `BayesianHead`, from outer products of rows ``(features / norm, one-hot label)``.

    The sum of these has no negative eigenvalue. Noise may leave one. Then all eigenvalues are
    raised by as much, which adds a ridge and the same number of rows to each class. As of class
    models, the sums become worth fewer rows, by the variance that noise adds to sampling.
    """
    labels, hot = request.labels()
    if request.norm is None:
        raise KLFusionError(f"{request.where}: expected norm, the largest norm of a row's features")
    norm, c = float(request.norm), len(labels)
    x = shortened(model.transform(request.x), norm, request.where) / norm
    d, rows = x.shape[1], np.hstack([x, hot])
    bound, root = 2.0, math.sqrt(2.0)  # two parts, each of a norm of at most 1
    outer = Statistic(rows[:, :, None] * rows[:, None, :], bound, replaced=root, symmetric=True)
    off = np.zeros((d + c, d + c), dtype=bool)
    off[d:, d:] = ~np.eye(c, dtype=bool)  # no row is of two classes

    def posterior(found: Noised) -> Posterior:
        deviation = found.deviations[_OUTER]
        sums = np.where(off, 0.0, found.sums[_OUTER])
        raised = max(-float(np.linalg.eigvalsh(sums)[0]), 0.0) + deviation
        sums = sums + raised * np.eye(d + c)
        counts, gram = np.diag(sums)[d:], sums[:d, :d] * norm**2
        shares = counts / counts.sum()
        # Of sums by class, with columns of the mean square; off the diagonal noise is halved.
        by_sampling = float(np.mean(shares * (1.0 - shares)) * np.trace(sums[:d, :d]) / d)
        worth = by_sampling / (by_sampling + 0.5 * deviation**2)
        by_class = norm * sums[d:, :d]
        of_all = by_class.sum(axis=0)
        scatter = gram - np.outer(of_all, of_all) / counts.sum()
        parts = (counts, by_class, np.trace(gram) * shares, scatter)
        own = BayesianHead(model.features)
        own.feature_names_in_ = [*request.features] if request.named else None
        total = Statistics(*(worth * part for part in parts))
        return extract(own.set_statistics(labels, total, request.x.shape[1]), request.name)

    return Plan({_OUTER: outer}, posterior, {"norm": norm, "classes": labels})
