"""Exponential families: `family` has what all share, `capabilities` what some can do."""

from klfusion.families.capabilities import (
    CERTAIN,
    Centred,
    DiscreteOutcomes,
    EmpiricalPrior,
    GaussianObservations,
    Located,
    SiloVariation,
    Tempered,
    UncertainLocation,
    require,
)
from klfusion.families.family import Family, family_from_config, registered_families
from klfusion.families.gamma import Gamma, InverseGamma
from klfusion.families.normal import DiagonalNormal, Normal
from klfusion.families.normal_gamma import IsotropicNormalGamma, NormalGamma
from klfusion.families.probabilities import Beta, Categorical, Dirichlet
from klfusion.families.product import Product
from klfusion.families.wishart import NormalWishart, Wishart

__all__ = ["Beta", "Categorical", "DiagonalNormal", "Dirichlet", "Family", "Gamma", "InverseGamma"]
__all__ += ["IsotropicNormalGamma", "Normal", "NormalGamma", "NormalWishart", "Product", "Wishart"]
__all__ += [
    "Centred",
    "DiscreteOutcomes",
    "EmpiricalPrior",
    "GaussianObservations",
    "Located",
    "SiloVariation",
]
__all__ += ["CERTAIN", "Tempered", "UncertainLocation", "require"]
__all__ += ["family_from_config", "registered_families"]
