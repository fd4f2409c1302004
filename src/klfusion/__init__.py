"""Fuse Bayesian models that were trained apart, in one communication round."""

from klfusion import adapters, baselines, families, learners, methods, vocabulary
from klfusion.adapters import extract
from klfusion.api import fuse
from klfusion.diagnostics import diagnose
from klfusion.errors import KLFusionError
from klfusion.fusion import Fusion, Status
from klfusion.posterior import Posterior
from klfusion.provenance import library_version
from klfusion.rounds import refine_rounds
from klfusion.storage import load, save

__version__ = library_version()

__all__ = [
    "Fusion",
    "KLFusionError",
    "Posterior",
    "Status",
    "adapters",
    "baselines",
    "diagnose",
    "extract",
    "families",
    "fuse",
    "learners",
    "load",
    "methods",
    "refine_rounds",
    "save",
    "vocabulary",
]
