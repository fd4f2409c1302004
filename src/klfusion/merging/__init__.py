"""Agglomerative merging: paths of models of every size, and local search from a cut of one.

One loop merges (`agglomeration`); candidates are all pairs or nearest neighbours.
"""
