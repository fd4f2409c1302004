"""Random valid natural parameters of every family; each property is tested on all `CASES`.

A new family needs an entry in `GENERATORS`, and is then covered by every file in this folder.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from klfusion.families import (
    Beta,
    Categorical,
    DiagonalNormal,
    Dirichlet,
    Family,
    Gamma,
    InverseGamma,
    IsotropicNormalGamma,
    Normal,
    NormalGamma,
    NormalWishart,
    Product,
    Wishart,
    registered_families,
)
from tests.helpers.loops import for_each, parameters, with_parameters


@dataclass(frozen=True)
class Case:
    """A family and how to draw natural parameters ``(n, p)`` of it; spread 0 draws equal rows."""

    family: Family
    make: Callable[..., np.ndarray]

    def draw(self, rng, n, spread=1.0):
        return self.make(self.family, rng, n, spread)

    def __str__(self):
        return str(self.family).replace(" ", "")


def covariances(rng, n, dim, spread=1.0):
    """Symmetric positive definite matrices whose log-eigenvalues have deviation ``spread / 2``."""
    basis = np.linalg.qr(rng.normal(size=(n, dim, dim)))[0]
    root = basis * np.exp(0.25 * spread * rng.normal(size=(n, 1, dim)))
    return root @ root.swapaxes(1, 2)


def positives(rng, shape, typical, spread=1.0):
    """Log-normal numbers about ``typical``."""
    return typical * np.exp(0.5 * spread * rng.normal(size=shape))


def _beta(f, rng, n, spread):
    a, b = (positives(rng, (n, f.dim), typical, spread) for typical in (3.0, 2.0))
    return f.natural(a=a, b=b)


def _categorical(f, rng, n, spread):
    return f.natural(probability=positives(rng, (n, f.dim), 1.0, 2 * spread))


def _diagonal_normal(f, rng, n, spread):
    mean = spread * rng.normal(size=(n, f.dim))
    return f.natural(mean=mean, variance=positives(rng, (n, f.dim), 0.7, spread))


def _dirichlet(f, rng, n, spread):
    return f.natural(concentration=positives(rng, (n, f.dim), 2.0, spread))


def _gamma(f, rng, n, spread):
    return f.natural(
        shape=positives(rng, (n, f.dim), 3.0, spread), rate=positives(rng, (n, f.dim), 2.0, spread)
    )


def _inverse_gamma(f, rng, n, spread):
    return f.natural(
        shape=positives(rng, (n, f.dim), 3.0, spread), scale=positives(rng, (n, f.dim), 2.0, spread)
    )


def _isotropic_normal_gamma(f, rng, n, spread):
    kappa, shape, rate = (positives(rng, n, typical, spread) for typical in (4.0, 3.0, 2.0))
    mean = spread * rng.normal(size=(n, f.dim))
    return f.natural(mean=mean, kappa=kappa, shape=shape, rate=rate)


def _normal(f, rng, n, spread):
    mean = spread * rng.normal(size=(n, f.dim))
    return f.natural(mean=mean, covariance=covariances(rng, n, f.dim, spread))


def _normal_gamma(f, rng, n, spread):
    mean, shape = spread * rng.normal(size=(n, f.dim)), (n, f.dim)
    return f.natural(
        mean=mean,
        kappa=positives(rng, shape, 4.0, spread),
        shape=positives(rng, shape, 3.0, spread),
        rate=positives(rng, shape, 2.0, spread),
    )


def _normal_wishart(f, rng, n, spread):
    return f.natural(
        mean=spread * rng.normal(size=(n, f.dim)),
        kappa=positives(rng, n, 4.0, spread),
        scale_inv=3.0 * covariances(rng, n, f.dim, spread),
        dof=f.dim + positives(rng, n, 3.0, spread),
    )


def _wishart(f, rng, n, spread):
    return f.natural(
        scale_inv=3.0 * covariances(rng, n, f.dim, spread),
        dof=f.dim + positives(rng, n, 3.0, spread),
    )


def _product(f, rng, n, spread):
    return f.natural(**{name: case_for(factor).draw(rng, n, spread) for name, factor in f.factors})


GENERATORS = {
    "beta": ([Beta(), Beta(3)], _beta),
    "categorical": ([Categorical(1), Categorical(2), Categorical(5)], _categorical),
    "diagonal-normal": ([DiagonalNormal(1), DiagonalNormal(3)], _diagonal_normal),
    "dirichlet": ([Dirichlet(1), Dirichlet(2), Dirichlet(5)], _dirichlet),
    "gamma": ([Gamma(), Gamma(3)], _gamma),
    "inverse-gamma": ([InverseGamma(), InverseGamma(3)], _inverse_gamma),
    "isotropic-normal-gamma": (
        [IsotropicNormalGamma(1), IsotropicNormalGamma(3)],
        _isotropic_normal_gamma,
    ),
    "normal": ([Normal(1), Normal(3)], _normal),
    "normal-gamma": ([NormalGamma(1), NormalGamma(3)], _normal_gamma),
    "normal-wishart": ([NormalWishart(1), NormalWishart(3)], _normal_wishart),
    "product": (
        [
            Product(only=Gamma()),
            Product(place=NormalWishart(2), words=Dirichlet(3), state=Categorical(2)),
            Product(
                place=DiagonalNormal(2),
                inner=Product(rate=Gamma(2), deeper=Product(share=Beta(), noise=InverseGamma())),
                shape=Wishart(2),
            ),
        ],
        _product,
    ),
    "wishart": ([Wishart(1), Wishart(3)], _wishart),
}


def families_of_the_package():
    """The registered families by name, without those that tests or users define."""
    return {
        name: family
        for name, family in registered_families().items()
        if family.__module__.startswith("klfusion.families.")
    }


def case_for(family):
    """The case of any instance of a family that has a generator."""
    return Case(family, GENERATORS[family.name][1])


CASES = [
    case_for(family)
    for name in sorted(families_of_the_package())
    for family in GENERATORS.get(name, ([], None))[0]
]


def _per_family(test: Callable[..., None], cases: list[Case]) -> Any:
    """One test per family, called with each ``case`` of it."""

    @functools.wraps(test)
    def of_every_size(of_family, *args, **kwargs):
        sizes = [case for case in cases if case.family.name == of_family]
        for_each("case", sizes)(test)(*args, **kwargs)

    names = ["of_family" if name == "case" else name for name in parameters(test)]
    families = sorted({case.family.name for case in cases})
    each = pytest.mark.parametrize("of_family", families)
    return each(with_parameters(of_every_size, names))


def every_case(test: Callable[..., None]) -> Any:
    """One test per family, called with a ``case`` per size of it."""
    return _per_family(test, CASES)


def every_case_with(capability: type) -> Callable[[Callable[..., None]], Any]:
    """The cases of families that declare a capability, as `every_case` has them."""
    able = [case for case in CASES if isinstance(case.family, capability)]
    return functools.partial(_per_family, cases=able)
