"""Variation between silos: estimated where it is known, and never out of the domain."""

import numpy as np
import pytest
from scipy.stats import wishart

from klfusion.families import (
    IsotropicNormalGamma,
    NormalGamma,
    NormalWishart,
    Product,
    SiloVariation,
)
from klfusion.families.capabilities import group_means, reliability, variance_between_silos
from tests.families.cases import every_case_with
from tests.helpers.loops import for_each


@every_case_with(SiloVariation)
@for_each("spread", [0.0, 1.0, 3.0])
def test_varied_stays_inside(case, spread):
    rng = np.random.default_rng(0)
    family, labels = case.family, np.array([0, 0, 1, 1, 1, 2])
    natural = case.draw(rng, len(labels), spread)
    variation = family.variation(natural, labels)
    assert variation.shape == (family.variation_size,)
    assert np.isfinite(variation).all()
    varied = family.varied(natural, variation)
    family.check(varied)


def test_equal_members_do_not_vary():
    rng = np.random.default_rng(1)
    family = NormalWishart(3)
    one = wishart.rvs(9, np.eye(3), size=2, random_state=rng)
    natural = family.natural(rng.normal(size=(2, 3)), [50.0, 60.0], one, [40.0, 45.0])
    natural, labels = np.repeat(natural, 3, axis=0), np.repeat([0, 1], 3)
    of_means, of_shapes, means_tell, shapes_tell = family.variation(natural, labels)[:4]
    assert of_means == of_shapes == 0.0
    assert means_tell == shapes_tell == pytest.approx(1.0)
    varied = family.varied(natural, family.variation(natural, labels))
    np.testing.assert_allclose(varied, natural, rtol=1e-9)


def drawn(family, rng, n_groups, per_group, noise, own_shapes):
    """Groups with covariances about the identity; means vary by ``noise`` in each group."""
    dim, labels = family.dim, np.repeat(np.arange(n_groups), per_group)
    scale = np.exp(own_shapes * rng.normal(size=(n_groups, dim)))[labels]
    mean = (3.0 * rng.normal(size=(n_groups, dim)))[labels]
    mean = mean + noise * np.sqrt(scale) * rng.normal(size=mean.shape)
    count = 100.0
    kappa, dof = np.full(len(labels), count), np.full(len(labels), count)
    mean += np.sqrt(scale / count) * rng.normal(size=mean.shape)
    if isinstance(family, NormalWishart):
        shape = np.stack([np.diag(s) for s in scale])
        scatter = np.stack([wishart.rvs(int(count), s, random_state=rng) for s in shape])
        return family.natural(mean, kappa, scatter, dof + dim), labels
    variance = scale * rng.chisquare(count, size=scale.shape) / count
    return family.natural(mean, kappa, dof / 2, variance * dof[:, None] / 2), labels


@pytest.mark.parametrize("family", [NormalWishart(3), NormalGamma(3)], ids=str)
@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_variation_of_means_is_found(family, noise):
    natural, labels = drawn(family, np.random.default_rng(2), 20, 20, noise, own_shapes=0.5)
    found = family.variation(natural, labels)[0]
    assert found == pytest.approx(noise**2, rel=0.15, abs=0.003)
    usual = family.params(natural)["kappa"].mean()
    kappa = family.params(family.varied(natural, family.variation(natural, labels)))["kappa"]
    assert kappa.mean() <= 1.01 / (1.0 / usual + found)


@pytest.mark.parametrize("family", [NormalWishart(3), NormalGamma(3)], ids=str)
def test_shapes_that_do_not_differ_are_drawn_to_one(family):
    rng = np.random.default_rng(3)
    natural, labels = drawn(family, rng, 10, 20, 0.5, own_shapes=0.0)
    alike = family.variation(natural, labels)
    assert alike[3] < 0.1
    natural, labels = drawn(family, rng, 10, 20, 0.5, own_shapes=1.0)
    differ = family.variation(natural, labels)
    assert differ[3] > 0.9


def test_one_variance_for_all_dimensions():
    rng = np.random.default_rng(4)
    family, labels = IsotropicNormalGamma(4), np.repeat(np.arange(30), 10)
    mean = rng.normal(size=(30, 4))[labels] + 0.5 * rng.normal(size=(300, 4))
    natural = family.natural(mean, np.full(300, 1e6), np.full(300, 50.0), np.full(300, 50.0))
    assert family.variation(natural, labels)[0] == pytest.approx(0.25, rel=0.1)


def test_a_product_varies_as_its_factors_do():
    rng = np.random.default_rng(5)
    first, second = NormalWishart(2), NormalGamma(3)
    a, labels = drawn(first, rng, 4, 5, 1.0, own_shapes=0.5)
    b, _ = drawn(second, rng, 4, 5, 0.1, own_shapes=0.5)
    product, both = Product(a=first, b=second), np.concatenate([a, b], axis=1)
    variation = product.variation(both, labels)
    parts = [first.variation(a, labels), second.variation(b, labels)]
    np.testing.assert_array_equal(variation, np.concatenate(parts))
    varied = [f.varied(x, v) for f, x, v in zip((first, second), (a, b), parts, strict=True)]
    np.testing.assert_array_equal(product.varied(both, variation), np.concatenate(varied, axis=1))


def test_reliability_is_the_intraclass_correlation():
    rng = np.random.default_rng(6)
    labels = np.repeat(np.arange(400), 4)
    values = 2.0 * rng.normal(size=(400, 3))[labels] + rng.normal(size=(1600, 3))
    assert reliability(values, labels) == pytest.approx(0.8, abs=0.03)
    assert reliability(rng.normal(size=(1600, 3)), labels) < 0.05
    assert reliability(values, np.zeros(1600, dtype=int)) == 1.0
    assert reliability(np.ones((4, 1)), np.array([0, 0, 1, 1])) == 1.0


def test_what_members_do_not_know_themselves_is_no_variation():
    squares, labels = np.array([1.0, 1.0, 2.0, 2.0]), np.array([0, 0, 1, 1])
    assert variance_between_silos(squares, np.zeros(4), labels) == 3.0
    assert variance_between_silos(squares, np.full(4, 3.0), labels) == 0.0
    np.testing.assert_array_equal(group_means(squares, labels), squares)
