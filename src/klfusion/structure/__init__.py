"""What surrounds the components of a model, and how it follows them through a matching."""

from klfusion.structure.base import Structure
from klfusion.structure.kinds import fuse_structures

__all__ = ["Structure", "fuse_structures"]
