"""Ways to match components; each is a frozen configuration that runs itself on a problem.

One file per method; the kind of model chooses the method here and nowhere else.
"""

from klfusion.methods.catalogue import (
    METHODS,
    Auto,
    Exact,
    Homogeneous,
    Method,
    Penalty,
    Relaxed,
)

__all__ = ["METHODS", "Auto", "Exact", "Homogeneous", "Method", "Penalty", "Relaxed"]
