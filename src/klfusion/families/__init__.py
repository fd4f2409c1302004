"""Exponential families: `family` has what all share, `capabilities` what some can do."""

from klfusion.families.capabilities import (
    CERTAIN,
    Centred,
    DiscreteOutcomes,
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

__all__ = [
    "CERTAIN",
    "Beta",
    "Categorical",
    "Centred",
    "DiagonalNormal",
    "Dirichlet",
    "DiscreteOutcomes",
    "Family",
    "Gamma",
    "GaussianObservations",
    "InverseGamma",
    "IsotropicNormalGamma",
    "Located",
    "Normal",
    "NormalGamma",
    "NormalWishart",
    "Product",
    "SiloVariation",
    "Tempered",
    "UncertainLocation",
    "Wishart",
    "family_from_config",
    "registered_families",
    "require",
]
