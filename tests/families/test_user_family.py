"""A family of one's own: a log-partition, its gradient and a domain; the rest follows."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from klfusion.errors import InvalidPosteriorError, KLFusionError
from klfusion.families import (
    Family,
    Gamma,
    Product,
    Tempered,
    family_from_config,
    registered_families,
    require,
)
from klfusion.families.capabilities import Capability
from tests.families.cases import CASES, families_of_the_package
from tests.families.sampling import jensen_gap


@dataclass(frozen=True)
class Poisson(Family):
    """Counts of ``dim`` kinds; every vector of log-rates is one."""

    name: ClassVar[str] = "test-user-family-poisson"
    dim: int = 1

    @property
    def size(self):
        return self.dim

    def natural(self, rate):
        return np.log(np.asarray(rate, dtype=float))

    def params(self, natural):
        return {"rate": np.exp(natural)}

    def log_partition(self, natural):
        return np.exp(natural).sum(axis=1)

    def mean(self, natural):
        return np.exp(natural)

    def positive(self, natural):
        return {}


class Exponential(Family):
    """Waiting times, without sizes and so without a dataclass; the domain is a half-line."""

    name = "test-user-family-exponential"
    size = 1

    def natural(self, rate):
        return np.asarray(rate, dtype=float)[:, None]

    def params(self, natural):
        return {"rate": natural[:, 0]}

    def log_partition(self, natural):
        return -np.log(natural[:, 0])

    def mean(self, natural):
        return -1.0 / natural

    def positive(self, natural):
        return {"rate": natural[:, 0]}


def test_divergences():
    rate = np.array([[0.5, 2.0], [1.0, 1.0], [30.0, 0.1]])
    family = Poisson(2)
    natural = family.natural(rate)
    q, p = rate[:, None], rate[None]
    expected = (q * np.log(q / p) - q + p).sum(axis=-1)
    np.testing.assert_allclose(family.kl(natural, natural), expected, rtol=1e-12, atol=1e-15)
    assert np.all(np.diag(family.kl(natural, natural)) == 0.0)
    q, p = np.array([[0.5], [3.0]]), np.array([0.5, 3.0])
    waits = Exponential()
    exact = np.log(q / p) + p / q - 1.0
    np.testing.assert_allclose(waits.kl(waits.natural(p), waits.natural(p)), exact, atol=1e-15)


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9])
def test_near_divergences(size):
    family = Poisson()
    natural = np.log([[50.0]])
    kl = family.kl(natural, natural + size)[0, 0]
    assert kl == pytest.approx(50 * size**2 * (1 / 2 + size / 6), rel=1e-6)


def test_barycenters():
    family, weights = Poisson(2), np.array([1.0, 3.0])
    natural = family.natural([[1.0, 2.0], [16.0, 2.0]])
    centre = family.barycenter(natural, weights)
    np.testing.assert_allclose(np.exp(centre), [8.0, 2.0])
    cost = weights @ family.kl_from(centre[None], natural)[:, 0]
    assert jensen_gap(family, natural, weights) == pytest.approx(cost)


def test_checks():
    with pytest.raises(InvalidPosteriorError, match="component 1: expected finite"):
        Poisson().check(np.array([[0.0], [np.nan]]))
    message = r"component 1: expected rate > 0 for Exponential\(\), got -2"
    with pytest.raises(InvalidPosteriorError, match=message):
        Exponential().check(np.array([[1.0], [-2.0]]))


class TemperedExponential(Exponential, Tempered):
    """The same as the posterior of one observation; a capability is a base class."""

    name = "test-user-family-tempered"

    def effective_size(self, natural):
        return natural[:, 0]


def test_capabilities_are_declared():
    family = Poisson()
    assert not isinstance(family, Capability)
    assert family.least_count == 1.0
    message = r"pooling: expected a family with effective_size .*Tempered.*Poisson"
    with pytest.raises(KLFusionError, match=message):
        require(family, Tempered, "pooling")
    able = TemperedExponential()
    assert require(able, Tempered, "pooling") is able
    comparable = able.comparable(np.array([[1.0], [4.0]]))
    np.testing.assert_allclose(comparable, [[np.sqrt(2.0)], [np.sqrt(8.0)]])
    assert isinstance(Product(wait=able, count=family), Tempered)


@pytest.mark.parametrize(
    "family", [Poisson(3), Exponential(), Product(count=Poisson(2), rate=Gamma())], ids=str
)
def test_files(family):
    again = family_from_config(json.loads(json.dumps(family.to_config())))
    assert again == family and hash(again) == hash(family)


def test_products():
    family = Product(count=Poisson(), rate=Gamma())
    natural = family.natural(count={"rate": [[2.0]]}, rate={"shape": [3.0], "rate": [1.0]})
    other = family.natural(count={"rate": [[5.0]]}, rate={"shape": [3.0], "rate": [1.0]})
    expected = Poisson().kl(natural[:, :1], other[:, :1])
    np.testing.assert_allclose(family.kl(natural, other), expected)


def test_registered_but_not_among_the_package_s_own():
    assert registered_families()[Poisson.name] is Poisson
    assert Poisson.name not in families_of_the_package()
    assert not {Poisson.name, Exponential.name} & {case.family.name for case in CASES}


def test_unfinished_families_are_not_registered():
    class Unfinished(Family):
        name = "test-user-family-unfinished"

    assert "test-user-family-unfinished" not in registered_families()
    with pytest.raises(TypeError, match="abstract"):
        Unfinished()
