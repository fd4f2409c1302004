"""Exponential families, one file each; `family` has what all share, `capabilities` the rest."""

from klfusion.families.beta import Beta
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
from klfusion.families.categorical import Categorical
from klfusion.families.diagonal_normal import DiagonalNormal
from klfusion.families.dirichlet import Dirichlet
from klfusion.families.family import Family, family_from_config, registered_families
from klfusion.families.gamma import Gamma
from klfusion.families.inverse_gamma import InverseGamma
from klfusion.families.isotropic_normal_gamma import IsotropicNormalGamma
from klfusion.families.normal import Normal
from klfusion.families.normal_gamma import NormalGamma
from klfusion.families.normal_wishart import NormalWishart
from klfusion.families.product import Product
from klfusion.families.wishart import Wishart

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
