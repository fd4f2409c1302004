"""What surrounds the components of a model, and how it follows them through a matching."""

from klfusion.posteriors.structure.kinds import fuse_structures
from klfusion.posteriors.structure.structure import Structure

__all__ = ["Structure", "fuse_structures"]
