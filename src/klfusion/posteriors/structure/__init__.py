"""Structure around the components of a model, and how each kind of it is fused."""

from klfusion.posteriors.structure.kinds import fuse_structures
from klfusion.posteriors.structure.structure import Structure

__all__ = ["Structure", "fuse_structures"]
