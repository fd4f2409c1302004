"""Adapters between fitted models and posteriors; one file per library."""

from klfusion.adapters.dispatch import extract, rebuild, register

__all__ = ["extract", "rebuild", "register"]
