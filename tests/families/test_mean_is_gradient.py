"""Mean parameters are the gradient of the log-partition."""

import numpy as np

from tests.families.cases import every_case
from tests.helpers.loops import for_each


def numerical_gradient(family, row):
    """Fourth-order central differences, each step short against the way to the domain's edge."""
    gradient, steps = np.empty(family.size), np.empty(family.size)
    for k in range(family.size):
        unit = np.eye(family.size)[k]
        step = 1e-2 * max(1.0, abs(row[k]))
        while not family.in_domain(row + 200 * step * np.array([[-1.0], [1.0]]) * unit):
            step /= 2
        at = row + step * np.array([[-2.0], [-1.0], [1.0], [2.0]]) * unit
        gradient[k] = np.array([1, -8, 8, -1]) @ family.log_partition(at) / (12 * step)
        steps[k] = step
    return gradient, steps


@every_case
@for_each("seed", range(3))
def test_mean_is_the_gradient_of_the_log_partition(case, seed):
    family = case.family
    natural = case.draw(np.random.default_rng(seed), 2, 0.5 + seed / 2)
    rounding = 1e-14 * (1 + np.abs(family.log_partition(natural)))
    for row, mean, noise in zip(natural, family.mean(natural), rounding, strict=True):
        gradient, steps = numerical_gradient(family, row)
        assert np.all(np.abs(gradient - mean) <= 1e-5 * np.abs(mean) + noise / steps)
