"""What changes or examines a fusion: silos added and removed, other sizes, rounds, diagnostics.

The matching of the silos that stay is kept unless a rematch is asked for.
"""
