"""Fusion of silos that do not fit into memory: in files, or on a Dask cluster."""
