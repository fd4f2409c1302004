"""Fusion of silos that do not fit into memory: in files, or on a Dask cluster.

All share one store protocol of map, reduce and take.
"""
